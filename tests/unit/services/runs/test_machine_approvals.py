"""The machine while somebody is asked."""

from services.messages.model import Approve, Decision, Deny, InputMessage, Outcome, Result, Text, ToolReturn
from services.runs.machine import DENIED_BY_CANCEL
from services.runs.model import ApprovalState, RunState, StopReason
from services.runs.protocol import (
    Answered,
    CallModel,
    Cancelled,
    CloseApproval,
    FinishTool,
    OpenApproval,
    Passivate,
    Phase,
    RunTools,
    StartTool,
)
from tests.unit.services.runs.machine_kit import Walk, asks, call, config, done, say, tool


def waiting(*calls: tuple[str, str]) -> Walk:
    settings = config(tool("risky"), tool("safe"), tool("mine"), rules=asks("risky"), client=["mine"])
    return Walk(settings).start().feed(call(*calls))


def answer(walk: Walk, *decisions: Decision, follow_up: tuple[InputMessage, ...] = ()) -> Walk:
    return walk.feed(Answered(walk.state.approval_id, decisions, follow_up))


def test_nothing_of_a_mixed_turn_runs_before_the_answer() -> None:
    walk = waiting(("c1", "risky"), ("c2", "safe"))
    assert walk.commit.state is RunState.AWAITING_APPROVAL
    assert walk.commit.stop_reason is StopReason.REQUIRES_APPROVAL
    assert walk.of(Passivate)
    assert not walk.of(RunTools)
    (opened,) = [record for record in walk.records if isinstance(record, OpenApproval)]
    assert [each.call.id for each in opened.calls] == ["c1"]


def test_after_the_answer_everything_runs() -> None:
    walk = answer(waiting(("c1", "risky"), ("c2", "safe")), Decision("c1", Approve()))
    assert walk.commit.state is RunState.RUNNING
    walk.feed(done("c1", "risky"), done("c2", "safe"))
    assert walk.roles == ["user", "assistant", "approval", "tool"]
    assert list(walk.returns()) == ["c1", "c2"]
    assert walk.of(CallModel)


def test_a_denied_call_does_not_run_and_says_why() -> None:
    walk = answer(waiting(("c1", "risky")), Decision("c1", Deny("too risky")))
    assert not [record for record in walk.records if isinstance(record, StartTool)]
    result = walk.returns()["c1"]
    assert result.outcome is Outcome.DENIED
    assert result.text == "Error: request to call tool denied. User reason: too risky"
    assert walk.of(CallModel)


def test_a_denial_without_a_reason_says_none() -> None:
    walk = answer(waiting(("c1", "risky")), Decision("c1", Deny()))
    assert walk.returns()["c1"].text.endswith("User reason: None")


def test_a_client_result_stands_for_the_call() -> None:
    given = ToolReturn("c1", "mine", Outcome.SUCCEEDED, (Text("42"),))
    walk = answer(waiting(("c1", "mine")), Decision("c1", Result(given)))
    assert walk.returns()["c1"] == given
    assert not [record for record in walk.records if isinstance(record, StartTool)]


def test_a_client_may_answer_for_a_server_tool() -> None:
    given = ToolReturn("c1", "risky", Outcome.SUCCEEDED, (Text("done it"),))
    walk = answer(waiting(("c1", "risky")), Decision("c1", Result(given)))
    assert walk.returns()["c1"].text == "done it"


def test_approving_a_client_tool_cannot_run_it() -> None:
    walk = answer(waiting(("c1", "mine")), Decision("c1", Approve()))
    assert walk.returns()["c1"].text == "Error: Tool not found: mine"


def test_returns_are_listed_client_results_denials_approved_then_the_rest() -> None:
    walk = waiting(("rest", "safe"), ("yes", "risky"), ("no", "risky"), ("own", "mine"))
    given = ToolReturn("own", "mine", Outcome.SUCCEEDED, (Text("42"),))
    answer(walk, Decision("yes", Approve()), Decision("no", Deny("x")), Decision("own", Result(given)))
    walk.feed(done("rest", "safe"), done("yes", "risky"))
    assert list(walk.returns()) == ["own", "no", "yes", "rest"]


def test_what_is_said_with_the_answer_joins_after_the_returns() -> None:
    more = InputMessage((Text("and hurry"),))
    walk = answer(waiting(("c1", "risky")), Decision("c1", Deny("x")), follow_up=(more,))
    assert walk.roles == ["user", "assistant", "approval", "tool", "user"]


def test_an_answer_to_another_approval_changes_nothing() -> None:
    walk = waiting(("c1", "risky"))
    walk.feed(Answered("approval-other", (Decision("c1", Approve()),)))
    assert walk.effects == ()
    assert walk.state.phase is Phase.WAITING


def test_a_second_answer_changes_nothing() -> None:
    walk = waiting(("c1", "risky"))
    approval_id = walk.state.approval_id
    answer(walk, Decision("c1", Approve()))
    walk.feed(Answered(approval_id, (Decision("c1", Deny("no")),)))
    assert walk.effects == ()


def test_cancel_while_waiting_denies_all_and_answers_the_rest() -> None:
    walk = waiting(("c1", "safe"), ("c2", "risky")).feed(Cancelled())
    assert walk.commit.state is RunState.CANCELLED
    (closed,) = [record for record in walk.records if isinstance(record, CloseApproval)]
    assert closed.state is ApprovalState.CANCELLED
    assert closed.decisions == (Decision("c2", Deny(DENIED_BY_CANCEL)),)
    text = f"Error: request to call tool denied. User reason: {DENIED_BY_CANCEL}"
    assert {call_id: result.text for call_id, result in walk.returns().items()} == {"c1": text, "c2": text}
    assert list(walk.returns()) == ["c2", "c1"]
    assert walk.roles == ["user", "assistant", "approval", "tool"]


def test_cancel_during_approved_tools_gives_each_call_one_outcome() -> None:
    walk = waiting(("c1", "risky"), ("c2", "safe"))
    answer(walk, Decision("c1", Approve()))
    walk.feed(done("c1", "risky"), Cancelled())
    outcomes = {call_id: result.outcome for call_id, result in walk.returns().items()}
    assert outcomes == {"c1": Outcome.SUCCEEDED, "c2": Outcome.CANCELLED}
    finished = [record.result.call_id for record in walk.records if isinstance(record, FinishTool)]
    assert sorted(finished) == ["c1", "c2"]


def test_the_run_goes_on_to_its_end_after_an_approval() -> None:
    walk = answer(waiting(("c1", "risky")), Decision("c1", Approve())).feed(done("c1", "risky"), say("done"))
    assert walk.commit.stop_reason is StopReason.END_TURN
    assert walk.state.step_no == 2
