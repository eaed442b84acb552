"""A run's events: from any cursor, for any number of readers, during the run and after it, without a gap."""

import asyncio
from typing import Any

import grpc
import pytest

from common.ids import Prefix, new_id
from common.pb.bridle.v1.message_service_pb2 import StreamMessageRequest
from services.models.api import TextChunk
from tests.helpers.inprocess import (
    Event,
    Run,
    World,
    approve,
    error_info,
    kinds,
    not_found,
    on_both,
    read_until,
    refused,
    rest_of,
    text_of,
)
from tests.helpers.models import Gate, ProbeTool, call, say
from tests.rpc.runs.conftest import MakeWorld


def numbers(events: list[Event]) -> list[int]:
    return [event.seq for event in events]


async def heartbeats(stream: Any, count: int) -> list[int]:
    """What the next signs of life on a stream say."""
    beats: list[int] = []
    async for response in stream:
        assert response.HasField("heartbeat"), response
        beats.append(response.heartbeat.last_seq)
        if len(beats) == count:
            break
    return beats


async def test_the_whole_story_in_order(make_world: MakeWorld) -> None:
    probe = ProbeTool("probe")
    world = await make_world(probe)
    agent = await world.make_agent(["probe"])
    agent.model.will(call("probe", "c1"), say("all ", "done"))
    run = (await agent.send("go")).run

    events = await world.events(run.id)

    assert kinds(events) == [
        *("run_started", "message_added", "step_started", "tool_call_delta", "tool_call_delta"),
        *("message_added", "tool_started", "tool_finished", "message_added", "step_finished"),
        *("step_started", "text_delta", "text_delta", "message_added", "step_finished", "run_stopped"),
    ]
    assert numbers(events) == sorted(set(numbers(events)))
    assert events[-1].seq == run.last_seq
    assert events[-1].run_stopped.run == run
    added = [event.message_added.message for event in events if event.HasField("message_added")]
    assert added == await agent.log()
    started = [event.step_started.message_id for event in events if event.HasField("step_started")]
    assert started == [added[1].id, added[3].id]
    assert {event.text_delta.message_id for event in events if event.HasField("text_delta")} == {added[3].id}


@on_both
async def test_from_every_cursor_after_the_end(make_world: MakeWorld) -> None:
    world = await make_world()
    agent = await world.make_agent()
    agent.model.will(say("one ", "two ", "three"))
    run = (await agent.send("count")).run
    everything = await world.events(run.id)

    for cursor in (0, *numbers(everything)):
        assert await world.events(run.id, cursor) == [event for event in everything if event.seq > cursor]


@on_both
async def test_from_every_cursor_during_the_run(make_world: MakeWorld) -> None:
    world = await make_world()
    agent = await world.make_agent()
    hold = Gate()
    agent.model.will(say("one ", "two ", hold, "three"))
    stream = agent.stream("count")
    seen = await read_until(stream, "text_delta", 2)
    run_id = seen[1].message_added.message.run_id
    cursors = (0, *numbers(seen))
    readers = [asyncio.ensure_future(world.events(run_id, cursor)) for cursor in cursors]
    early = world.follow(run_id)
    await read_until(early, "text_delta", 2)

    hold.open()
    everything = seen + await rest_of(stream)

    assert kinds(everything).count("run_stopped") == 1
    assert everything == await world.events(run_id)
    for cursor, reader in zip(cursors, readers, strict=True):
        assert await reader == [event for event in everything if event.seq > cursor]
    assert (await rest_of(early))[-1] == everything[-1]


async def test_a_reader_of_a_queued_run_sees_it_all(world: World) -> None:
    agent = await world.make_agent()
    hold = Gate()
    agent.model.will(say(hold, "first"), say("second"))
    await agent.start("one")
    await hold.reached()
    reader = asyncio.ensure_future(world.events(await agent.start("two")))
    await asyncio.sleep(0.05)

    hold.open()

    events = await reader
    assert (kinds(events)[0], kinds(events)[-1]) == ("run_started", "run_stopped")
    assert "".join(event.text_delta.text for event in events) == "second"


async def test_one_reader_sees_across_an_approval(make_world: MakeWorld) -> None:
    world = await make_world(ProbeTool("secret", approval=True))
    agent = await world.make_agent(["secret"])
    agent.model.will(call("secret", "c1"), say("done"))
    run_id = await agent.start("go")
    stream = world.follow(run_id)
    events = await read_until(stream, "approval_requested")

    await world.answer(approve("c1"), run_id=run_id)
    events += await rest_of(stream)

    assert events == await world.events(run_id)
    told = [kind for kind in kinds(events) if kind.startswith("approval") or kind == "run_stopped"]
    assert told == ["approval_requested", "approval_decided", "run_stopped"]
    asked = next(event.approval_requested.approval for event in events if event.HasField("approval_requested"))
    decided = next(event.approval_decided.approval for event in events if event.HasField("approval_decided"))
    assert (asked.id, asked.State.Name(asked.state)) == (decided.id, "STATE_PENDING")
    assert decided == await world.approval(asked.id)


