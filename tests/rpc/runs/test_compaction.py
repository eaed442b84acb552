"""A conversation that no longer fits is summarised, cut where nothing is split, and goes on."""

from typing import Any

import pytest

from common.pb.bridle.v1.agent_pb2 import CompactionSettings
from common.pb.bridle.v1.model_pb2 import ModelSettings
from common.pb.bridle.v1.run_pb2 import CancelReceipt, Step
from common.pb.bridle.v1.run_service_pb2 import RunOptions
from common.pb.bridle.v1.stop_reason_pb2 import (
    STOP_REASON_CONTEXT_WINDOW_OVERFLOW_IN_SYSTEM_PROMPT,
    STOP_REASON_END_TURN,
    STOP_REASON_LLM_API_ERROR,
)
from services.context.summary import PROMPT
from services.messages.model import Role, Text, ToolCall, ToolReturn
from services.models import tokens
from services.models.api import ModelRequest
from services.models.errors import ModelErrorType
from services.runs.model import Usage
from tests.helpers.inprocess import AgentClient, Run, World, kinds, on_both, roles, text_of
from tests.helpers.models import Gate, ProbeTool, call, fail, say
from tests.rpc.runs.conftest import MakeWorld
from tests.rpc.runs.test_cancel import assert_gone_before, assert_receipt

# Of this window 250 are kept free for the answer, and 0.9 of the rest may be filled.
WINDOW = 1000
LIMIT = 675
LONG = "word " * 200


async def small_agent(world: World, tools: tuple[str, ...] = (), **fields: Any) -> AgentClient:
    """An agent whose model cannot be shown much."""
    return await world.make_agent(tools, model_settings=ModelSettings(context_window=WINDOW), **fields)


async def fill(agent: AgentClient, count: int = 3) -> None:
    """So many long messages, each with a short answer."""
    for number in range(count):
        assert (await agent.send(f"{number} {LONG}")).run.state == Run.STATE_COMPLETED


def summarises(request: ModelRequest) -> bool:
    return request.system.startswith(PROMPT)


def said(request: ModelRequest) -> list[str]:
    return [part.text for message in request.messages for part in message.parts if isinstance(part, Text)]


def metric(world: World, name: str, **labels: str) -> float:
    return world.node.registry.get_sample_value(name, labels) or 0.0


@on_both
async def test_what_does_not_fit_is_summarised_before_the_call(make_world: MakeWorld) -> None:
    world = await make_world()
    agent = await small_agent(world)
    await fill(agent)
    agent.model.will(say("they counted words"), say("four"))

    sent = await agent.send(f"3 {LONG}")

    assert sent.run.state == Run.STATE_COMPLETED
    assert text_of(sent.messages[-1]) == "four"
    summarising, asked = (made.request for made in agent.model.calls[3:])
    assert summarises(summarising)
    assert not summarising.tools
    assert "0 word" in said(summarising)[0]
    assert f"3 {LONG}" not in said(summarising)[0]
    assert asked.messages[0].role is Role.SUMMARY
    assert said(asked)[0] == "they counted words"
    assert said(asked)[-1] == f"3 {LONG}"
    assert all(tokens.of_request(made.request) <= LIMIT for made in agent.model.calls)

    events = await world.events(sent.run.id)
    assert kinds(events)[:5] == ["run_started", "message_added", "step_started", "message_added", "context_compacted"]
    compacted = events[4].context_compacted
    summary = events[3].message_added.message
    assert (compacted.message_id, compacted.messages_before) == (summary.id, 7)
    in_context = await agent.log(in_context=True)
    # The summary, what was kept, and the answer.
    assert len(in_context) == compacted.messages_after + 1
    assert {message.id for message in in_context} >= {summary.id}
    # Nothing is lost: the log has it all, and the summary.
    assert roles(await agent.log()) == ["user", "assistant"] * 3 + ["user", "summary", "assistant"]
    # Both calls are on the bill, of the step and of the run.
    assert (sent.run.usage.input_tokens, sent.run.usage.output_tokens) == (20, 10)
    (step,) = await world.steps(sent.run.id)
    assert (step.usage.input_tokens, step.usage.output_tokens) == (20, 10)
    assert metric(world, "bridle_compactions_total", trigger="threshold", outcome="done") == 1
    before = metric(world, "bridle_compaction_tokens_sum", when="before")
    assert before > LIMIT > metric(world, "bridle_compaction_tokens_sum", when="after") > 0


