"""Approval questions and their answers."""

import io

import pytest

from common.pb.bridle.v1 import approval_pb2, message_pb2
from services.chat.prompts import Keyboard, ask, decide
from services.chat.screen import Screen


def call(call_id: str = "call-1", *, client_side: bool = False) -> approval_pb2.ApprovalCall:
    """A call that waits."""
    return approval_pb2.ApprovalCall(
        call=message_pb2.ToolCall(id=call_id, name="roll_dice", arguments='{"sides": 6}'), client_side=client_side
    )


@pytest.mark.parametrize("answer", ["a", "A", "approve", " yes "])
def test_approve(answer: str) -> None:
    decision = decide(call(), answer)
    assert decision is not None
    assert decision.tool_call_id == "call-1"
    assert decision.WhichOneof("verdict") == "approve"


@pytest.mark.parametrize(
    ("answer", "reason"), [("d", ""), ("deny", ""), ("d too risky", "too risky"), ("No  not now", "not now")]
)
def test_deny(answer: str, reason: str) -> None:
    decision = decide(call(), answer)
    assert decision is not None
    assert decision.WhichOneof("verdict") == "deny"
    assert decision.deny.reason == reason


def test_a_client_side_call_is_answered_with_its_result() -> None:
    decision = decide(call(client_side=True), "r the answer is 42")
    assert decision is not None
    assert decision.result.outcome == message_pb2.ToolReturn.OUTCOME_SUCCEEDED
    assert decision.result.tool_call_id == "call-1"
    assert decision.result.content[0].text.text == "the answer is 42"


@pytest.mark.parametrize(("answer", "client_side"), [("", False), ("maybe", False), ("r 42", False), ("a", True)])
def test_an_answer_that_does_not_fit_means_nothing(answer: str, client_side: bool) -> None:
    assert decide(call(client_side=client_side), answer) is None


def test_a_pipe_answers_line_by_line_and_may_correct_itself() -> None:
    err = io.StringIO()
    screen = Screen(io.StringIO(), err)
    keyboard = Keyboard(io.StringIO("what?\na\nd no dice\n"), screen, interactive=False)
    approval = approval_pb2.Approval(calls=[call("call-1"), call("call-2")])

    first, second = ask(approval, keyboard, screen)

    assert (first.tool_call_id, first.WhichOneof("verdict")) == ("call-1", "approve")
    assert (second.tool_call_id, second.deny.reason) == ("call-2", "no dice")
    assert "please answer" in err.getvalue()


def test_nobody_to_ask() -> None:
    screen = Screen(io.StringIO(), io.StringIO())
    keyboard = Keyboard(io.StringIO("a\n"), screen, interactive=False)
    with pytest.raises(EOFError):
        ask(approval_pb2.Approval(calls=[call("call-1"), call("call-2")]), keyboard, screen)
