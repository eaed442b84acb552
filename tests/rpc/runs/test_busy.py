"""A message while the agent is busy: it waits, is refused, interrupts, or joins; and who gets a place on the node."""

import asyncio

import grpc
import pytest

from common.pb.bridle.v1.message_pb2 import ToolReturn
from common.pb.bridle.v1.run_service_pb2 import RunOptions
from common.pb.bridle.v1.stop_reason_pb2 import STOP_REASON_CANCELLED, STOP_REASON_END_TURN, STOP_REASON_MAX_STEPS
from services.messages.model import Text
from tests.helpers.inprocess import (
    Run,
    World,
    approve,
    assert_sound,
    assert_usable,
    on_both,
    refused,
    returns_of,
    roles,
    text_of,
)
from tests.helpers.models import Gate, ProbeTool, ScriptedModel, call, say
from tests.rpc.runs.conftest import MakeWorld

ENQUEUE, REJECT = RunOptions.ON_BUSY_ENQUEUE, RunOptions.ON_BUSY_REJECT
INTERRUPT, STEER = RunOptions.ON_BUSY_INTERRUPT, RunOptions.ON_BUSY_STEER
DENY_AND_CONTINUE = RunOptions.ON_PENDING_APPROVAL_DENY_AND_CONTINUE


def told(model: ScriptedModel, number: int) -> list[str]:
    """The texts that the model was shown in one of its calls."""
    messages = model.calls[number].request.messages
    return [part.text for message in messages for part in message.parts if isinstance(part, Text)]


@pytest.mark.parametrize("policy", [RunOptions.ON_BUSY_UNSPECIFIED, ENQUEUE])
async def test_it_waits_for_its_turn(make_world: MakeWorld, policy: "RunOptions.OnBusy.ValueType") -> None:
    world = await make_world()
    agent = await world.make_agent()
    hold = Gate()
    agent.model.will(say("first", hold), say("second"))
    first = await agent.start("one")
    await hold.reached()

    second = await agent.create("two", on_busy=policy)

    assert (second.run.state, second.joined, second.after_seq) == (Run.STATE_QUEUED, False, 0)
    assert [text_of(message) for message in await agent.log()] == ["one"]
    hold.open()
    assert (await world.wait_for(second.run.id)).state == Run.STATE_COMPLETED
    assert (await world.run(first)).state == Run.STATE_COMPLETED
    assert [text_of(message) for message in await agent.log()] == ["one", "first", "two", "second"]
    assert told(agent.model, 1) == ["one", "first", "two"]


@on_both
async def test_many_messages_at_once_are_taken_one_by_one(make_world: MakeWorld) -> None:
    world = await make_world()
    agent = await world.make_agent()
    agent.model.will(*(say(f"answer {number}") for number in range(10)))

    sent = await asyncio.gather(*(agent.send(f"message {number}") for number in range(10)))

    assert {each.run.state for each in sent} == {Run.STATE_COMPLETED}
    log = await agent.log()
    assert roles(log) == ["user", "assistant"] * 10
    assert [text_of(message) for message in log[1::2]] == [f"answer {number}" for number in range(10)]
    assert [question.run_id for question in log[::2]] == [answer.run_id for answer in log[1::2]]
    await assert_sound(agent)


@on_both
async def test_it_is_refused(make_world: MakeWorld) -> None:
    world = await make_world()
    agent = await world.make_agent()
    hold = Gate()
    agent.model.will(say(hold, "first"))
    first = await agent.start("one")
    await hold.reached()

    metadata = await refused(agent.create("two", on_busy=REJECT), grpc.StatusCode.ABORTED, "CONVERSATION_BUSY")

    assert metadata == {"run_id": first}
    hold.open()
    await world.wait_for(first)
    assert (await agent.send("three", on_busy=REJECT)).run.state == Run.STATE_COMPLETED
    assert [text_of(message) for message in await agent.log()][::2] == ["one", "three"]


@on_both
async def test_it_interrupts(make_world: MakeWorld) -> None:
    world = await make_world()
    agent = await world.make_agent()
    hold = Gate()
    agent.model.will(say("I was say", hold), say("yes?"))
    first = await agent.start("one")
    await hold.reached()

    sent = await agent.send("stop, listen", on_busy=INTERRUPT)

    assert (sent.run.state, text_of(sent.messages[-1])) == (Run.STATE_COMPLETED, "yes?")
    cut = await world.run(first)
    assert (cut.state, cut.stop_reason) == (Run.STATE_CANCELLED, STOP_REASON_CANCELLED)
    assert sent.run.id in cut.cancel.reason
    assert agent.model.calls[0].ended == "closed"
    log = await agent.log()
    assert [text_of(message) for message in log] == ["one", "I was say", "stop, listen", "yes?"]
    assert [message.interrupted for message in log] == [False, True, False, False]
    await assert_usable(agent)


@on_both
async def test_it_joins_before_the_next_model_call(make_world: MakeWorld) -> None:
    slow = ProbeTool("slow", gate=Gate())
    world = await make_world(slow)
    agent = await world.make_agent(["slow"])
    agent.model.will(call("slow", "c1"), say("as you wish"))
    run_id = await agent.start("go")
    await slow.gate.reached()

    joined = await agent.create("but hurry", on_busy=STEER)

    assert (joined.run.id, joined.joined) == (run_id, True)
    slow.gate.open()
    events = await world.events(run_id, joined.after_seq)
    assert "but hurry" in [text_of(event.message_added.message) for event in events]
    assert roles(await agent.log()) == ["user", "assistant", "tool", "user", "assistant"]
    assert told(agent.model, 1) == ["go", "but hurry"]
    assert len(agent.model.calls) == 2
    await assert_usable(agent)


