"""Where a copy of a log ends."""

from services.conversations.fork import first_unanswered
from services.messages.model import Outcome, Part, Text, ToolCall, ToolReturn


def call(call_id: str) -> ToolCall:
    return ToolCall(call_id, "t", "{}")


def answer(call_id: str) -> ToolReturn:
    return ToolReturn(call_id, "t", Outcome.SUCCEEDED)


def test_nothing_is_open() -> None:
    assert first_unanswered([]) is None
    assert first_unanswered([(1, [Text("hi")]), (2, [call("a"), call("b")]), (3, [answer("b"), answer("a")])]) is None


def test_one_call_of_several_is_enough() -> None:
    log: list[tuple[int, list[Part]]] = [
        (4, [call("a"), answer("a")]),
        (5, [Text("x"), call("b"), call("c")]),
        (6, [answer("b")]),
        (7, [call("d")]),
    ]
    assert first_unanswered(log) == 5
