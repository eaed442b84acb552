"""Where a conversation is cut when it no longer fits: pure arithmetic over what its messages weigh."""

from collections.abc import Sequence
from itertools import accumulate

from msgspec import Struct

from services.agents.model import CompactionSettings
from services.context.weights import Scale, Weighed
from services.context.window import Window, too_much_said, too_much_system
from services.messages.model import InContext, Role, ToolCall, ToolReturn

# A summary gets a quarter of what the messages may fill: more of little, and never more than this many tokens.
_LONGEST_SUMMARY = 4_096
_SHORT_SUMMARY = 256


class Plan(Struct, frozen=True):
    """What is summarised, what stays, and how long the summary may be."""

    old: tuple[InContext, ...]
    floor: int
    room: int
    messages_before: int
    messages_after: int
    tokens_before: int
    # Without the summary, which is not written yet.
    tokens_kept: int


def strained(window: Window, weight: int, share: float) -> Window:
    """The window that there must be if what weighs so much was too big for it, whatever else is known of it."""
    return Window(min(window.size or weight, weight), min(window.limit or weight, int(weight * share)))


def plan(scale: Scale, window: Window, settings: CompactionSettings, attempt: int = 1, *, live: bool = True) -> Plan:
    """Cut so that what is left fits, and less of it with each attempt. ModelError if no cut can help.

    Without a live run there is no current turn that the mode `all` would keep.
    """
    total = scale.tokens
    # Where nobody knows a limit there is room for all of it, and for the longest summary.
    limit = total + _LONGEST_SUMMARY if window.limit is None else window.limit
    available = limit - scale.fixed
    if available <= 0:
        raise too_much_system(scale.fixed, limit)
    room = _room(available)
    messages = [each for each in scale.messages if each.entry.role is not Role.SUMMARY]
    weights = _suffixes(messages)
    last = _last_words(messages)
    if weights[last] > available - room and last < len(messages):
        # Earlier ones may be from runs that failed; only the last is surely what is to be answered now.
        last = len(messages) - 1
    cuts = [cut for cut in _cuts(messages) if cut <= last]
    if weights[last] > available - room or not cuts:
        raise too_much_said(weights[last], available - room)
    whole_turn = _turn(messages, last) if live else last
    if settings.mode == "all" and whole_turn in cuts and weights[whole_turn] <= available - room:
        cut = whole_turn
    else:
        # Where instructions and tools leave little, a part of it stays free, or the next message would not fit again.
        most = (available - room) * 3 // 4
        keep = min(int((window.size or total) * settings.keep / 2 ** (attempt - 1)), most)
        cut = next((cut for cut in cuts if weights[cut] <= keep), cuts[-1])
    before = [each.entry for each in scale.messages if each.entry.role is Role.SUMMARY]
    return Plan(
        old=(*before, *(each.entry for each in messages[:cut])),
        floor=messages[cut].entry.seq if cut < len(messages) else messages[-1].entry.seq + 1,
        room=room,
        messages_before=len(scale.messages),
        messages_after=1 + len(messages) - cut,
        tokens_before=total,
        tokens_kept=scale.fixed + weights[cut],
    )


def _room(available: int) -> int:
    return max(1, min(_LONGEST_SUMMARY, max(available // 4, min(_SHORT_SUMMARY, available // 3))))


def _suffixes(messages: Sequence[Weighed]) -> list[int]:
    """What is left, by where the cut is."""
    return [*accumulate((each.tokens for each in reversed(messages)), initial=0)][::-1]


def _cuts(messages: Sequence[Weighed]) -> list[int]:
    """Where the log can be cut, oldest first: never between a call and its return."""
    found: list[int] = []
    waiting: set[str] = set()
    for place, each in enumerate(messages):
        role, parts = each.entry.role, each.entry.body.parts
        # A call that nothing came of is not waited for once the model has spoken again.
        closed = not waiting or role is Role.ASSISTANT
        if place and closed and role not in (Role.TOOL, Role.APPROVAL):
            found.append(place)
        if role is Role.ASSISTANT:
            waiting = {part.id for part in parts if isinstance(part, ToolCall)}
        waiting -= {part.call_id for part in parts if isinstance(part, ToolReturn)}
    if messages and not waiting:
        found.append(len(messages))
    return found


def _last_words(messages: Sequence[Weighed]) -> int:
    """Where what nobody has answered yet begins."""
    place = len(messages)
    while place and messages[place - 1].entry.role in (Role.USER, Role.SYSTEM):
        place -= 1
    return place


def _turn(messages: Sequence[Weighed], last: int) -> int:
    """Where the current turn begins: with the last words that were said to the model, answered or not."""
    if last < len(messages):
        return last
    place = len(messages)
    while place and messages[place - 1].entry.role is not Role.USER:
        place -= 1
    return _last_words(messages[:place])
