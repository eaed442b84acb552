"""The machine, one walk at a time."""

from datetime import timedelta

import msgspec
import pytest

from services.agents.model import RequiredBeforeExit, RunFirst, Terminal, ToolRule
from services.messages.model import Body, InputMessage, Outcome, Reasoning, Text, ToolCall
from services.models.api import Finish as ModelFinish
from services.runs.model import RunError, RunState, StepStatus, StopReason, Usage
from services.runs.protocol import (
    AddMessage,
    Broken,
    CallModel,
    Cancelled,
    EndStep,
    Finish,
    FinishTool,
    ModelFailed,
    ModelTurn,
    Phase,
    Recovered,
    RunTools,
    StartTool,
    State,
    Steered,
    Stop,
)
from services.tools.api import CrashPolicy
from tests.unit.services.runs.machine_kit import HELLO, RUN, Walk, call, config, done, say, tool


def test_a_plain_answer_ends_the_turn() -> None:
    walk = Walk(config()).start()
    assert walk.of(CallModel)
    states = [walk.commit.state, walk.feed(say("hi")).commit.state]
    assert states == [RunState.RUNNING, RunState.COMPLETED]
    assert walk.commit.stop_reason is StopReason.END_TURN
    assert walk.roles == ["user", "assistant"]
    assert walk.of(Finish)
    assert walk.state.usage == Usage(input_tokens=3, output_tokens=2)


def test_the_turn_is_written_before_its_tools_run() -> None:
    walk = Walk(config(tool("a"))).start().feed(call(("c1", "a")))
    kinds = [type(record).__name__ for record in walk.commit.records]
    assert kinds == ["AddMessage", "StartTool"]
    assert [type(effect).__name__ for effect in walk.effects] == ["Commit", "RunTools"]


def test_tools_run_one_after_the_other_unless_they_may_run_side_by_side() -> None:
    walk = Walk(config(tool("a"), tool("b"))).start().feed(call(("c1", "a"), ("c2", "b")))
    (ran,) = walk.of(RunTools)
    assert isinstance(ran, RunTools)
    assert [each.id for each in ran.calls] == ["c1"]
    walk.feed(done("c1", "a"))
    (ran,) = walk.of(RunTools)
    assert isinstance(ran, RunTools)
    assert [each.id for each in ran.calls] == ["c2"]

    side_by_side = Walk(config(tool("a", parallel=True), tool("b", parallel=True))).start()
    side_by_side.feed(call(("c1", "a"), ("c2", "b")))
    (ran,) = side_by_side.of(RunTools)
    assert isinstance(ran, RunTools)
    assert [each.id for each in ran.calls] == ["c1", "c2"]


def test_each_outcome_is_written_as_it_lands_and_the_last_one_goes_on() -> None:
    walk = Walk(config(tool("a", parallel=True), tool("b", parallel=True))).start()
    walk.feed(call(("c1", "a"), ("c2", "b")), done("c2", "b"))
    assert [type(record) for record in walk.commit.records] == [FinishTool]
    assert not walk.of(CallModel)
    walk.feed(done("c1", "a"))
    assert walk.of(CallModel)
    assert walk.roles == ["user", "assistant", "tool"]
    assert set(walk.returns()) == {"c1", "c2"}


def test_an_outcome_counts_once() -> None:
    walk = Walk(config(tool("a", parallel=True), tool("b", parallel=True))).start()
    walk.feed(call(("c1", "a"), ("c2", "b")), done("c1", "a", "first"), done("c1", "a", "second"))
    assert walk.effects == ()
    walk.feed(done("c2", "b"))
    assert walk.returns()["c1"].text == "first"


def test_max_steps_completes_the_run() -> None:
    walk = Walk(config(tool("a"), max_steps=1)).start().feed(call(("c1", "a")), done("c1", "a"))
    assert walk.commit.stop_reason is StopReason.MAX_STEPS
    assert walk.commit.state is RunState.COMPLETED
    assert set(walk.returns()) == {"c1"}


def test_cancel_wins_over_max_steps() -> None:
    walk = Walk(config(tool("a"), max_steps=1)).start().feed(call(("c1", "a")), Cancelled(), done("c1", "a"))
    assert walk.state.phase is Phase.DONE
    assert walk.effects == ()
    (stop,) = [record for record in walk.records if isinstance(record, Stop)]
    assert stop.reason is StopReason.CANCELLED


def test_extra_calls_are_dropped_when_the_agent_takes_one_at_a_time() -> None:
    walk = Walk(config(tool("a"), tool("b"), parallel=False)).start().feed(call(("c1", "a"), ("c2", "b")))
    (message,) = [r.message for r in walk.commit.records if isinstance(r, AddMessage)]
    assert [part.id for part in message.body.parts if isinstance(part, ToolCall)] == ["c1"]


