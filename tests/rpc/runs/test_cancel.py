"""Stop means stop: a cancel in every phase of a run, what it leaves behind, and its receipt."""

from datetime import UTC, datetime

from google.protobuf.timestamp_pb2 import Timestamp

from common.pb.bridle.v1.message_pb2 import ToolReturn
from common.pb.bridle.v1.run_pb2 import CancelReceipt, Step
from common.pb.bridle.v1.stop_reason_pb2 import (
    STOP_REASON_CANCELLED,
    STOP_REASON_END_TURN,
    STOP_REASON_REQUIRES_APPROVAL,
)
from services.models.api import CallArguments, CallStarted, TextChunk
from tests.helpers.inprocess import (
    Run,
    World,
    assert_sound,
    assert_usable,
    calls_of,
    kinds,
    on_both,
    read_until,
    rest_of,
    return_text,
    returns_of,
    roles,
    text_of,
)
from tests.helpers.models import Gate, ProbeTool, call, calls, say
from tests.rpc.runs.conftest import MakeWorld

DENIAL = "Error: request to call tool denied. User reason: The user cancelled the request, so the tool call was denied."


def assert_receipt(run: Run, phase: "CancelReceipt.Phase.ValueType", *stages: str) -> None:
    """The stages that had to happen have times, in order; the others have none."""
    assert run.state == Run.STATE_CANCELLED
    assert run.stop_reason == STOP_REASON_CANCELLED
    receipt = run.cancel
    assert CancelReceipt.Phase.Name(receipt.phase) == CancelReceipt.Phase.Name(phase)
    optional = {"model_closed_time", "tools_stopped_time"}
    for stage in optional:
        assert receipt.HasField(stage) == (stage in stages), stage  # type: ignore[arg-type]
    times = [receipt.request_time, receipt.seen_time, *(getattr(receipt, s) for s in stages), receipt.terminal_time]
    moments = [time.ToNanoseconds() for time in times]
    assert all(moments)
    assert moments == sorted(moments)


def assert_gone_before(moment: datetime | None, stage: Timestamp) -> None:
    """The receipt does not say that something is gone before it is."""
    assert moment is not None
    assert moment <= stage.ToDatetime(tzinfo=UTC)


@on_both
async def test_a_queued_run_is_cancelled_at_once_and_leaves_nothing(make_world: MakeWorld) -> None:
    world = await make_world()
    agent = await world.make_agent()
    hold = Gate()
    agent.model.will(say("fir", hold, "st"))
    first = await agent.start("one")
    await hold.reached()
    second = await agent.start("two")

    cancelled = await world.cancel(second)

    assert_receipt(cancelled, CancelReceipt.PHASE_QUEUED)
    assert not cancelled.HasField("start_time")
    assert await world.log(run_id=second) == []
    assert kinds(await world.events(second)) == ["run_stopped"]
    hold.open()
    assert (await world.wait_for(first)).state == Run.STATE_COMPLETED
    assert [text_of(message) for message in await agent.log()] == ["one", "first"]
    assert len(agent.model.calls) == 1


async def test_a_cancel_before_the_first_token_closes_the_connection(make_world: MakeWorld) -> None:
    world = await make_world()
    agent = await world.make_agent()
    hold = Gate()
    agent.model.will(say(hold, "never"))
    run_id = await agent.start("hello")
    await hold.reached()

    cancelled = await world.cancel(run_id)

    assert agent.model.calls[0].ended == "closed"
    assert_receipt(cancelled, CancelReceipt.PHASE_FIRST_TOKEN, "model_closed_time")
    assert_gone_before(agent.model.calls[0].ended_at, cancelled.cancel.model_closed_time)
    assert roles(await agent.log()) == ["user"]
    (step,) = await world.steps(run_id)
    assert step.status == Step.STATUS_CANCELLED
    assert step.stop_reason == STOP_REASON_CANCELLED
    assert (await agent.get()).last_stop_reason == STOP_REASON_CANCELLED
    await assert_usable(agent)


@on_both
async def test_a_cancel_while_streaming_keeps_what_was_seen(make_world: MakeWorld) -> None:
    world = await make_world()
    agent = await world.make_agent()
    hold = Gate()
    agent.model.will(say("Hel", "lo ", hold, "world"))
    stream = agent.stream("hi")
    seen = await read_until(stream, "text_delta", 2)
    run_id = (await world.log(agent_id=agent.id))[0].run_id

    cancelled = await world.cancel(run_id)
    seen += await rest_of(stream)

    assert agent.model.calls[0].ended == "closed"
    assert_receipt(cancelled, CancelReceipt.PHASE_STREAMING, "model_closed_time")
    assert kinds(seen).count("run_stopped") == 1
    assert seen[-1].run_stopped.run.state == Run.STATE_CANCELLED
    asked, kept = await agent.log()
    assert text_of(asked) == "hi"
    assert (text_of(kept), kept.interrupted) == ("Hello ", True)
    assert "".join(event.text_delta.text for event in seen) == "Hello "
    assert kept.id == seen[-1 - kinds(seen)[::-1].index("message_added")].message_added.message.id
    await assert_usable(agent)


