"""The machine, when a context does not fit."""

import msgspec
import pytest

from services.agents.model import CompactionSettings
from services.messages.model import Text
from services.runs.machine import MOST_COMPACTIONS
from services.runs.model import RunError, RunState, StepStatus, StopReason, Trigger, Usage
from services.runs.protocol import (
    AddMessage,
    BeginStep,
    Broken,
    CallModel,
    Cancelled,
    Commit,
    Compact,
    Compacted,
    CompactionFailed,
    Config,
    EndStep,
    Input,
    ModelFailed,
    MoveFloor,
    Overflow,
    Phase,
    Recovered,
    Steered,
    Stop,
)
from tests.unit.services.runs.machine_kit import HELLO, Walk, call, config, done, say, tool

TOO_BIG = Overflow(RunError("context_window_exceeded", "too big"), StopReason.LLM_API_ERROR, Trigger.THRESHOLD)
SUMMARY = Compacted("so far", 7, 12, 4, Usage(input_tokens=100, output_tokens=10))
FAILED = CompactionFailed(
    RunError("llm_error", "no"), StopReason.LLM_API_ERROR, Trigger.THRESHOLD, again=True, usage=Usage(input_tokens=9)
)


def mode(name: str) -> Config:
    return msgspec.structs.replace(config(), compaction=CompactionSettings(mode=name))


def test_a_context_that_does_not_fit_is_compacted_and_asked_again() -> None:
    walk = Walk(config()).start()
    asked = walk.of(CallModel)
    phases = [walk.feed(TOO_BIG).state.phase]
    assert walk.effects == (Compact(1, Trigger.THRESHOLD, TOO_BIG.error),)

    phases.append(walk.feed(SUMMARY).state.phase)

    assert phases == [Phase.COMPACTING, Phase.MODEL]
    assert walk.roles == ["user", "summary"]
    assert walk.log[-1][1] == (Text("so far"),)
    added, moved = walk.commit.records
    assert isinstance(added, AddMessage)
    assert moved == MoveFloor(added.message.id, 7, 12, 4)
    # The same call: readers are told of no second step.
    assert walk.of(CallModel) == asked
    assert len([record for record in walk.records if isinstance(record, BeginStep)]) == 1


def test_what_a_summary_costs_is_in_the_step_and_in_the_run() -> None:
    walk = Walk(config()).start().feed(TOO_BIG, FAILED, SUMMARY, say("hi"))
    total = Usage(input_tokens=9 + 100 + 3, output_tokens=10 + 2)
    assert walk.state.usage == total
    (ended,) = [record for record in walk.records if isinstance(record, EndStep)]
    assert (ended.status, ended.detail.usage) == (StepStatus.SUCCEEDED, total)


def test_it_is_not_tried_for_ever() -> None:
    walk = Walk(config()).start()
    for attempt in range(1, MOST_COMPACTIONS + 1):
        walk.feed(TOO_BIG)
        assert walk.effects == (Compact(attempt, Trigger.THRESHOLD, TOO_BIG.error),)
        walk.feed(SUMMARY)
    walk.feed(TOO_BIG)
    assert walk.records[-1] == Stop(StopReason.LLM_API_ERROR, TOO_BIG.error)
    assert walk.commit.state is RunState.FAILED


def test_every_step_has_its_own_attempts() -> None:
    walk = Walk(config(tool("a"))).start().feed(TOO_BIG, SUMMARY, TOO_BIG, SUMMARY)
    walk.feed(call(("c1", "a")), done("c1", "a"), TOO_BIG)
    assert walk.effects == (Compact(1, Trigger.THRESHOLD, TOO_BIG.error),)


def test_a_summary_that_fails_is_tried_again_and_then_stops_the_run() -> None:
    walk = Walk(config()).start().feed(TOO_BIG)
    for attempt in range(2, MOST_COMPACTIONS + 1):
        walk.feed(FAILED)
        assert walk.effects == (Compact(attempt, Trigger.THRESHOLD, FAILED.error),)
    walk.feed(FAILED)
    assert walk.records[-1] == Stop(StopReason.LLM_API_ERROR, FAILED.error)
    assert "summary" not in walk.roles


def test_a_failure_that_would_come_again_is_not_tried_again() -> None:
    walk = Walk(config()).start().feed(TOO_BIG, msgspec.structs.replace(FAILED, again=False))
    assert walk.records[-1] == Stop(StopReason.LLM_API_ERROR, FAILED.error)


def test_the_mode_off_fails_at_once() -> None:
    walk = Walk(mode("off")).start().feed(TOO_BIG)
    assert walk.records[-1] == Stop(StopReason.LLM_API_ERROR, TOO_BIG.error)


def test_a_cancel_while_compacting_leaves_the_floor() -> None:
    walk = Walk(config()).start().feed(TOO_BIG, Cancelled(usage=Usage(input_tokens=50, estimated=True)))
    assert walk.records[-1] == Stop(StopReason.CANCELLED)
    assert not [record for record in walk.records if isinstance(record, MoveFloor)]
    assert walk.state.usage.input_tokens == 50
    assert walk.feed(SUMMARY).effects == ()


def test_what_breaks_while_compacting_fails_the_run() -> None:
    walk = Walk(config()).start().feed(TOO_BIG, Broken(RunError("internal_error", "x")))
    assert walk.commit.state is RunState.FAILED


def test_what_joins_while_compacting_comes_with_the_next_step() -> None:
    walk = Walk(config()).start().feed(TOO_BIG, Steered((HELLO,)), SUMMARY, say("hi"))
    assert walk.roles == ["user", "summary", "assistant", "user"]
    assert walk.of(CallModel)


def test_nothing_of_it_is_durable_before_it_is_done() -> None:
    """So that a new owner, who finds the run before its model call, makes that call again."""
    walk = Walk(config()).start()
    before = walk.state
    assert not [effect for effect in walk.feed(TOO_BIG).effects if isinstance(effect, Commit)]
    walk.state = before
    walk.feed(Recovered(2))
    assert walk.of(CallModel)


@pytest.mark.parametrize("late", [SUMMARY, FAILED])
def test_an_outcome_that_nobody_waits_for_changes_nothing(late: Input) -> None:
    walk = Walk(config()).start()
    state = walk.state
    assert walk.feed(late).state == state
    walk.feed(TOO_BIG)
    assert walk.feed(ModelFailed(TOO_BIG.error, StopReason.LLM_API_ERROR)).effects == ()
    assert walk.state.phase is Phase.COMPACTING
