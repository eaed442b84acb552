"""`request_id`: a repeat is harmless, another request under the same id is refused."""

import asyncio

import grpc

from common.pb.bridle.v1.approval_pb2 import Approval
from common.pb.bridle.v1.run_service_pb2 import RunOptions
from tests.helpers.inprocess import Run, World, approve, assert_sound, deny, on_both, refused, text_of
from tests.helpers.models import Gate, ProbeTool, call, say
from tests.rpc.runs.conftest import MakeWorld


async def test_a_run_is_created_once(make_world: MakeWorld) -> None:
    world = await make_world()
    agent = await world.make_agent()
    first = await agent.create("hi", request_id="r1")
    await world.wait_for(first.run.id)

    again = await agent.create("hi", request_id="r1")
    other = await agent.create("hi", request_id="r2")

    assert again.run == await world.run(first.run.id)
    assert again.run.state == Run.STATE_COMPLETED
    assert not again.joined
    await world.wait_for(other.run.id)
    assert len(await agent.log()) == 4


@on_both
async def test_twins_make_one_run(make_world: MakeWorld) -> None:
    world = await make_world()
    agent = await world.make_agent()

    twins = await asyncio.gather(*(agent.create("hi", request_id="r1") for _ in range(5)))

    (run_id,) = {twin.run.id for twin in twins}
    await world.wait_for(run_id)
    assert len(agent.model.calls) == 1
    assert len(await agent.log()) == 2


async def test_an_id_is_good_for_one_request(make_world: MakeWorld) -> None:
    world = await make_world()
    agent = await world.make_agent()
    await agent.send("hi", request_id="r1")

    for other in (agent.create("ho", request_id="r1"), agent.create("hi", request_id="r1", max_steps=3)):
        metadata = await refused(other, grpc.StatusCode.ALREADY_EXISTS, "REQUEST_ID_REUSED")
        assert metadata == {"request_id": "r1"}

    assert len(await agent.log()) == 2


async def test_a_message_sent_again_gives_the_first_answer(world: World) -> None:
    agent = await world.make_agent()
    agent.model.will(say("the answer"))
    first = await agent.send("hi", request_id="r1")

    assert await agent.send("hi", request_id="r1") == first

    assert [text_of(message) for message in await agent.log()] == ["hi", "the answer"]


async def test_a_refused_request_leaves_its_id_free(make_world: MakeWorld) -> None:
    world = await make_world(ProbeTool("secret", approval=True))
    agent = await world.make_agent(["secret"])
    agent.model.will(call("secret", "c1"))
    approval = await agent.ask()
    await refused(agent.create("hi", request_id="r1"), grpc.StatusCode.FAILED_PRECONDITION, "PENDING_APPROVAL")
    await world.cancel(approval.run_id)

    assert (await agent.send("hi", request_id="r1")).run.state == Run.STATE_COMPLETED


@on_both
async def test_what_joins_a_run_joins_it_once(make_world: MakeWorld) -> None:
    world = await make_world()
    agent = await world.make_agent()
    hold = Gate()
    agent.model.will(say("first", hold))
    run_id = await agent.start("go")
    await hold.reached()
    steer = {"on_busy": RunOptions.ON_BUSY_STEER, "request_id": "r1"}

    joined = [await agent.create("faster", **steer) for _ in range(2)]
    hold.open()
    await world.wait_for(run_id)
    joined.append(await agent.create("faster", **steer))

    assert [(each.run.id, each.joined) for each in joined] == [(run_id, True)] * 3
    assert [text_of(message) for message in await agent.log()].count("faster") == 1


@on_both
async def test_an_answer_is_given_once(make_world: MakeWorld) -> None:
    secret = ProbeTool("secret", approval=True)
    world = await make_world(secret)
    agent = await world.make_agent(["secret"])
    agent.model.will(call("secret", "c1"))
    approval = await agent.ask()

    answers = await asyncio.gather(
        *(world.answer(approve("c1"), approval_id=approval.id, request_id="r1") for _ in range(4))
    )

    assert {each.approval.State.Name(each.approval.state) for each in answers} == {"STATE_DECIDED"}
    await world.wait_for(approval.run_id)
    again = await world.answer(approve("c1"), approval_id=approval.id, request_id="r1")
    assert (again.approval.state, again.run.state) == (Approval.STATE_DECIDED, Run.STATE_COMPLETED)
    other = world.answer(deny("c1"), approval_id=approval.id, request_id="r1")
    await refused(other, grpc.StatusCode.ALREADY_EXISTS, "REQUEST_ID_REUSED")
    assert len(secret.started) == 1
    await assert_sound(agent)