async def test_the_usage_of_a_cut_call_is_estimated(world: World) -> None:
    agent = await world.make_agent()
    hold = Gate()
    agent.model.will(say("some words that cost", hold))
    stream = agent.stream("hi there, how are you?")
    await read_until(stream, "text_delta")

    (run_id,) = {message.run_id for message in await agent.log()}
    cancelled = await world.cancel(run_id)

    assert cancelled.usage.estimated
    assert cancelled.usage.input_tokens > 0
    assert cancelled.usage.output_tokens > 0
    await rest_of(stream)


async def test_a_half_written_tool_call_is_dropped(make_world: MakeWorld) -> None:
    probe, hold = ProbeTool("probe"), Gate()
    world = await make_world(probe)
    agent = await world.make_agent(["probe"])
    agent.model.will((TextChunk("let me see"), CallStarted(0, "c1", "probe"), CallArguments(0, '{"a"'), hold))
    run_id = await agent.start("go")
    await hold.reached()

    await world.cancel(run_id)

    assert probe.started == []
    assert calls_of(await agent.log()) == []
    assert [text_of(message) for message in await agent.log()] == ["go", "let me see"]
    await assert_usable(agent)


@on_both
async def test_a_cancel_in_a_tool_stops_the_tool(make_world: MakeWorld) -> None:
    slow = ProbeTool("slow", gate=Gate())
    world = await make_world(slow)
    agent = await world.make_agent(["slow"])
    agent.model.will(call("slow", "c1"))
    run_id = await agent.start("go")
    await slow.gate.reached()

    cancelled = await world.cancel(run_id)

    assert (len(slow.cancelled_at), slow.finished) == (1, 0)
    assert_receipt(cancelled, CancelReceipt.PHASE_TOOLS, "tools_stopped_time")
    assert_gone_before(slow.cancelled_at[0], cancelled.cancel.tools_stopped_time)
    (returned,) = returns_of(await agent.log())
    assert (returned.tool_call_id, returned.outcome) == ("c1", ToolReturn.OUTCOME_CANCELLED)
    assert len(agent.model.calls) == 1
    await assert_usable(agent)


async def test_tools_that_had_finished_keep_their_results(make_world: MakeWorld) -> None:
    quick, slow = ProbeTool("quick", parallel=True), ProbeTool("slow", gate=Gate(), parallel=True)
    world = await make_world(quick, slow)
    agent = await world.make_agent(["quick", "slow"])
    agent.model.will(calls(("quick", "c1", {}), ("slow", "c2", {})))
    stream = agent.stream("go")
    await read_until(stream, "tool_finished")
    (run_id,) = {message.run_id for message in await agent.log()}

    await world.cancel(run_id)

    outcomes = {returned.tool_call_id: returned.outcome for returned in returns_of(await agent.log())}
    assert outcomes == {"c1": ToolReturn.OUTCOME_SUCCEEDED, "c2": ToolReturn.OUTCOME_CANCELLED}
    finished = [event.tool_finished.result.tool_call_id for event in await world.events(run_id)]
    assert sorted(filter(None, finished)) == ["c1", "c2"]
    await rest_of(stream)


async def test_a_cancel_in_a_later_step_keeps_the_steps_before(make_world: MakeWorld) -> None:
    probe, hold = ProbeTool("probe"), Gate()
    world = await make_world(probe)
    agent = await world.make_agent(["probe"])
    agent.model.will(call("probe", "c1"), say(hold, "never"))
    stream = agent.stream("go", background=True)
    await hold.reached()
    (run_id,) = {message.run_id for message in await agent.log()}

    cancelled = await world.cancel(run_id)

    events = await rest_of(stream)
    shown = [event.message_added.message.id for event in events if event.HasField("message_added")]
    assert shown == [message.id for message in await world.log(run_id=run_id)]
    assert roles(await agent.log()) == ["user", "assistant", "tool"]
    assert [step.status for step in await world.steps(run_id)] == [Step.STATUS_SUCCEEDED, Step.STATUS_CANCELLED]
    assert cancelled.step_count == 2
    assert (await agent.get()).last_stop_reason == STOP_REASON_CANCELLED
    await assert_usable(agent)


