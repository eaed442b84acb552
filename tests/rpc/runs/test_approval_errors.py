"""Approvals as a resource: wrong answers change nothing, repeats are harmless, nobody answering is an answer too."""

import asyncio
from datetime import datetime, timedelta

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from common.clock import SystemClock
from common.ids import Prefix, new_id
from common.pb.bridle.v1.approval_pb2 import Approval
from common.pb.bridle.v1.approval_service_pb2 import ListApprovalsRequest
from common.pb.bridle.v1.message_pb2 import ToolReturn
from common.pb.bridle.v1.stop_reason_pb2 import STOP_REASON_END_TURN
from tests.helpers.inprocess import (
    AgentClient,
    Decision,
    Run,
    World,
    approve,
    assert_usable,
    deny,
    invalid,
    not_found,
    on_both,
    refused,
    result,
    return_text,
    returns_of,
    user,
)
from tests.helpers.models import ProbeTool, call, calls, say
from tests.rpc.runs.conftest import MakeWorld

PRECONDITION = grpc.StatusCode.FAILED_PRECONDITION


class MovedClock(SystemClock):
    """The time of day, as far ahead as the test wants."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def now(self) -> datetime:
        return super().now() + self.ahead


async def asking(make_world: MakeWorld, **fields: object) -> tuple[AgentClient, Approval, ProbeTool]:
    """An agent that waits for a person about `c1` and `c2`."""
    secret = ProbeTool("secret", approval=True)
    world = await make_world(secret)
    agent = await world.make_agent(["secret"], **fields)  # type: ignore[arg-type]
    agent.model.will(calls(("secret", "c1", {"n": 1}), ("secret", "c2", {"n": 2})))
    return agent, await agent.ask(), secret


async def pending(world: World, **which: object) -> list[str]:
    found = await world.approvals.ListApprovals(ListApprovalsRequest(**which), timeout=10)  # type: ignore[arg-type]
    return [approval.id for approval in found.approvals]


async def assert_untouched(agent: AgentClient, approval: Approval) -> None:
    """The run still waits for the same answer, and takes it."""
    world = agent.world
    assert await world.approval(approval.id) == approval
    assert (await world.run(approval.run_id)).state == Run.STATE_AWAITING_APPROVAL
    await world.answer(approve("c1"), approve("c2"), approval_id=approval.id)
    assert (await world.wait_for(approval.run_id)).state == Run.STATE_COMPLETED


async def test_an_answer_to_nothing(make_world: MakeWorld) -> None:
    world = await make_world()
    agent = await world.make_agent()
    run = (await agent.send("hi")).run

    for target in ({"agent_id": agent.id}, {"run_id": run.id}):
        await refused(world.answer(approve("c1"), **target), PRECONDITION, "NO_PENDING_APPROVAL")

    with pytest.raises(grpc.aio.AioRpcError, match="No tool call is currently awaiting approval"):
        await world.answer(approve("c1"), agent_id=agent.id)
    assert len(await agent.log()) == 2
    await assert_usable(agent)


async def test_an_answer_to_what_does_not_exist(world: World) -> None:
    for field, prefix in (("approval", Prefix.APPROVAL), ("run", Prefix.RUN), ("agent", Prefix.AGENT)):
        unknown = new_id(prefix)
        answer = world.answer(approve("c1"), **{f"{field}_id": unknown})
        assert await not_found(answer) == (field, unknown)


async def test_a_message_while_a_person_is_asked(make_world: MakeWorld) -> None:
    agent, approval, _ = await asking(make_world)
    log = await agent.log()

    for say_it in (agent.send("hi"), agent.create("hi")):
        metadata = await refused(say_it, PRECONDITION, "PENDING_APPROVAL")
        assert metadata == {"approval_id": approval.id, "run_id": approval.run_id}
    with pytest.raises(grpc.aio.AioRpcError, match="Please approve or deny the pending request before continuing"):
        [response async for response in agent.stream("hi")]

    assert await agent.log() == log
    await assert_untouched(agent, approval)


@pytest.mark.parametrize(
    "decisions",
    [
        pytest.param([approve("c1")], id="one is missing"),
        pytest.param([approve("c1"), approve("c2"), approve("c3")], id="one too many"),
        pytest.param([approve("other")], id="another one"),
        pytest.param([approve("c1"), approve("c1"), approve("c2")], id="one twice"),
    ],
)
async def test_an_answer_that_does_not_fit(make_world: MakeWorld, decisions: list[Decision]) -> None:
    agent, approval, secret = await asking(make_world)

    answer = agent.world.answer(*decisions, approval_id=approval.id)

    metadata = await refused(answer, grpc.StatusCode.INVALID_ARGUMENT, "APPROVAL_MISMATCH")
    assert metadata["expected"] == "c1,c2"
    assert metadata["received"] == ",".join(decision.tool_call_id for decision in decisions)
    with pytest.raises(grpc.aio.AioRpcError, match="Invalid tool call IDs"):
        await agent.world.answer(*decisions, agent_id=agent.id)
    assert secret.started == []
    await assert_untouched(agent, approval)


async def test_only_the_first_answer_counts(make_world: MakeWorld) -> None:
    agent, approval, secret = await asking(make_world)
    await agent.world.answer(approve("c1"), deny("c2", "no"), approval_id=approval.id)
    run = await agent.world.wait_for(approval.run_id)

    for other in (
        agent.world.answer(deny("c1"), deny("c2"), approval_id=approval.id),
        agent.world.answer(approve("c1"), deny("c2", "another reason"), approval_id=approval.id),
        agent.world.answer(approve("c1"), deny("c2", "no"), approval_id=approval.id, follow_up=[user("more")]),
    ):
        metadata = await refused(other, PRECONDITION, "APPROVAL_ALREADY_DECIDED")
        assert metadata == {"approval_id": approval.id, "state": "decided"}

    assert await agent.world.run(run.id) == run
    assert secret.started == [{"n": 1}]


@on_both
async def test_the_same_answer_again_is_accepted_and_does_nothing(make_world: MakeWorld) -> None:
    agent, approval, secret = await asking(make_world)
    answers = [approve("c1"), result("c2", "done elsewhere")]
    first = await agent.world.answer(*answers, approval_id=approval.id, follow_up=[user("go on")])
    run = await agent.world.wait_for(approval.run_id)

    again = await agent.world.answer(*reversed(answers), agent_id=agent.id, follow_up=[user("go on")])

    assert again.approval == first.approval
    assert again.run == run
    assert len(secret.started) == 1
    assert len(await agent.log()) == len(await agent.log(in_context=True)) == 6


@on_both
async def test_many_answers_at_once_are_one(make_world: MakeWorld) -> None:
    agent, approval, secret = await asking(make_world)
    verdicts = [[approve("c1"), approve("c2")], [deny("c1"), deny("c2")]] * 3

    outcomes = await asyncio.gather(
        *(agent.world.answer(*decisions, approval_id=approval.id) for decisions in verdicts), return_exceptions=True
    )

    taken = [each for each in outcomes if not isinstance(each, BaseException)]
    assert len(taken) == 3
    assert len({str(each.approval.decisions) for each in taken}) == 1
    await agent.world.wait_for(approval.run_id)
    assert len(secret.started) in (0, 2)
    assert len(returns_of(await agent.log())) == 2
    await assert_usable(agent)


@on_both
async def test_an_answer_after_a_cancel(make_world: MakeWorld) -> None:
    agent, approval, secret = await asking(make_world)
    cancelled = await agent.world.cancel(approval.run_id)

    answer = agent.world.answer(approve("c1"), approve("c2"), approval_id=approval.id)

    metadata = await refused(answer, PRECONDITION, "APPROVAL_ALREADY_DECIDED")
    assert metadata == {"approval_id": approval.id, "state": "cancelled"}
    assert await agent.world.run(cancelled.id) == cancelled
    assert secret.started == []
    await assert_usable(agent)


async def test_an_answer_for_other_arguments(make_world: MakeWorld) -> None:
    agent, approval, _ = await asking(make_world)
    seen = {each.call.id: each.arguments_sha256 for each in approval.calls}
    both = (approve("c1"), approve("c2"))

    wrong = agent.world.answer(*both, approval_id=approval.id, arguments_sha256={**seen, "c2": seen["c1"]})
    assert await invalid(wrong) == ["arguments_sha256[c2]"]

    await assert_untouched(agent, approval)


async def test_a_digest_of_a_call_that_does_not_wait(make_world: MakeWorld) -> None:
    agent, approval, _ = await asking(make_world)
    digest = approval.calls[0].arguments_sha256
    both = (approve("c1"), approve("c2"))

    wrong = agent.world.answer(*both, approval_id=approval.id, arguments_sha256={"c3": digest})
    metadata = await refused(wrong, grpc.StatusCode.INVALID_ARGUMENT, "APPROVAL_MISMATCH")
    assert metadata == {"expected": "c1,c2", "received": "c3"}

    await assert_untouched(agent, approval)


@on_both
async def test_nobody_answers_in_time(make_world: MakeWorld) -> None:
    clock, secret = MovedClock(), ProbeTool("secret", approval=True)
    world = await make_world(secret, clock=clock)
    agent = await world.make_agent(["secret"], approval_ttl=Duration(seconds=60))
    agent.model.will(call("secret", "c1"), say("then not"))
    approval = await agent.ask()
    assert approval.expire_time.ToSeconds() - approval.create_time.ToSeconds() == 60

    clock.ahead = timedelta(seconds=61)
    run = await world.wait_for(approval.run_id)

    assert (run.state, run.stop_reason) == (Run.STATE_COMPLETED, STOP_REASON_END_TURN)
    expired = await world.approval(approval.id)
    assert (expired.state, expired.decided_by) == (Approval.STATE_EXPIRED, "system")
    (returned,) = returns_of(await agent.log())
    assert returned.outcome == ToolReturn.OUTCOME_DENIED
    assert "Nobody answered in time." in return_text(returned)
    late = world.answer(approve("c1"), approval_id=approval.id)
    assert (await refused(late, PRECONDITION, "APPROVAL_ALREADY_DECIDED"))["state"] == "expired"
    assert secret.started == []
    await assert_usable(agent)


async def test_an_approval_may_stay_open_for_ever(make_world: MakeWorld) -> None:
    secret = ProbeTool("secret", approval=True)
    world = await make_world(secret, settings={"BRIDLE_APPROVAL_TTL": "0"})
    agent = await world.make_agent(["secret"])
    agent.model.will(call("secret", "c1"))

    assert not (await agent.ask()).HasField("expire_time")


async def test_who_decided_and_when(make_world: MakeWorld) -> None:
    agent, approval, _ = await asking(make_world)
    assert (approval.decided_by, approval.HasField("decide_time")) == ("", False)

    answered = await agent.world.answer(approve("c1"), deny("c2", "not today"), approval_id=approval.id)

    assert answered.approval.decided_by == "anonymous"
    assert answered.approval.decide_time.ToNanoseconds() >= approval.create_time.ToNanoseconds()
    assert answered.approval.decisions[1].deny.reason == "not today"
    assert await agent.world.approval(approval.id) == answered.approval


@on_both
async def test_everything_that_waits_can_be_listed(make_world: MakeWorld) -> None:
    secret = ProbeTool("secret", approval=True)
    world = await make_world(secret)
    agents = [await world.make_agent(["secret"]) for _ in range(3)]
    open_now: list[Approval] = []
    for agent in agents:
        agent.model.will(call("secret", "c1"))
        open_now.append(await agent.ask())
    first, second, third = open_now

    assert await pending(world) == [first.id, second.id, third.id]
    assert await pending(world, agent_id=agents[1].id) == [second.id]
    assert await pending(world, run_id=third.run_id) == [third.id]
    page = await world.approvals.ListApprovals(ListApprovalsRequest(page_size=2), timeout=10)
    assert [approval.id for approval in page.approvals] == [first.id, second.id]
    assert await pending(world, page_size=2, page_token=page.next_page_token) == [third.id]

    await world.answer(approve("c1"), approval_id=first.id)
    await world.cancel(second.run_id)

    assert await pending(world) == [third.id]
    assert await pending(world, states=[Approval.STATE_DECIDED]) == [first.id]
    assert await pending(world, states=[Approval.STATE_DECIDED, Approval.STATE_CANCELLED]) == [first.id, second.id]


async def test_the_only_call_may_be_named_by_its_message(make_world: MakeWorld) -> None:
    secret = ProbeTool("secret", approval=True)
    world = await make_world(secret)
    agent = await world.make_agent(["secret"])
    for decision in (approve, lambda name: result(name, "from elsewhere")):
        agent.model.will(call("secret"))
        approval = await agent.ask()

        answered = await world.answer(decision(approval.message_id), approval_id=approval.id)

        call_id = approval.calls[0].call.id
        assert answered.approval.decisions[0].tool_call_id == call_id
        await world.wait_for(approval.run_id)
        (returned,) = returns_of(await world.log(run_id=approval.run_id))
        assert (returned.tool_call_id, returned.tool_name) == (call_id, "secret")
    await assert_usable(agent)
