"""Where a conversation is cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.agents.model import CompactionSettings
from services.context.compaction import plan, strained
from services.context.weights import Scale, Weighed
from services.context.window import Window
from services.messages.model import Body, InContext, Outcome, Part, Role, Text, ToolCall, ToolReturn
from services.models.errors import ModelError, ModelErrorType

SLIDING = CompactionSettings()
ALL = CompactionSettings(mode="all")


def scale(log: str, tokens: int = 100, fixed: int = 50) -> Scale:
    """A context, a letter for each message: user, assistant, call, tool return, decision (d), summary, SYSTEM (y)."""
    messages = [Weighed(entry(seq, letter), tokens) for seq, letter in enumerate(log, 10)]
    return Scale(fixed, tuple(messages))


def entry(seq: int, letter: str) -> InContext:
    roles = {"u": Role.USER, "a": Role.ASSISTANT, "c": Role.ASSISTANT, "t": Role.TOOL, "d": Role.APPROVAL}
    role = roles.get(letter, Role.SUMMARY if letter == "s" else Role.SYSTEM)
    part: Part = Text(letter)
    if letter == "c":
        part = ToolCall("call_0", "look", "{}")
    elif letter == "t":
        part = ToolReturn("call_0", "look", Outcome.SUCCEEDED)
    return InContext(f"message-{seq}", seq, role, Body((part,)))


def window(size: int) -> Window:
    return Window(size, size * 9 // 10)


def kept(log: str, size: int, settings: CompactionSettings = SLIDING, attempt: int = 1) -> str:
    """What stays of a log."""
    found = plan(scale(log), window(size), settings, attempt)
    return log[found.floor - 10 :]


def test_the_newest_share_of_the_window_stays() -> None:
    found = plan(scale("uauauauaua"), window(1000), SLIDING)
    assert found.floor == 17
    assert [each.seq for each in found.old] == list(range(10, 17))
    assert (found.messages_before, found.messages_after) == (10, 4)
    assert (found.tokens_before, found.tokens_kept) == (1050, 350)
    assert found.tokens_kept + found.room <= 900


def test_less_stays_with_each_attempt() -> None:
    assert [kept("uauauauaua", 1000, attempt=attempt) for attempt in (1, 2, 3)] == ["aua", "a", ""]


@pytest.mark.parametrize("log", ["uactuactuact", "ucctt", "uacdtuacdt"])
def test_a_call_stays_with_its_return(log: str) -> None:
    for size in range(400, 1500, 50):
        assert kept(log, size)[:1] in ("u", "a", "c", ""), (size, kept(log, size))


def test_what_is_to_be_answered_stays() -> None:
    assert kept("uauauauau", 500) == "u"
    assert kept("uauauauyu", 600) == "uyu"


def test_the_mode_all_keeps_the_current_turn() -> None:
    assert kept("uauauau", 1000, ALL) == "u"
    assert kept("uauauctct", 1500, ALL) == "uctct"
    # Or as much of it as fits.
    assert kept("uauctctctctct", 1000, ALL) == "ct"
    assert kept("uctctctctct", 1000, ALL) == "ct"


def test_nothing_is_current_when_nothing_runs() -> None:
    assert plan(scale("uauaua"), window(1000), ALL, live=False).messages_after == 1


def test_the_old_summary_is_summarised_too() -> None:
    found = plan(scale("suauauaua"), window(1000), SLIDING)
    assert found.old[0].role is Role.SUMMARY
    assert found.messages_after == 4


def test_a_return_that_does_not_fit_is_summarised_with_its_call() -> None:
    long = Scale(50, (Weighed(entry(1, "u"), 10), Weighed(entry(2, "c"), 10), Weighed(entry(3, "t"), 5000)))
    found = plan(long, window(1000), SLIDING)
    assert (found.floor, len(found.old)) == (4, 3)


def test_last_words_that_do_not_fit_are_an_error() -> None:
    long = Scale(50, (Weighed(entry(1, "u"), 10), Weighed(entry(2, "a"), 10), Weighed(entry(3, "u"), 5000)))
    with pytest.raises(ModelError) as caught:
        plan(long, window(1000), SLIDING)
    assert caught.value.kind is ModelErrorType.CONTEXT_WINDOW_EXCEEDED
    # Unless others were said after them.
    behind = Scale(50, (*long.messages, Weighed(entry(4, "u"), 10)))
    assert plan(behind, window(1000), SLIDING).floor == 4


def test_instructions_that_leave_no_room_are_another() -> None:
    with pytest.raises(ModelError) as caught:
        plan(scale("uauau", fixed=950), window(1000), SLIDING)
    assert caught.value.kind is ModelErrorType.SYSTEM_PROMPT_OVERFLOW


def test_a_provider_that_refuses_is_believed() -> None:
    weighed = scale("uauauauaua")
    assert strained(Window(), weighed.tokens, 0.9) == Window(1050, 945)
    assert strained(window(100_000), weighed.tokens, 0.9) == Window(1050, 945)
    assert strained(window(1000), weighed.tokens, 0.9) == window(1000)


_letters = st.lists(st.sampled_from(["u", "a", "ct", "cdt", "y"]), max_size=40).map("".join)


@given(_letters, st.lists(st.integers(1, 300), min_size=150, max_size=150), st.integers(1000, 4000), st.integers(1, 3))
def test_whatever_was_said_the_rest_fits_and_nothing_is_split(
    log: str, tokens: list[int], size: int, attempt: int
) -> None:
    log += "u"
    messages = tuple(Weighed(entry(seq, letter), tokens[seq]) for seq, letter in enumerate(log))
    for settings in (SLIDING, ALL):
        try:
            found = plan(Scale(50, messages), window(size), settings, attempt)
        except ModelError:
            # Nothing but the last words could go.
            assert set(log) <= {"u", "y"} or tokens[len(log) - 1] > size // 2
            continue
        rest = log[found.floor :]
        assert rest[:1] not in ("t", "d")
        assert rest.count("c") == rest.count("t")
        assert rest.endswith("u")
        assert len(found.old) >= 1
        assert found.tokens_kept + found.room <= size * 9 // 10
