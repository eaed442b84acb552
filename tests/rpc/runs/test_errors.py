"""What goes wrong is stored on the run and on the step, told in the stream, and leaves an agent that works."""

import pytest

from common.pb.bridle.v1.message_pb2 import ToolReturn
from common.pb.bridle.v1.run_pb2 import Step
from common.pb.bridle.v1.stop_reason_pb2 import (
    STOP_REASON_CONTEXT_WINDOW_OVERFLOW_IN_SYSTEM_PROMPT,
    STOP_REASON_ERROR,
    STOP_REASON_INSUFFICIENT_CREDITS,
    STOP_REASON_INVALID_LLM_RESPONSE,
    STOP_REASON_LLM_API_ERROR,
    STOP_REASON_MAX_STEPS,
    STOP_REASON_MAX_TOKENS_EXCEEDED,
    STOP_REASON_REFUSAL,
    StopReason,
)
from services.models.api import CallArguments, CallStarted, Finish, Finished, TextChunk
from services.models.errors import ModelErrorType
from tests.helpers.inprocess import (
    Run,
    World,
    assert_sound,
    assert_usable,
    kinds,
    rest_of,
    return_text,
    returns_of,
    text_of,
)
from tests.helpers.models import Gate, ProbeTool, call, calls, fail, say
from tests.rpc.runs.conftest import MakeWorld

REASONS = {
    ModelErrorType.INSUFFICIENT_CREDITS: STOP_REASON_INSUFFICIENT_CREDITS,
    ModelErrorType.EMPTY_RESPONSE: STOP_REASON_INVALID_LLM_RESPONSE,
    ModelErrorType.SYSTEM_PROMPT_OVERFLOW: STOP_REASON_CONTEXT_WINDOW_OVERFLOW_IN_SYSTEM_PROMPT,
}


@pytest.mark.parametrize("failure", list(ModelErrorType))
async def test_a_provider_that_fails(world: World, failure: ModelErrorType) -> None:
    agent = await world.make_agent()
    agent.model.will(fail(failure, message="the provider said no"))

    events = await rest_of(agent.stream("hi", background=True))

    run = events[-1].run_stopped.run
    assert run.state == Run.STATE_FAILED
    assert run.stop_reason == REASONS.get(failure, STOP_REASON_LLM_API_ERROR)
    assert (run.error.type, run.error.message, run.error.detail) == (failure.value, "the provider said no", "as told")
    assert run.HasField("stop_time")
    assert await world.run(run.id) == run
    (step,) = await world.steps(run.id)
    assert (step.status, step.stop_reason, step.error) == (Step.STATUS_FAILED, run.stop_reason, run.error)
    assert (await agent.get()).last_stop_reason == run.stop_reason
    assert [text_of(message) for message in await agent.log()] == ["hi"]
    await assert_usable(agent)


async def test_a_bug_is_an_internal_error_and_says_nothing_of_itself(make_world: MakeWorld) -> None:
    world = await make_world()
    agent = await world.make_agent()
    agent.model.will((RuntimeError("a secret of the server"),))

    run = (await agent.send("hi")).run

    assert (run.state, run.stop_reason) == (Run.STATE_FAILED, STOP_REASON_ERROR)
    assert run.error.type == "internal_error"
    assert "secret" not in str(run)
    await assert_usable(agent)


async def test_what_was_shown_before_a_failure_stays(world: World) -> None:
    agent = await world.make_agent()
    agent.model.will(fail(ModelErrorType.TIMEOUT, TextChunk("half an "), TextChunk("answer")))

    run = (await agent.send("hi")).run

    assert run.error.type == "llm_timeout"
    _, kept = await agent.log()
    assert (text_of(kept), kept.interrupted) == ("half an answer", True)
    await assert_usable(agent)


@pytest.mark.parametrize(
    ("turn", "reason", "error"),
    [
        pytest.param((), STOP_REASON_LLM_API_ERROR, "llm_error", id="broken off"),
        pytest.param((TextChunk("ha"),), STOP_REASON_LLM_API_ERROR, "llm_error", id="broken off in a word"),
        pytest.param(say(), STOP_REASON_INVALID_LLM_RESPONSE, "llm_empty_response", id="nothing"),
        pytest.param(
            (TextChunk("long"), Finished(Finish.LENGTH)), STOP_REASON_MAX_TOKENS_EXCEEDED, "llm_error", id="too long"
        ),
        pytest.param((TextChunk("no"), Finished(Finish.REFUSAL)), STOP_REASON_REFUSAL, "llm_error", id="refused"),
    ],
)
async def test_an_answer_that_is_none(world: World, turn: tuple[object, ...], reason: int, error: str) -> None:
    agent = await world.make_agent()
    agent.model.will(turn)  # type: ignore[arg-type]

    run = (await agent.send("hi")).run

    assert run.state == Run.STATE_FAILED
    assert StopReason.Name(run.stop_reason) == StopReason.Name(reason)  # type: ignore[arg-type]
    assert run.error.type == error
    await assert_usable(agent)


