"""Watching approvals across runs, and what is left when old events are deleted."""

import asyncio
from typing import Any

import grpc
import pytest

from common.pb.bridle.v1.approval_pb2 import Approval
from common.pb.bridle.v1.approval_service_pb2 import WatchApprovalsRequest
from services.runs.store.retention import sweep
from tests.helpers.inprocess import Run, World, approve, deny, error_info, invalid, kinds, on_both, text_of
from tests.helpers.models import ProbeTool, call, say
from tests.rpc.runs.conftest import MakeWorld

SECRET = ProbeTool("secret", approval=True)


def watch(world: World, **fields: Any) -> Any:
    return world.approvals.WatchApprovals(WatchApprovalsRequest(**fields), timeout=10)


async def changes(stream: Any, count: int) -> list[tuple[str, int]]:
    """The next changes, as (approval id, state); signs of life are passed over."""
    seen: list[tuple[str, int]] = []
    while len(seen) < count:
        response = await stream.read()
        if response.HasField("approval"):
            seen.append((response.approval.id, response.approval.state))
    return seen


@on_both
async def test_a_watcher_sees_what_is_open_and_then_every_change(make_world: MakeWorld) -> None:
    world = await make_world(SECRET)
    first, second = await world.make_agent(["secret"]), await world.make_agent(["secret"])
    first.model.will(call("secret", "c1"))
    open_before = await first.ask()

    stream = watch(world)
    assert await changes(stream, 1) == [(open_before.id, Approval.STATE_PENDING)]

    second.model.will(call("secret", "c2"), say("ok"))
    asked = await second.ask()
    assert await changes(stream, 1) == [(asked.id, Approval.STATE_PENDING)]

    await world.answer(approve("c2"), approval_id=asked.id)
    assert await changes(stream, 1) == [(asked.id, Approval.STATE_DECIDED)]
    await world.cancel(open_before.run_id)
    assert await changes(stream, 1) == [(open_before.id, Approval.STATE_CANCELLED)]
    stream.cancel()


async def test_a_watcher_of_one_agent_hears_of_no_other(make_world: MakeWorld) -> None:
    world = await make_world(SECRET)
    mine, other = await world.make_agent(["secret"]), await world.make_agent(["secret"])
    stream = watch(world, agent_id=mine.id)
    for agent in (other, mine):
        agent.model.will(call("secret", "c1"), say("ok"))
    await other.ask()
    asked = await mine.ask()
    assert await changes(stream, 1) == [(asked.id, Approval.STATE_PENDING)]
    await world.answer(deny("c1"), approval_id=asked.id)
    assert await changes(stream, 1) == [(asked.id, Approval.STATE_DECIDED)]
    stream.cancel()


async def test_a_quiet_watch_gives_signs_of_life(make_world: MakeWorld) -> None:
    world = await make_world(settings={"BRIDLE_HEARTBEAT_SECONDS": "0.05"})
    stream = watch(world)
    for _ in range(3):
        assert not (await stream.read()).HasField("approval")
    stream.cancel()


async def test_a_malformed_agent_id_is_refused(world: World) -> None:
    assert await invalid(watch(world, agent_id="agent-x").read()) == ["agent_id"]


async def test_a_watch_ends_when_the_server_goes_away(make_world: MakeWorld) -> None:
    world = await make_world(settings={"BRIDLE_HEARTBEAT_SECONDS": "0.05"})
    stream = watch(world)
    await stream.read()
    ending = asyncio.ensure_future(make_world.stop())
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await changes(stream, 1)
    error_info(caught.value, grpc.StatusCode.UNAVAILABLE, "DRAINING")
    await ending


@on_both
async def test_old_events_go_and_the_gap_is_announced(make_world: MakeWorld) -> None:
    world = await make_world(ProbeTool("look"))
    agent = await world.make_agent(["look"])
    agent.model.will(call("look", "c1"), say("one two three"))
    run = (await agent.send("hi")).run
    before = await world.events(run.id)

    await sweep(world.node.db, world.node.clock.now())

    after = await world.events(run.id)
    assert kinds(after)[0] == "truncated"
    assert kinds(after)[-1] == "run_stopped"
    assert "text_delta" not in kinds(after)
    gone = after[0].truncated.through_seq
    assert [event.seq for event in after[1:]] == [event.seq for event in before if event.seq > gone]
    # A reader in the middle of what is gone is told too; one that has seen the end is not.
    assert kinds(await world.events(run.id, before[2].seq))[0] == "truncated"
    assert kinds(await world.events(run.id, gone)) == kinds(after)[1:]
    assert text_of((await agent.log())[-1]) == "one two three"


async def test_events_of_a_run_that_has_not_stopped_stay(make_world: MakeWorld) -> None:
    world = await make_world(SECRET)
    agent = await world.make_agent(["secret"])
    agent.model.will(call("secret", "c1"), say("ok"))
    asked = await agent.ask()
    await sweep(world.node.db, world.node.clock.now())
    await world.answer(approve("c1"), approval_id=asked.id)
    await world.wait_for(asked.run_id, Run.STATE_COMPLETED)
    assert kinds(await world.events(asked.run_id))[0] == "run_started"