async def test_a_later_run_reads_the_same_context_from_the_database(make_world: MakeWorld) -> None:
    world = await make_world()
    agent = await small_agent(world)
    await fill(agent)
    agent.model.will(say("they counted words"), say("four"))
    await agent.send(f"3 {LONG}")

    await agent.send("and now?")

    assert said(agent.model.calls[-1].request) == ["they counted words", "ok", f"3 {LONG}", "four", "and now?"]


async def test_the_second_summary_is_told_of_the_first(make_world: MakeWorld) -> None:
    world = await make_world()
    agent = await small_agent(world)
    await fill(agent)
    agent.model.will(say("they counted words"))
    await fill(agent, 3)
    agent.model.will(say("they counted more words"))

    sent = await agent.send(f"6 {LONG}")

    assert sent.run.state == Run.STATE_COMPLETED
    summarising = [made.request for made in agent.model.calls if summarises(made.request)]
    assert len(summarising) == 2
    assert "they counted words" in said(summarising[1])[0]
    log = await agent.log()
    assert roles(log).count("summary") == 2
    in_context = roles(await agent.log(in_context=True))
    assert in_context.count("summary") == 1


async def test_a_provider_that_says_it_does_not_fit_is_believed(make_world: MakeWorld) -> None:
    world = await make_world()
    agent = await world.make_agent()
    await fill(agent)
    agent.model.will(fail(ModelErrorType.CONTEXT_WINDOW_EXCEEDED), say("they counted words"), say("four"))

    sent = await agent.send("how many?")

    assert text_of(sent.messages[-1]) == "four"
    assert said(agent.model.calls[-1].request)[0] == "they counted words"
    assert tokens.of_request(agent.model.calls[-1].request) < tokens.of_request(agent.model.calls[3].request)
    assert metric(world, "bridle_compactions_total", trigger="provider", outcome="done") == 1


async def test_it_is_not_tried_for_ever(make_world: MakeWorld) -> None:
    world = await make_world()
    agent = await world.make_agent()
    await fill(agent, 8)
    for _ in range(3):
        agent.model.will(fail(ModelErrorType.CONTEXT_WINDOW_EXCEEDED), say("short"))
    agent.model.will(fail(ModelErrorType.CONTEXT_WINDOW_EXCEEDED))

    sent = await agent.send("how many?")

    assert sent.run.state == Run.STATE_FAILED
    assert (sent.run.stop_reason, sent.run.error.type) == (STOP_REASON_LLM_API_ERROR, "context_window_exceeded")
    (step,) = await world.steps(sent.run.id)
    assert step.status == Step.STATUS_FAILED
    agent.model.forget()
    assert (await agent.send("and now?")).run.state == Run.STATE_COMPLETED


async def test_calls_stay_with_their_returns(make_world: MakeWorld) -> None:
    tool = ProbeTool("look", returns=LONG)
    world = await make_world(tool)
    agent = await small_agent(world, ("look",))
    agent.model.will(*(call("look", f"c{number}") for number in range(4)), say("it went on"), call("look", "c4"))
    agent.model.will(say("done"))

    sent = await agent.send("look often")

    assert sent.run.state == Run.STATE_COMPLETED, sent.run.error
    for made in agent.model.calls:
        parts = [part for message in made.request.messages for part in message.parts]
        called = [part.id for part in parts if isinstance(part, ToolCall)]
        assert called == [part.call_id for part in parts if isinstance(part, ToolReturn)]
        assert tokens.of_request(made.request) <= LIMIT
    assert len(tool.started) == 5
    assert roles(await agent.log()).count("summary") == 1