async def test_a_tool_that_fails_is_told_to_the_model(make_world: MakeWorld) -> None:
    broken = ProbeTool("broken", fails="the disk is full")
    world = await make_world(broken)
    agent = await world.make_agent(["broken"])
    agent.model.will(call("broken", "c1"), say("I see"))

    run = (await agent.send("go")).run

    assert run.state == Run.STATE_COMPLETED
    (returned,) = returns_of(await agent.log())
    assert (returned.outcome, return_text(returned)) == (ToolReturn.OUTCOME_FAILED, "Error: the disk is full")


@pytest.mark.parametrize(
    ("name", "arguments", "complaint"),
    [
        ("nothing", "{}", "Error: Tool not found: nothing"),
        ("probe", "{not json", "Error: the arguments are not a JSON object."),
        ("probe", "[1]", "Error: the arguments are not a JSON object."),
    ],
)
async def test_a_call_that_cannot_be_made(make_world: MakeWorld, name: str, arguments: str, complaint: str) -> None:
    probe = ProbeTool("probe")
    world = await make_world(probe)
    agent = await world.make_agent(["probe"])
    turn = (CallStarted(0, "c1", name), CallArguments(0, arguments), Finished(Finish.TOOL_CALLS))
    agent.model.will(turn, say("sorry"))

    run = (await agent.send("go")).run

    assert run.state == Run.STATE_COMPLETED
    assert probe.started == []
    (returned,) = returns_of(await agent.log())
    assert returned.outcome == ToolReturn.OUTCOME_FAILED
    assert return_text(returned).startswith(complaint)
    await assert_sound(agent)


async def test_a_long_result_is_cut(make_world: MakeWorld) -> None:
    wordy = ProbeTool("wordy", returns="x" * 100, return_char_limit=10)
    world = await make_world(wordy)
    agent = await world.make_agent(["wordy"])
    agent.model.will(call("wordy"))

    await agent.send("go")

    assert return_text(returns_of(await agent.log())[0]) == "x" * 10 + "... [truncated 90 chars]"


async def test_steps_are_limited(make_world: MakeWorld) -> None:
    probe = ProbeTool("probe")
    world = await make_world(probe)
    agent = await world.make_agent(["probe"])
    agent.model.will(*(call("probe") for _ in range(5)))

    run = (await agent.send("for ever", max_steps=3)).run

    assert (run.state, run.stop_reason, run.step_count) == (Run.STATE_COMPLETED, STOP_REASON_MAX_STEPS, 3)
    assert (len(agent.model.calls), len(probe.started)) == (3, 3)
    assert (await agent.get()).last_stop_reason == STOP_REASON_MAX_STEPS
    agent.model.forget()
    await assert_usable(agent)


async def test_a_failure_in_a_later_step_keeps_the_steps_before(make_world: MakeWorld) -> None:
    probe = ProbeTool("probe")
    world = await make_world(probe)
    agent = await world.make_agent(["probe"])
    agent.model.will(calls(("probe", "c1", {}), ("probe", "c2", {})), fail(ModelErrorType.RATE_LIMIT))

    run = (await agent.send("go")).run

    assert run.error.type == "llm_rate_limit"
    assert [step.status for step in await world.steps(run.id)] == [Step.STATUS_SUCCEEDED, Step.STATUS_FAILED]
    assert len(returns_of(await agent.log())) == 2
    await assert_usable(agent)


async def test_a_model_that_is_gone_fails_the_run(world: World) -> None:
    agent = await world.make_agent()
    hold = Gate()
    agent.model.will(say(hold, "first"))
    first = await agent.start("one")
    await hold.reached()
    second = await agent.start("two")
    world.models.remove(agent.model)
    hold.open()

    assert (await world.wait_for(first)).state == Run.STATE_COMPLETED
    failed = await world.wait_for(second)

    assert (failed.state, failed.error.type) == (Run.STATE_FAILED, "llm_bad_request")
    assert kinds(await world.events(second))[-1] == "run_stopped"
