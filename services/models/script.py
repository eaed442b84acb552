"""The little language in which a test tells a model what to do. The demo model and the fake provider both obey it.

What the last user message says decides:

    call roll_dice {"sides": 6}     calls a tool; ` and ` joins calls of one turn, ` then ` separates turns
    count to 100                    says that many tokens
    fail llm_rate_limit             fails the way a provider would
    anything else                   is echoed, word by word
"""

import re
from collections.abc import Iterable

from msgspec import Struct

_CALL = re.compile(r"call\s+(?P<name>[A-Za-z0-9_-]+)\s*(?P<arguments>\{.*\})?\s*\Z", re.DOTALL)
_COUNT = re.compile(r"count to (\d{1,6})\b")
_FAIL = re.compile(r"fail (llm_[a-z_]+|context_window_exceeded)\b")
_NUDGE = re.compile(r"ToolRuleViolated: You must call ([A-Za-z0-9_-]+)")


class Situation(Struct, frozen=True):
    """What was said last and what has happened since."""

    said: str
    # Turns of calls that have been answered since, and `(tool, text)` of the last of them.
    turns: int = 0
    returns: tuple[tuple[str, str], ...] = ()
    # The tool to call if the turn must be a call and the text names none.
    forced: str = ""


def failure(said: str) -> str:
    """The kind of failure that is asked for; empty if none is."""
    match = _FAIL.match(said.strip())
    return match.group(1) if match else ""


def calls(situation: Situation) -> list[tuple[str, str]]:
    """The calls of this turn, `(name, arguments)`: what was asked for, or what the rules force."""
    turns = re.split(r"\s+then\s+", situation.said.strip())
    clauses = re.split(r"\s+and\s+(?=call\b)", turns[situation.turns]) if situation.turns < len(turns) else []
    told = [_CALL.match(clause) for clause in clauses]
    found = [match for match in told if match is not None]
    if found and len(found) == len(told):
        return [(match["name"], match["arguments"] or "{}") for match in found]
    nudged = _NUDGE.match(situation.said)
    if nudged and not situation.returns:
        return [(nudged.group(1), "{}")]
    if situation.forced:
        return [(situation.forced, "{}")]
    return []


def counts_to(situation: Situation) -> int | None:
    """How far to count; None if this is not a turn of counting."""
    counted = None if situation.returns else _COUNT.match(situation.said.strip())
    return int(counted.group(1)) if counted else None


def words(situation: Situation) -> Iterable[str]:
    """The tokens of a turn without calls."""
    if situation.returns:
        return split("; ".join(f"{name} returned {text}" for name, text in situation.returns))
    last = counts_to(situation)
    if last is not None:
        return numbers(last)
    return split(f"You said: {situation.said}")


def numbers(last: int) -> Iterable[str]:
    """As many tokens as wanted."""
    return (f"{number} " for number in range(1, last + 1))


def split(text: str) -> list[str]:
    """A text as tokens: words with the space around them; nothing is lost."""
    return re.findall(r"\s*\S+\s*|\s+", text)