@pytest.mark.parametrize(("arguments", "complaint"), [("not json", "not a JSON object"), ("[1]", "not a JSON object")])
def test_broken_arguments_are_an_error_return(arguments: str, complaint: str) -> None:
    walk = Walk(config(tool("a"))).start().feed(call(("c1", "a"), arguments=arguments))
    assert walk.of(CallModel)
    assert walk.returns()["c1"].outcome is Outcome.FAILED
    assert complaint in walk.returns()["c1"].text


def test_an_unknown_tool_is_an_error_return() -> None:
    walk = Walk(config(tool("a"))).start().feed(call(("c1", "nope")))
    assert walk.returns()["c1"].text == "Error: Tool not found: nope"


def test_calls_without_ids_or_with_the_same_one_are_told_apart() -> None:
    walk = Walk(config(tool("a", parallel=True))).start().feed(call(("", "a"), ("same", "a"), ("same", "a")))
    (ran,) = walk.of(RunTools)
    assert isinstance(ran, RunTools)
    assert len({each.id for each in ran.calls}) == 3
    assert all(each.id for each in ran.calls)


@pytest.mark.parametrize(
    ("turn", "reason"),
    [
        (ModelTurn((Text("cut"),), ModelFinish.LENGTH), StopReason.MAX_TOKENS_EXCEEDED),
        (ModelTurn((Text("no"),), ModelFinish.REFUSAL), StopReason.REFUSAL),
        (ModelTurn((), ModelFinish.STOP), StopReason.INVALID_LLM_RESPONSE),
        (ModelTurn((Text(""),), ModelFinish.STOP), StopReason.INVALID_LLM_RESPONSE),
        (ModelTurn((Text("no call"),), ModelFinish.STOP, forced=True), StopReason.NO_TOOL_CALL),
    ],
)
def test_turns_that_are_no_answer_fail_the_run(turn: ModelTurn, reason: StopReason) -> None:
    walk = Walk(config()).start().feed(turn)
    assert walk.commit.stop_reason is reason
    assert walk.commit.state is RunState.FAILED
    assert walk.commit.error is not None
    (ended,) = [record for record in walk.records if isinstance(record, EndStep)]
    assert ended.status is StepStatus.FAILED
    assert ended.detail.error == walk.commit.error


def test_reasoning_is_kept_with_the_turn() -> None:
    walk = Walk(config()).start()
    walk.feed(ModelTurn((Reasoning("hm", signature="s"), Text("hi")), ModelFinish.STOP))
    assert walk.log[-1][1] == (Reasoning("hm", signature="s"), Text("hi"))


def test_a_failed_call_keeps_what_was_seen_and_says_why() -> None:
    error = RunError("llm_timeout", "late", "detail")
    walk = Walk(config()).start()
    walk.feed(ModelFailed(error, StopReason.LLM_API_ERROR, (Text("par"),), Usage(output_tokens=1, estimated=True)))
    assert walk.commit.error == error
    message = [r.message for r in walk.records if isinstance(r, AddMessage)][-1]
    assert message.body == Body((Text("par"),), interrupted=True)
    assert walk.state.usage.estimated


def test_a_terminal_tool_stops_the_run() -> None:
    walk = Walk(config(tool("a"), rules=[Terminal("a")])).start().feed(call(("c1", "a")), done("c1", "a"))
    assert walk.commit.stop_reason is StopReason.TOOL_RULE
    assert walk.commit.state is RunState.COMPLETED


def test_a_required_tool_is_asked_for_before_the_end() -> None:
    rules = [RequiredBeforeExit("a")]
    walk = Walk(config(tool("a"), rules=rules)).start().feed(say("bye"))
    assert walk.of(CallModel)
    assert walk.log[-1][1] == (Text("ToolRuleViolated: You must call a at least once to exit the loop."),)
    walk.feed(call(("c1", "a")), done("c1", "a"), say("bye"))
    assert walk.commit.stop_reason is StopReason.END_TURN


def test_a_terminal_tool_does_not_excuse_a_required_one() -> None:
    rules: list[ToolRule] = [Terminal("a"), RequiredBeforeExit("b")]
    walk = Walk(config(tool("a"), tool("b"), rules=rules)).start().feed(call(("c1", "a")), done("c1", "a"))
    assert walk.of(CallModel)


def test_a_disallowed_call_is_answered_and_not_made() -> None:
    walk = Walk(config(tool("a"), tool("b"), rules=[RunFirst("a")])).start()
    (asked,) = walk.of(CallModel)
    assert isinstance(asked, CallModel)
    assert (asked.tool_names, asked.forced) == (("a",), True)
    walk.feed(call(("c1", "b")))
    assert not [record for record in walk.records if isinstance(record, StartTool)]
    assert walk.returns()["c1"].text.startswith("[ToolConstraintError] Cannot call b, valid tools include:")