@on_both
async def test_a_cancel_while_a_person_is_asked_denies_everything(make_world: MakeWorld) -> None:
    secret, dice = ProbeTool("secret", approval=True), ProbeTool("dice")
    world = await make_world(secret, dice)
    agent = await world.make_agent(["secret", "dice"])
    agent.model.will(calls(("dice", "d", {}), ("secret", "a", {}), ("secret", "b", {})))
    approval = await agent.ask()

    cancelled = await world.cancel(approval.run_id)

    assert_receipt(cancelled, CancelReceipt.PHASE_AWAITING_APPROVAL)
    assert cancelled.approval_id == ""
    log = await agent.log()
    assert roles(log) == ["user", "assistant", "approval", "tool"]
    denied = [part.decision for part in log[2].parts]
    assert [decision.tool_call_id for decision in denied] == ["a", "b"]
    assert {decision.deny.reason for decision in denied} == {DENIAL.partition("User reason: ")[2]}
    returns = returns_of(log)
    assert [returned.tool_call_id for returned in returns] == ["a", "b", "d"]
    assert {returned.outcome for returned in returns} == {ToolReturn.OUTCOME_DENIED}
    assert {return_text(returned) for returned in returns} == {DENIAL}
    assert (secret.started, dice.started) == ([], [])
    closed = await world.approval(approval.id)
    assert closed.State.Name(closed.state) == "STATE_CANCELLED"
    assert [decision.tool_call_id for decision in closed.decisions] == ["a", "b"]
    await assert_usable(agent)


async def test_nothing_says_awaiting_after_a_cancelled_approval(make_world: MakeWorld) -> None:
    secret, probe = ProbeTool("secret", approval=True), ProbeTool("probe")
    world = await make_world(secret, probe)
    agent = await world.make_agent(["secret", "probe"])
    agent.model.will(call("secret", "c1"))
    approval = await agent.ask()
    assert (await agent.get()).last_stop_reason == STOP_REASON_REQUIRES_APPROVAL

    await world.cancel(approval.run_id)

    assert (await world.run(approval.run_id)).state == Run.STATE_CANCELLED
    assert (await agent.get()).last_stop_reason == STOP_REASON_CANCELLED
    agent.model.will(call("probe", "c2"), say("fine"))
    sent = await agent.send("use the other tool")
    assert (sent.run.state, sent.run.stop_reason) == (Run.STATE_COMPLETED, STOP_REASON_END_TURN)
    assert len(probe.started) == 1
    assert (await agent.get()).last_stop_reason == STOP_REASON_END_TURN
    await assert_sound(agent)


async def test_cancelling_a_stopped_run_changes_nothing(make_world: MakeWorld) -> None:
    world = await make_world()
    agent = await world.make_agent()
    run = (await agent.send("hi")).run

    assert await world.cancel(run.id) == await world.run(run.id)

    after = await world.run(run.id)
    assert after == run
    assert not after.HasField("cancel")
    assert (await agent.get()).last_stop_reason == STOP_REASON_END_TURN


async def test_a_second_cancel_changes_nothing(make_world: MakeWorld) -> None:
    world = await make_world()
    agent = await world.make_agent()
    hold = Gate()
    agent.model.will(say(hold))
    run_id = await agent.start("hi")
    await hold.reached()

    first = await world.cancel(run_id, reason="enough")
    second = await world.cancel(run_id, reason="again")

    assert first == second == await world.run(run_id)
    assert first.cancel.reason == "enough"
    assert kinds(await world.events(run_id)).count("run_stopped") == 1
    await assert_usable(agent)


async def test_a_cancel_that_does_not_wait_is_done_all_the_same(world: World) -> None:
    agent = await world.make_agent()
    hold = Gate()
    agent.model.will(say(hold))
    run_id = await agent.start("hi")
    await hold.reached()

    run = await world.cancel(run_id, wait=0)

    assert run.cancel.HasField("request_time")
    assert_receipt(await world.wait_for(run_id), CancelReceipt.PHASE_FIRST_TOKEN, "model_closed_time")


async def test_cancel_wins_over_max_steps(make_world: MakeWorld) -> None:
    slow = ProbeTool("slow", gate=Gate())
    world = await make_world(slow)
    agent = await world.make_agent(["slow"])
    agent.model.will(call("slow"))
    run_id = await agent.start("go", max_steps=1)
    await slow.gate.reached()

    assert (await world.cancel(run_id)).stop_reason == STOP_REASON_CANCELLED

    await assert_usable(agent)
