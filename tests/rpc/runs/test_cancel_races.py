"""A cancel that meets something else on its way; cancelling several runs; a client that hangs up."""

import asyncio
from datetime import UTC, datetime

import grpc
import grpc.aio

from common.ids import DEFAULT_ORGANIZATION, Prefix, new_id
from common.pb.bridle.v1.agent_service_pb2 import DeleteAgentRequest
from common.pb.bridle.v1.message_pb2 import ToolReturn
from common.pb.bridle.v1.run_service_pb2 import CancelRunsRequest, CancelRunsResponse
from common.pb.bridle.v1.stop_reason_pb2 import STOP_REASON_CANCELLED
from services.runs.model import CancelSignal
from services.runs.store.signals import request_cancel
from tests.helpers import eventually
from tests.helpers.inprocess import (
    Run,
    World,
    approve,
    assert_sound,
    assert_usable,
    kinds,
    not_found,
    on_both,
    read_until,
    rest_of,
    returns_of,
    text_of,
)
from tests.helpers.models import Gate, ProbeTool, call, say
from tests.rpc.runs.conftest import MakeWorld

ROUNDS = 8


async def cancel_several(world: World, *run_ids: str, agent_id: str = "") -> CancelRunsResponse:
    request = CancelRunsRequest(run_ids=run_ids, agent_id=agent_id, reason="all of it")
    request.wait.FromSeconds(5)
    response: CancelRunsResponse = await world.runs.CancelRuns(request, timeout=10)
    return response


async def cancel_unheard(world: World, run_id: str, reason: str = "") -> None:
    """A cancel whose wake was lost: it is durable, and the owner does not know of it yet."""
    now = datetime.now(UTC)
    await world.node.db.write(request_cancel, DEFAULT_ORGANIZATION, run_id, CancelSignal(now, reason=reason), now)


@on_both
async def test_cancel_and_approve_at_the_same_time(make_world: MakeWorld) -> None:
    secret = ProbeTool("secret", approval=True)
    world = await make_world(secret)
    agent = await world.make_agent(["secret"])
    for number in range(ROUNDS):
        hold = Gate()
        agent.model.will(call("secret", f"c{number}"), say(hold, "never"))
        approval = await agent.ask()

        answering = world.answer(approve(f"c{number}"), approval_id=approval.id)
        both = (answering, world.cancel(approval.run_id)) if number % 2 else (world.cancel(approval.run_id), answering)
        outcomes = await asyncio.gather(*both, return_exceptions=True)

        refusal = next((each for each in outcomes if isinstance(each, BaseException)), None)
        if refusal is not None:
            assert isinstance(refusal, grpc.aio.AioRpcError)
            assert refusal.code() is grpc.StatusCode.FAILED_PRECONDITION
        run = await world.run(approval.run_id)
        assert (run.state, run.stop_reason) == (Run.STATE_CANCELLED, STOP_REASON_CANCELLED)
        (returned,) = returns_of(await world.log(run_id=run.id))
        # An answer that was accepted is not taken back: either it ran or it was cut, but it was not denied.
        denied = returned.outcome == ToolReturn.OUTCOME_DENIED
        assert denied == (refusal is not None)
        agent.model.forget()
        await assert_sound(agent)
    await assert_usable(agent)


async def test_a_cancel_right_after_the_answer_ends_the_stream_cancelled(make_world: MakeWorld) -> None:
    secret, hold = ProbeTool("secret", approval=True), Gate()
    world = await make_world(secret)
    agent = await world.make_agent(["secret"])
    agent.model.will(call("secret", "c1"), say("wor", hold, "king"))
    approval = await agent.ask()

    answered = await world.answer(approve("c1"), agent_id=agent.id)
    stream = world.follow(answered.run.id, answered.after_seq)
    events = await read_until(stream, "text_delta")
    await world.cancel(answered.run.id)
    events += await rest_of(stream)

    stops = [event.run_stopped.run for event in events if event.HasField("run_stopped")]
    assert [run.stop_reason for run in stops] == [STOP_REASON_CANCELLED]
    assert (await world.run(approval.run_id)).state == Run.STATE_CANCELLED
    assert len(secret.started) == 1
    await assert_usable(agent)


@on_both
async def test_cancel_and_completion_at_the_same_time(make_world: MakeWorld) -> None:
    world = await make_world()
    agent = await world.make_agent()
    for _ in range(ROUNDS):
        hold = Gate()
        agent.model.will(say("answer", hold))
        run_id = await agent.start("hi")
        await hold.reached()

        hold.open()
        returned = await world.cancel(run_id)

        assert returned.state in (Run.STATE_CANCELLED, Run.STATE_COMPLETED)
        assert returned == await world.run(run_id)
        events = await world.events(run_id)
        assert kinds(events).count("run_stopped") == 1
        assert events[-1].run_stopped.run == returned
        (_, answer) = await world.log(run_id=run_id)
        assert (text_of(answer), answer.interrupted) == ("answer", returned.state == Run.STATE_CANCELLED)
    await assert_usable(agent)


@on_both
async def test_a_cancel_that_was_accepted_stops_a_run_that_had_just_finished(make_world: MakeWorld) -> None:
    world = await make_world()
    agent = await world.make_agent()
    runs: list[str] = []

    async def cancel() -> None:
        await cancel_unheard(world, runs[0])

    hold = Gate()
    agent.model.will(say("all ", "of it", hold, cancel))
    runs.append(await agent.start("hi"))
    await hold.reached()
    hold.open()

    run = await world.wait_for(runs[0])

    assert (run.state, run.stop_reason) == (Run.STATE_CANCELLED, STOP_REASON_CANCELLED)
    events = await world.events(run.id)
    assert "".join(event.text_delta.text for event in events) == "all of it"
    # A client has seen it, so it stays.
    assert [text_of(message) for message in await agent.log()] == ["hi", "all of it"]
    await assert_usable(agent)