def test_a_prefill_that_does_not_fit_stops_the_run() -> None:
    rules = [RunFirst("a", args={"x": 1})]
    walk = Walk(config(tool("a"), rules=rules)).start().feed(call(("c1", "a"), arguments="[]"))
    assert walk.commit.stop_reason is StopReason.INVALID_TOOL_CALL
    assert set(walk.returns()) == {"c1"}


def test_steering_joins_before_the_next_model_call() -> None:
    more = InputMessage((Text("also this"),))
    walk = Walk(config(tool("a"))).start().feed(call(("c1", "a")), Steered((more,)))
    assert walk.effects == ()
    walk.feed(done("c1", "a"))
    assert walk.roles == ["user", "assistant", "tool", "user"]
    assert walk.of(CallModel)


def test_steering_at_the_end_of_a_turn_keeps_the_run_going() -> None:
    walk = Walk(config()).start().feed(Steered((HELLO,)), say("hi"))
    assert walk.commit.state is RunState.RUNNING
    assert walk.roles == ["user", "assistant", "user"]


def test_what_joined_a_run_that_stops_is_still_in_the_log() -> None:
    walk = Walk(config()).start().feed(Steered((HELLO,)), Cancelled())
    assert walk.commit.state is RunState.CANCELLED
    assert walk.roles == ["user", "user"]


def test_nothing_happens_after_the_end() -> None:
    walk = Walk(config()).start().feed(say("hi"))
    state = walk.state
    walk.feed(say("again"), Cancelled(), Steered((HELLO,)), Broken(RunError("internal_error", "x")), Recovered(9))
    assert (walk.state, walk.effects) == (state, ())


def test_a_model_call_is_repeated_by_a_new_owner_as_another_message() -> None:
    walk = Walk(config()).start()
    first = walk.state.message_id
    walk.feed(Recovered(2))
    assert walk.of(CallModel)
    assert walk.state.message_id != first
    assert walk.state.step_no == 1


@pytest.mark.parametrize(
    ("policy", "outcome"), [(CrashPolicy.NEVER, Outcome.UNKNOWN), (CrashPolicy.RETRY, None), (CrashPolicy.ASK, None)]
)
def test_calls_that_were_running_at_a_crash_follow_their_policy(policy: CrashPolicy, outcome: Outcome | None) -> None:
    walk = Walk(config(tool("a", crash=policy))).start().feed(call(("c1", "a")), Recovered(2))
    if policy is CrashPolicy.RETRY:
        (ran,) = walk.of(RunTools)
        assert isinstance(ran, RunTools)
        assert ran.calls[0].id == "c1"
    elif policy is CrashPolicy.ASK:
        assert walk.commit.state is RunState.AWAITING_APPROVAL
    else:
        assert walk.returns()["c1"].outcome is outcome
        assert walk.of(CallModel)


def test_calls_that_had_not_started_at_a_crash_start() -> None:
    walk = Walk(config(tool("a"), tool("b"))).start().feed(call(("c1", "a"), ("c2", "b")), Recovered(2))
    (ran,) = walk.of(RunTools)
    assert isinstance(ran, RunTools)
    assert [each.id for each in ran.calls] == ["c2"]


@pytest.mark.parametrize("calls", [(), (("c1", "a"),)])
def test_whatever_breaks_every_call_has_an_outcome(calls: tuple[tuple[str, str], ...]) -> None:
    walk = Walk(config(tool("a"))).start()
    if calls:
        walk.feed(call(*calls))
    walk.feed(Broken(RunError("internal_error", "x")))
    assert walk.commit.state is RunState.FAILED
    assert walk.commit.stop_reason is StopReason.ERROR
    assert set(walk.returns()) == {call_id for call_id, _ in calls}


def test_the_state_survives_its_own_snapshot() -> None:
    walk = Walk(config(tool("a"))).start().feed(call(("c1", "a"), text="hm"))
    kept = msgspec.json.decode(msgspec.json.encode(walk.state), type=State)
    assert kept == walk.state


def test_the_approval_time_limit_is_part_of_the_commit_that_asks() -> None:
    limited = msgspec.structs.replace(config(tool("a"), client=["a"]), approval_ttl=timedelta(seconds=5))
    walk = Walk(limited).start().feed(call(("c1", "a")))
    assert walk.commit.approval_ttl == timedelta(seconds=5)


def test_ids_are_the_same_for_the_same_walk() -> None:
    assert Walk(config()).start().state == Walk(config()).start().state
    assert Walk(config()).start().state.run_id == RUN
