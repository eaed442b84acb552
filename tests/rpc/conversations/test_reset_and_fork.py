"""A reset empties the context and keeps the log; a fork is a copy that shares nothing."""

import asyncio
from typing import Any

import grpc
import pytest

from common.pb.bridle.v1.model_pb2 import ModelSettings
from tests.helpers.inprocess import (
    AgentClient,
    Message,
    Run,
    World,
    approve,
    calls_of,
    error_info,
    refused,
    returns_of,
    roles,
    text_of,
)
from tests.helpers.models import Gate, ProbeTool, call, calls, say
from tests.rpc.conversations.rig import Conversation, Conversations


def said(message: Message) -> tuple[Any, ...]:
    """Everything about a message that a copy keeps."""
    return message.seq, message.role, list(message.parts), message.name, message.otid, message.create_time


# --- reset ------------------------------------------------------------------------------------------------------------


async def test_a_reset_empties_the_context_and_keeps_the_log(conversations: Conversations, agent: AgentClient) -> None:
    await agent.send("my name is Ada")
    log = await agent.log()
    reset = await conversations.reset(agent.conversation_id)
    assert reset.context_floor == log[-1].seq + 1
    assert reset.etag != "v1"
    assert await agent.log(in_context=True) == []
    assert await agent.log() == log

    await agent.send("who am I?")
    shown = agent.model.calls[-1].request.messages
    assert ("Ada" in str(shown), len(shown)) == (False, 1)
    assert await conversations.texts(agent.conversation_id, in_context=True) == ["who am I?", "ok"]


async def test_a_second_reset_changes_nothing(conversations: Conversations, agent: AgentClient) -> None:
    await agent.send("hello")
    reset = await conversations.reset(agent.conversation_id)
    assert await conversations.reset(agent.conversation_id) == reset
    assert await conversations.get(agent.conversation_id) == reset


async def test_a_reset_of_one_conversation_leaves_the_others(conversations: Conversations, agent: AgentClient) -> None:
    made = await conversations.create(agent.id)
    await agent.send("hello")
    await agent.send("hello there", conversation_id=made.id)
    await conversations.reset(made.id)
    assert await conversations.texts(agent.conversation_id, in_context=True) == ["hello", "ok"]


async def test_a_busy_conversation_is_not_reset(
    conversations: Conversations, agent: AgentClient, slow: ProbeTool
) -> None:
    agent.model.will(call("slow"), say(Gate(), "never"))
    running = await agent.start("go")
    await slow.gate.reached()
    queued = await agent.start("next")
    for run_id in (running, queued):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await conversations.reset(agent.conversation_id)
        assert error_info(caught.value, grpc.StatusCode.ABORTED, "CONVERSATION_BUSY") == {"run_id": run_id}
        assert str(caught.value.details()).startswith("Cannot reset the conversation: ")
        await agent.world.cancel(run_id)
    await conversations.reset(agent.conversation_id)
    assert await agent.log(in_context=True) == []


async def test_an_open_approval_keeps_the_context(conversations: Conversations, world: World) -> None:
    agent = await world.make_agent(["roll_dice"], approval=["roll_dice"])
    agent.model.will(call("roll_dice", "c-1"), say("done"))
    approval = await agent.ask()
    await refused(conversations.reset(agent.conversation_id), grpc.StatusCode.ABORTED, "CONVERSATION_BUSY")
    answered = await world.answer(approve("c-1"), approval_id=approval.id)
    await world.wait_for(answered.run.id)
    assert len(agent.model.calls[-1].request.messages) == 3
    await conversations.reset(agent.conversation_id)


async def test_a_reset_races_with_a_run_and_never_cuts_it(conversations: Conversations, agent: AgentClient) -> None:
    for number in range(10):
        started, _ = await asyncio.gather(
            agent.start(f"message {number}"), conversations.reset(agent.conversation_id), return_exceptions=True
        )
        assert isinstance(started, str)
        await agent.world.wait_for(started)
        texts = await conversations.texts(agent.conversation_id, in_context=True)
        # Before the run, after it, or refused; never in the middle of it.
        assert texts[-2:] in ([f"message {number}", "ok"], [])


# --- fork -------------------------------------------------------------------------------------------------------------


async def test_a_fork_says_the_same_and_shares_nothing(conversations: Conversations, agent: AgentClient) -> None:
    agent.model.will(call("roll_dice"), say("done"))
    await agent.send("first")
    await agent.send("second")
    settings = ModelSettings(temperature=0)
    await conversations.update(Conversation(id=agent.conversation_id, summary="dice", model_settings=settings))
    source, log = await conversations.get(agent.conversation_id), await agent.log()
    fork = await conversations.fork(source.id)
    assert (fork.agent_id, fork.summary, fork.model_settings) == (agent.id, "dice", source.model_settings)
    assert (fork.is_default, fork.etag, fork.context_floor) == (False, "v1", source.context_floor)
    assert fork.last_message_time == source.last_message_time
    copied = await conversations.log(fork.id)
    assert [said(message) for message in copied] == [said(message) for message in log]
    assert {message.id for message in copied}.isdisjoint(message.id for message in log)
    assert {(message.run_id, message.step_id, message.conversation_id) for message in copied} == {("", "", fork.id)}
    assert await agent.log() == log