@on_both
async def test_a_cancel_whose_wake_was_lost_is_heard_within_a_heartbeat(make_world: MakeWorld) -> None:
    world = await make_world()
    agent = await world.make_agent()
    hold = Gate()
    agent.model.will(say(hold))
    run_id = await agent.start("hi")
    await hold.reached()

    await cancel_unheard(world, run_id)

    assert (await world.wait_for(run_id, timeout=4)).state == Run.STATE_CANCELLED
    assert agent.model.calls[0].ended == "closed"


async def test_the_first_cancel_is_the_one_that_counts(world: World) -> None:
    agent = await world.make_agent()
    hold = Gate()
    agent.model.will(say(hold))
    run_id = await agent.start("hi")
    await hold.reached()
    await cancel_unheard(world, run_id, "enough")

    run = await world.cancel(run_id, reason="again")

    assert (run.state, run.cancel.reason) == (Run.STATE_CANCELLED, "enough")


async def test_several_runs_at_once(world: World) -> None:
    agents = [await world.make_agent() for _ in range(3)]
    holds = [Gate() for _ in agents]
    for agent, hold in zip(agents, holds, strict=True):
        agent.model.will(say(hold))
    run_ids = [await agent.start("hi") for agent in agents]
    for hold in holds:
        await hold.reached()
    done = (await (await world.make_agent()).send("hi")).run
    unknown = new_id(Prefix.RUN)

    response = await cancel_several(world, *run_ids[:2], done.id, unknown)

    assert [run.id for run in response.runs] == [*run_ids[:2], done.id]
    assert [run.state for run in response.runs] == [Run.STATE_CANCELLED, Run.STATE_CANCELLED, Run.STATE_COMPLETED]
    assert list(response.unknown_run_ids) == [unknown]
    assert response.runs[0].cancel.reason == "all of it"
    assert (await world.run(run_ids[2])).state == Run.STATE_RUNNING


async def test_whatever_an_agent_is_doing(make_world: MakeWorld) -> None:
    world = await make_world()
    agent, other = await world.make_agent(), await world.make_agent()
    hold, other_hold = Gate(), Gate()
    agent.model.will(say(hold))
    other.model.will(say(other_hold, "mine"))
    running, waiting = await agent.start("one"), await agent.start("two")
    untouched = await other.start("three")
    await hold.reached()
    await other_hold.reached()

    response = await cancel_several(world, agent_id=agent.id)

    assert [run.id for run in response.runs] == [running, waiting]
    assert {run.state for run in response.runs} == {Run.STATE_CANCELLED}
    other_hold.open()
    assert (await world.wait_for(untouched)).state == Run.STATE_COMPLETED
    await assert_usable(agent)
    assert not (await cancel_several(world, agent_id=agent.id)).runs


async def test_cancelling_the_runs_of_no_agent_is_refused(world: World) -> None:
    agent_id = new_id(Prefix.AGENT)
    assert await not_found(cancel_several(world, agent_id=agent_id)) == ("agent", agent_id)


async def test_an_agent_that_waits_for_a_person_is_cancelled_too(make_world: MakeWorld) -> None:
    world = await make_world(ProbeTool("secret", approval=True))
    agent = await world.make_agent(["secret"])
    agent.model.will(call("secret", "c1"))
    approval = await agent.ask()

    (run,) = (await cancel_several(world, agent_id=agent.id)).runs

    assert (run.id, run.state) == (approval.run_id, Run.STATE_CANCELLED)
    await assert_usable(agent)


async def test_a_client_that_hangs_up_does_not_stop_its_run(world: World) -> None:
    agent = await world.make_agent()
    hold = Gate()
    agent.model.will(say("half ", hold, "whole"))
    stream = agent.stream("hi")
    await read_until(stream, "text_delta")

    stream.cancel()
    hold.open()

    (run_id,) = {message.run_id for message in await agent.log()}
    assert (await world.wait_for(run_id)).state == Run.STATE_COMPLETED
    assert text_of((await agent.log())[-1]) == "half whole"


async def test_a_client_may_ask_that_its_run_ends_with_it(world: World) -> None:
    agent = await world.make_agent()
    hold = Gate()
    agent.model.will(say("half ", hold))
    stream = agent.stream("hi", cancel_on_disconnect=True)
    await read_until(stream, "text_delta")

    stream.cancel()

    assert await agent.model.calls[0].gone() == "closed"
    (run_id,) = {message.run_id for message in await agent.log()}
    assert (await world.wait_for(run_id)).state == Run.STATE_CANCELLED


async def test_the_answer_to_a_cancelled_message_says_so(world: World) -> None:
    agent = await world.make_agent()
    hold = Gate()
    agent.model.will(say("half ", hold))
    sending = asyncio.ensure_future(agent.send("hi"))
    await hold.reached()
    (run_id,) = {message.run_id for message in await agent.log()}

    await world.cancel(run_id)

    sent = await sending
    assert (sent.run.id, sent.run.stop_reason) == (run_id, STOP_REASON_CANCELLED)
    assert [(text_of(message), message.interrupted) for message in sent.messages] == [("half ", True)]


async def test_a_deleted_agent_takes_its_runs_with_it(world: World) -> None:
    agent = await world.make_agent()
    hold = Gate()
    agent.model.will(say(hold))
    await agent.start("hi")
    await hold.reached()

    await world.agents.DeleteAgent(DeleteAgentRequest(agent_id=agent.id, force=True), timeout=10)

    await eventually(lambda: agent.model.calls[0].ended == "closed")