async def test_a_slow_reader_loses_nothing_and_holds_nobody(make_world: MakeWorld) -> None:
    world, hold = await make_world(ProbeTool("probe")), Gate()
    agent = await world.make_agent(["probe"])
    # More than the connection's buffers and the log's memory can hold, in messages that still fit into one answer.
    words = tuple(TextChunk("x" * 5000) for _ in range(500))
    agent.model.will(*(call("probe", before=words) for _ in range(5)), say(hold, "done"))
    run_id = await agent.start("go")
    stream = world.follow(run_id)
    events = await read_until(stream, "run_started")

    # The run goes on without its reader; then the reader goes on while the run is still there.
    await hold.reached(timeout=15)
    events += await read_until(stream, "text_delta", 2500)
    hold.open()
    events += await rest_of(stream)

    assert kinds(events).count("text_delta") == 2501
    assert numbers(events) == numbers(await world.events(run_id))


async def test_signs_of_life(make_world: MakeWorld) -> None:
    world = await make_world(settings={"BRIDLE_HEARTBEAT_SECONDS": "0.05"})
    agent = await world.make_agent()
    hold = Gate()
    agent.model.will(say("a", hold))
    run_id = await agent.start("hi")
    await hold.reached()
    stream = world.follow(run_id)
    seen = await read_until(stream, "text_delta")

    beats = await heartbeats(stream, 3)

    assert beats == [seen[-1].seq] * 3
    hold.open()
    assert kinds(await rest_of(stream))[-1] == "run_stopped"


async def test_a_reader_of_nothing_yet_is_told_its_own_cursor(make_world: MakeWorld) -> None:
    world = await make_world(ProbeTool("secret", approval=True), settings={"BRIDLE_HEARTBEAT_SECONDS": "0.05"})
    agent = await world.make_agent(["secret"])
    agent.model.will(call("secret", "c1"))
    run = (await agent.send("go")).run

    stream = world.follow(run.id, run.last_seq)

    assert await heartbeats(stream, 1) == [run.last_seq]
    stream.cancel()


async def test_a_cursor_from_nowhere(make_world: MakeWorld) -> None:
    world = await make_world()
    agent = await world.make_agent()
    run = (await agent.send("hi")).run

    beyond = world.events(run.id, run.last_seq + 1)
    metadata = await refused(beyond, grpc.StatusCode.OUT_OF_RANGE, "CURSOR_OUT_OF_RANGE")

    assert (metadata["after_seq"], metadata["last_seq"]) == (str(run.last_seq + 1), str(run.last_seq))
    assert await world.events(run.id, run.last_seq) == []
    unknown = new_id(Prefix.RUN)
    assert await not_found(world.events(unknown)) == ("run", unknown)


async def test_deltas_can_be_left_out(world: World) -> None:
    agent = await world.make_agent()
    agent.model.will(say("one ", "two"))
    run = (await agent.send("count")).run

    without = await world.events(run.id, skip_deltas=True)

    assert without == [event for event in await world.events(run.id) if not event.HasField("text_delta")]
    assert kinds(without)[-1] == "run_stopped"


async def test_the_first_answer_of_a_message_names_its_run(world: World) -> None:
    agent = await world.make_agent()
    request = StreamMessageRequest(run=agent.request("hi"), skip_deltas=True)

    first, *rest = [response async for response in world.messages.StreamMessage(request, timeout=10)]

    assert first.run.state == Run.STATE_QUEUED
    assert [response.event for response in rest] == await world.events(first.run.id, skip_deltas=True)


async def test_a_talkative_tool_can_be_followed_from_any_cursor(make_world: MakeWorld) -> None:
    chatty = ProbeTool("chatty", gate=Gate(), progress=5000)
    world = await make_world(chatty, settings={"BRIDLE_HEARTBEAT_SECONDS": "0.1"})
    agent = await world.make_agent(["chatty"])
    agent.model.will(call("chatty", "c1"))
    run_id = await agent.start("go")
    await chatty.gate.reached()
    seen: list[Event] = []
    stream = world.follow(run_id)
    async for response in stream:
        if response.HasField("heartbeat"):
            break
        seen.append(response.event)
    stream.cancel()
    assert "tool_progress" in kinds(seen)

    again = world.follow(run_id, seen[-1].seq)
    assert await heartbeats(again, 1) == [seen[-1].seq]
    chatty.gate.open()

    assert seen + await rest_of(again) == await world.events(run_id)


@on_both
async def test_a_restart_ends_streams_with_a_cursor_to_come_back_with(make_world: MakeWorld) -> None:
    world, hold = await make_world(), Gate()
    agent = await world.make_agent()
    agent.model.will(say("first ", hold))
    stream = agent.stream("hi")
    seen = await read_until(stream, "text_delta")
    run_id = seen[1].message_added.message.run_id
    ending = asyncio.ensure_future(make_world.stop())

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        seen += await rest_of(stream)
    metadata = error_info(caught.value, grpc.StatusCode.UNAVAILABLE, "DRAINING")
    await ending

    assert int(metadata["after_seq"]) >= seen[-1].seq
    assert agent.model.calls[0].ended == "closed"
    world = await make_world()
    world.models.make().will(say("second ", "try"))
    rest = await world.events(run_id, int(metadata["after_seq"]))
    assert kinds(rest)[0] == "restarted"
    assert rest[0].restarted.void_from_seq <= seen[-1].seq <= rest[0].restarted.void_to_seq
    assert kinds(rest)[-1] == "run_stopped"
    assert [text_of(message) for message in await world.log(run_id=run_id)] == ["hi", "second try"]