async def test_a_return_that_is_too_long_by_itself_is_summarised_too(make_world: MakeWorld) -> None:
    world = await make_world(ProbeTool("look", returns="word " * 3000))
    agent = await small_agent(world, ("look",))
    agent.model.will(call("look", "c1"), say("it returned words"), say("done"))

    sent = await agent.send("look")

    assert sent.run.state == Run.STATE_COMPLETED, sent.run.error
    summarising, asked = (made.request for made in agent.model.calls[1:])
    assert "characters left out" in said(summarising)[0]
    assert tokens.of_request(summarising) <= LIMIT
    assert said(asked) == ["it returned words"]


async def test_the_mode_all_keeps_only_the_current_turn(make_world: MakeWorld) -> None:
    world = await make_world()
    agent = await small_agent(world, compaction=CompactionSettings(mode=CompactionSettings.MODE_ALL))
    await fill(agent)
    agent.model.will(say("they counted words"), say("four"))

    await agent.send(f"3 {LONG}")

    assert said(agent.model.calls[-1].request) == ["they counted words", f"3 {LONG}"]


async def test_the_mode_off_fails(make_world: MakeWorld) -> None:
    world = await make_world()
    agent = await small_agent(world, compaction=CompactionSettings(mode=CompactionSettings.MODE_OFF))
    await fill(agent)

    run = (await agent.send(f"3 {LONG}")).run

    assert (run.state, run.stop_reason) == (Run.STATE_FAILED, STOP_REASON_LLM_API_ERROR)
    assert run.error.type == "context_window_exceeded"
    assert len(agent.model.calls) == 3


async def test_a_system_prompt_that_leaves_no_room_has_its_own_stop_reason(make_world: MakeWorld) -> None:
    world = await make_world()
    agent = await small_agent(world, system="word " * 1000)

    run = (await agent.send("hello")).run

    assert run.state == Run.STATE_FAILED
    assert run.stop_reason == STOP_REASON_CONTEXT_WINDOW_OVERFLOW_IN_SYSTEM_PROMPT
    assert run.error.type == "context_window_overflow_in_system_prompt"
    assert agent.model.calls == []


async def test_a_last_message_that_is_too_long_fails_and_wedges_nothing(make_world: MakeWorld) -> None:
    world = await make_world()
    agent = await small_agent(world)
    await fill(agent, 1)

    run = (await agent.send("word " * 1000)).run
    assert (run.state, run.error.type) == (Run.STATE_FAILED, "context_window_exceeded")
    assert len(agent.model.calls) == 1

    # With something behind it, it is old enough to be summarised.
    agent.model.will(say("somebody pasted a lot"), say("sorry"))
    assert text_of((await agent.send("hello?")).messages[-1]) == "sorry"
    assert said(agent.model.calls[-1].request) == ["somebody pasted a lot", "hello?"]


async def test_another_model_and_another_prompt_can_summarise(make_world: MakeWorld) -> None:
    world = await make_world()
    writer = world.models.make()
    compaction = CompactionSettings(model=writer.handle, prompt="Be brief.", keep=0.1)
    agent = await small_agent(world, compaction=compaction)
    await fill(agent)
    writer.will(say("they counted words", usage=Usage(7, 3)))

    sent = await agent.send(f"3 {LONG}")

    (made,) = writer.calls
    assert made.request.system.startswith("Be brief.")
    assert made.request.settings.context_window is None
    assert (sent.run.usage.input_tokens, sent.run.usage.output_tokens) == (17, 8)
    # Less was to stay: not even the answer before.
    assert said(agent.model.calls[-1].request) == ["they counted words", f"3 {LONG}"]