async def test_it_joins_a_run_that_was_about_to_end(make_world: MakeWorld) -> None:
    world = await make_world()
    agent = await world.make_agent()
    hold = Gate()
    agent.model.will(say("done", hold), say("more"))
    run_id = await agent.start("go")
    await hold.reached()

    assert (await agent.create("one more thing", on_busy=STEER)).joined
    hold.open()
    run = await world.wait_for(run_id)

    assert (run.step_count, run.stop_reason) == (2, STOP_REASON_END_TURN)
    assert [text_of(message) for message in await agent.log()] == ["go", "done", "one more thing", "more"]


async def test_what_joins_at_the_last_step_is_not_lost(world: World) -> None:
    agent = await world.make_agent()
    hold = Gate()
    agent.model.will(say("done", hold), say("I have read it"))
    run_id = await agent.start("go", max_steps=1)
    await hold.reached()

    await agent.create("one more thing", on_busy=STEER)
    hold.open()

    assert (await world.wait_for(run_id)).stop_reason == STOP_REASON_MAX_STEPS
    assert [text_of(message) for message in await agent.log()] == ["go", "done", "one more thing"]
    await agent.send("next")
    assert told(agent.model, 1) == ["go", "done", "one more thing", "next"]


async def test_what_joins_a_cancelled_run_is_not_lost(world: World) -> None:
    agent = await world.make_agent()
    hold = Gate()
    agent.model.will(say("half", hold))
    run_id = await agent.start("go")
    await hold.reached()

    await agent.create("one more thing", on_busy=STEER)
    await world.cancel(run_id)

    assert [text_of(message) for message in await agent.log()] == ["go", "half", "one more thing"]
    await assert_usable(agent)


@pytest.mark.parametrize("policy", [REJECT, INTERRUPT, STEER])
async def test_nobody_is_in_the_way(world: World, policy: "RunOptions.OnBusy.ValueType") -> None:
    agent = await world.make_agent()

    sent = await agent.send("hi", on_busy=policy)

    assert sent.run.state == Run.STATE_COMPLETED


@on_both
async def test_it_does_not_wait_for_a_person_who_left(make_world: MakeWorld) -> None:
    secret = ProbeTool("secret", approval=True)
    world = await make_world(secret)
    agent = await world.make_agent(["secret"])
    agent.model.will(call("secret", "c1"), say("without it then"))
    approval = await agent.ask()

    sent = await agent.send("never mind", on_pending_approval=DENY_AND_CONTINUE)

    assert (sent.run.state, text_of(sent.messages[-1])) == (Run.STATE_COMPLETED, "without it then")
    assert (await world.run(approval.run_id)).state == Run.STATE_CANCELLED
    log = await agent.log()
    assert roles(log) == ["user", "assistant", "approval", "tool", "user", "assistant"]
    (returned,) = returns_of(log)
    assert returned.outcome == ToolReturn.OUTCOME_DENIED
    assert secret.started == []
    await assert_usable(agent)


@pytest.mark.parametrize("policy", [ENQUEUE, REJECT, INTERRUPT, STEER])
async def test_while_a_person_is_asked_every_policy_waits_for_them(
    make_world: MakeWorld, policy: "RunOptions.OnBusy.ValueType"
) -> None:
    world = await make_world(ProbeTool("secret", approval=True))
    agent = await world.make_agent(["secret"])
    agent.model.will(call("secret", "c1"))
    approval = await agent.ask()

    saying = agent.create("hello?", on_busy=policy)

    metadata = await refused(saying, grpc.StatusCode.FAILED_PRECONDITION, "PENDING_APPROVAL")
    assert metadata == {"approval_id": approval.id, "run_id": approval.run_id}


async def test_what_waited_before_the_question_waits_on(make_world: MakeWorld) -> None:
    secret, hold = ProbeTool("secret", approval=True), Gate()
    world = await make_world(secret)
    agent = await world.make_agent(["secret"])
    agent.model.will(call("secret", "c1", before=(hold,)), say("first"), say("second"))
    first = await agent.start("one")
    await hold.reached()
    second = await agent.start("two")

    hold.open()
    await world.wait_for(first, Run.STATE_AWAITING_APPROVAL)
    assert (await world.run(second)).state == Run.STATE_QUEUED
    await world.answer(approve("c1"), run_id=first)

    assert (await world.wait_for(second)).state == Run.STATE_COMPLETED
    assert [text_of(m) for m in await agent.log() if text_of(m)] == ["one", "first", "two", "second"]


async def test_places_on_the_node_are_limited_and_waiting_takes_none(make_world: MakeWorld) -> None:
    world = await make_world(ProbeTool("secret", approval=True), settings={"BRIDLE_MAX_RUNS": "1"})
    asking, busy, last = [await world.make_agent(["secret"]) for _ in range(3)]
    hold = Gate()
    asking.model.will(call("secret", "c1"))
    busy.model.will(say(hold))

    approval = await asking.ask()
    occupied = await busy.start("one")
    await hold.reached()
    waiting = await last.start("two")
    await asyncio.sleep(0.05)
    assert (await world.run(waiting)).state == Run.STATE_QUEUED

    # What is said to a run is heard however full the node is.
    await world.cancel(approval.run_id)
    await world.cancel(occupied)
    assert (await world.wait_for(waiting)).state == Run.STATE_COMPLETED