async def test_each_side_of_a_fork_goes_its_own_way(conversations: Conversations, agent: AgentClient) -> None:
    await agent.send("before")
    fork = await conversations.fork(agent.conversation_id)
    await agent.send("only here")
    await agent.send("only there", conversation_id=fork.id)
    assert "before" in str(agent.model.calls[-1].request.messages)
    assert await conversations.texts(agent.conversation_id) == ["before", "ok", "only here", "ok"]
    assert await conversations.texts(fork.id) == ["before", "ok", "only there", "ok"]
    await conversations.reset(agent.conversation_id)
    assert len(await conversations.log(fork.id, in_context=True)) == 4
    await conversations.delete(fork.id)
    assert len(await agent.log()) == 4


async def test_a_fork_keeps_the_floor(conversations: Conversations, agent: AgentClient) -> None:
    await agent.send("forgotten")
    await conversations.reset(agent.conversation_id)
    empty = await conversations.fork(agent.conversation_id)
    assert await conversations.log(empty.id, in_context=True) == []
    await agent.send("remembered")
    fork = await conversations.fork(agent.conversation_id)
    assert await conversations.texts(fork.id, in_context=True) == ["remembered", "ok"]
    assert await conversations.texts(fork.id) == ["forgotten", "ok", "remembered", "ok"]
    await agent.send("next", conversation_id=empty.id)
    assert await conversations.texts(empty.id, in_context=True) == ["next", "ok"]


async def test_an_empty_conversation_can_be_forked(conversations: Conversations, agent: AgentClient) -> None:
    fork = await conversations.fork(agent.conversation_id)
    assert not fork.HasField("last_message_time")
    await agent.send("hello", conversation_id=fork.id)
    assert await conversations.texts(fork.id) == ["hello", "ok"]


async def test_a_fork_of_a_running_turn_stops_before_open_calls(
    conversations: Conversations, world: World, slow: ProbeTool
) -> None:
    agent = await world.make_agent(["roll_dice", "slow"])
    agent.model.will(call("roll_dice"), calls(("roll_dice", "", {}), ("slow", "", {})), say("done"))
    run_id = await agent.start("go")
    await slow.gate.reached()
    source = await agent.log()
    assert len(calls_of(source)) > len(returns_of(source))
    fork = await conversations.fork(agent.conversation_id)
    copied = await conversations.log(fork.id)
    assert roles(copied) == ["user", "assistant", "tool"], "the turn that is complete, and not the open one"
    slow.gate.open()
    await world.wait_for(run_id)
    assert [said(message) for message in copied] == [said(message) for message in source[: len(copied)]]


async def test_a_fork_of_an_open_approval_can_be_talked_to(conversations: Conversations, world: World) -> None:
    agent = await world.make_agent(["roll_dice"], approval=["roll_dice"])
    agent.model.will(call("roll_dice", "c-1"))
    approval = await agent.ask("roll")
    fork = await conversations.fork(agent.conversation_id)
    assert await conversations.texts(fork.id) == ["roll"]
    assert fork.last_message_time == (await conversations.log(fork.id))[-1].create_time
    sent = await agent.send("never mind", conversation_id=fork.id)
    assert (sent.run.state, text_of(sent.messages[-1])) == (Run.STATE_COMPLETED, "ok")
    answered = await world.answer(approve("c-1"), approval_id=approval.id)
    assert (await world.wait_for(answered.run.id)).state == Run.STATE_COMPLETED, "the source goes on"


async def test_forks_taken_while_it_works_never_split_a_call(conversations: Conversations, world: World) -> None:
    agent = await world.make_agent(["roll_dice"])
    agent.model.will(*(call("roll_dice") for _ in range(20)), say("done"))
    run_id = await agent.start("go")
    forks = []
    while (await world.run(run_id)).state != Run.STATE_COMPLETED:
        forks.append(await conversations.fork(agent.conversation_id))
    log = [said(message) for message in await agent.log()]
    for fork in forks:
        copied = await conversations.log(fork.id)
        assert [said(message) for message in copied] == log[: len(copied)]
        assert [each.id for each in calls_of(copied)] == [each.tool_call_id for each in returns_of(copied)]


async def test_a_repeated_fork_makes_one(conversations: Conversations, agent: AgentClient) -> None:
    await agent.send("hello")
    forks = await asyncio.gather(*(conversations.fork(agent.conversation_id, "once") for _ in range(3)))
    assert forks == forks[:1] * 3
    await refused(conversations.fork(forks[0].id, "once"), grpc.StatusCode.ALREADY_EXISTS, "REQUEST_ID_REUSED")
    created = await conversations.create(agent.id, "once")
    assert created.id != forks[0].id, "an id belongs to its method"
    assert len((await conversations.page(agent.id))[0]) == 3