@pytest.mark.parametrize(
    ("kind", "attempts", "reason"),
    [
        (ModelErrorType.ERROR, 3, STOP_REASON_LLM_API_ERROR),
        (ModelErrorType.AUTHENTICATION, 1, STOP_REASON_LLM_API_ERROR),
    ],
)
async def test_a_summary_that_cannot_be_had_stops_the_run(
    make_world: MakeWorld, kind: ModelErrorType, attempts: int, reason: int
) -> None:
    world = await make_world()
    agent = await small_agent(world)
    await fill(agent)
    agent.model.will(*(fail(kind) for _ in range(attempts)))

    run = (await agent.send(f"3 {LONG}")).run

    assert (run.state, run.stop_reason, run.error.type) == (Run.STATE_FAILED, reason, kind.value)
    assert [summarises(made.request) for made in agent.model.calls[3:]] == [True] * attempts
    assert roles(await agent.log()).count("summary") == 0
    assert metric(world, "bridle_compactions_total", trigger="threshold", outcome="failed") == attempts
    # The next message finds the provider well again.
    agent.model.will(say("they counted words"), say("five"))
    assert (await agent.send("hello")).run.stop_reason == STOP_REASON_END_TURN


@on_both
async def test_a_cancel_while_compacting_closes_the_call_and_changes_nothing(make_world: MakeWorld) -> None:
    world = await make_world()
    agent = await small_agent(world)
    await fill(agent)
    before = await agent.log(in_context=True)
    hold = Gate()
    agent.model.will(say("they ", hold, "never"))
    run_id = await agent.start(f"3 {LONG}")
    await hold.reached()

    cancelled = await world.cancel(run_id)

    assert agent.model.calls[-1].ended == "closed"
    assert_receipt(cancelled, CancelReceipt.PHASE_COMPACTING, "model_closed_time")
    assert_gone_before(agent.model.calls[-1].ended_at, cancelled.cancel.model_closed_time)
    after = await agent.log(in_context=True)
    assert [message.id for message in after[:-1]] == [message.id for message in before]
    assert roles(after)[-1] == "user"
    # What was spent on the summary is on the bill, as far as anybody can tell.
    assert cancelled.usage.estimated
    assert cancelled.usage.input_tokens > 200
    assert metric(world, "bridle_compactions_total", trigger="threshold", outcome="cancelled") == 1
    agent.model.will(say("they counted words"), say("five"))
    assert text_of((await agent.send("hello")).messages[-1]) == "five"


async def test_a_message_that_joins_while_compacting_is_not_lost(make_world: MakeWorld) -> None:
    world = await make_world()
    agent = await small_agent(world)
    await fill(agent)
    hold = Gate()
    agent.model.will(say("they ", hold, "counted"), say("four"), say("five"))
    run_id = await agent.start(f"3 {LONG}")
    await hold.reached()
    await agent.create("one more thing", on_busy=RunOptions.ON_BUSY_STEER)
    hold.open()

    assert (await world.wait_for(run_id)).state == Run.STATE_COMPLETED
    assert said(agent.model.calls[-1].request)[-1] == "one more thing"


@on_both
async def test_a_server_that_goes_away_while_compacting_is_followed_by_one_that_goes_on(make_world: MakeWorld) -> None:
    world = await make_world()
    agent = await small_agent(world)
    await fill(agent)
    hold = Gate()
    agent.model.will(say("they ", hold, "never"))
    run_id = await agent.start(f"3 {LONG}")
    await hold.reached()
    await make_world.stop()

    assert agent.model.calls[-1].ended == "closed"

    world = await make_world()
    world.models.make().will(say("they counted words"), say("four"))

    assert (await world.wait_for(run_id)).state == Run.STATE_COMPLETED
    assert [text_of(message) for message in await world.log(run_id=run_id)][1:] == ["they counted words", "four"]
