"""CompactConversation: older messages become a summary, and nothing else changes."""

import grpc

from common.pb.bridle.v1.agent_pb2 import CompactionSettings
from services.context.summary import PROMPT
from services.messages.model import Role, Text
from services.models.errors import ModelErrorType
from tests.helpers.inprocess import AgentClient, Run, World, refused, roles, text_of
from tests.helpers.models import Gate, call, fail, say
from tests.rpc.conversations.rig import Conversations


async def talk(agent: AgentClient, count: int = 6) -> None:
    for number in range(count):
        await agent.send(f"number {number}")


def shown(agent: AgentClient) -> list[str]:
    """What the model was shown last."""
    messages = agent.model.calls[-1].request.messages
    return [part.text for message in messages for part in message.parts if isinstance(part, Text)]


async def test_older_messages_become_a_summary(conversations: Conversations, agent: AgentClient) -> None:
    await talk(agent)
    before = await conversations.get(agent.conversation_id)
    agent.model.will(say("They counted."))

    done = await conversations.compact(agent.conversation_id)

    assert (done.summary, done.messages_before) == ("They counted.", 12)
    assert 1 < done.messages_after < 12
    request = agent.model.calls[-1].request
    assert request.system.startswith(PROMPT)
    assert "number 0" in shown(agent)[0]
    after = await conversations.get(agent.conversation_id)
    assert after.context_floor > before.context_floor
    assert after.etag != before.etag
    in_context = await conversations.log(agent.conversation_id, in_context=True)
    assert len(in_context) == done.messages_after
    (summary,) = [message for message in in_context if text_of(message) == "They counted."]
    assert (summary.run_id, roles([summary])) == ("", ["summary"])
    log = await conversations.log(agent.conversation_id)
    assert [message.seq for message in log] == list(range(1, 14))

    await agent.send("go on")
    assert shown(agent)[0] == "They counted."
    assert shown(agent)[-1] == "go on"
    assert agent.model.calls[-1].request.messages[0].role is Role.SUMMARY


async def test_again_summarises_the_summary(conversations: Conversations, agent: AgentClient) -> None:
    await talk(agent)
    agent.model.will(say("They counted."), say("They counted, it is said."))
    await conversations.compact(agent.conversation_id)

    done = await conversations.compact(agent.conversation_id)

    assert done.summary == "They counted, it is said."
    assert "They counted." in shown(agent)[0]
    in_context = roles(await conversations.log(agent.conversation_id, in_context=True))
    assert in_context.count("summary") == 1


async def test_the_mode_all_leaves_only_the_summary(world: World, conversations: Conversations) -> None:
    agent = await world.make_agent(compaction=CompactionSettings(mode=CompactionSettings.MODE_ALL))
    await talk(agent, 2)
    agent.model.will(say("They counted."))

    done = await conversations.compact(agent.conversation_id)

    assert (done.messages_before, done.messages_after) == (4, 1)
    await agent.send("go on")
    assert shown(agent) == ["They counted.", "go on"]


async def test_what_is_too_short_stays_as_it_is(conversations: Conversations, agent: AgentClient) -> None:
    before = await conversations.get(agent.conversation_id)

    done = await conversations.compact(agent.conversation_id)

    assert (done.summary, done.messages_before, done.messages_after) == ("", 0, 0)
    assert await conversations.get(agent.conversation_id) == before
    assert agent.model.calls == []


async def test_a_live_run_is_not_disturbed(conversations: Conversations, agent: AgentClient) -> None:
    await talk(agent)
    hold = Gate()
    agent.model.will(say("o", hold, "k"))
    run_id = await agent.start("hello")
    await hold.reached()

    metadata = await refused(conversations.compact(agent.conversation_id), grpc.StatusCode.ABORTED, "CONVERSATION_BUSY")

    assert metadata == {"run_id": run_id}
    hold.open()
    assert (await agent.world.wait_for(run_id)).state == Run.STATE_COMPLETED


async def test_a_run_that_starts_meanwhile_wins(conversations: Conversations, agent: AgentClient) -> None:
    await talk(agent)
    hold = Gate()

    async def start() -> None:
        agent.model.will(say("o", hold, "k"))
        started.append(await agent.start("hello"))
        await hold.reached()

    started: list[str] = []
    agent.model.will(say("They ", start, "counted."))

    metadata = await refused(conversations.compact(agent.conversation_id), grpc.StatusCode.ABORTED, "CONVERSATION_BUSY")

    assert [metadata["run_id"]] == started
    hold.open()
    await agent.world.wait_for(started[0])
    assert "summary" not in roles(await conversations.log(agent.conversation_id))


async def test_two_at_once_are_one(conversations: Conversations, agent: AgentClient) -> None:
    await talk(agent)

    async def overtake() -> None:
        agent.model.will(say("They counted first."))
        await conversations.compact(agent.conversation_id)

    agent.model.will(say("They ", overtake, "counted."))

    await refused(conversations.compact(agent.conversation_id), grpc.StatusCode.ABORTED, "STORE_CONFLICT")

    assert roles(await conversations.log(agent.conversation_id)).count("summary") == 1


async def test_a_model_that_fails_is_named(conversations: Conversations, agent: AgentClient) -> None:
    await talk(agent)
    agent.model.will(fail(ModelErrorType.AUTHENTICATION))

    metadata = await refused(
        conversations.compact(agent.conversation_id), grpc.StatusCode.UNAVAILABLE, "MODEL_CALL_FAILED"
    )

    assert metadata == {"type": "llm_authentication", "detail": "as told"}
    assert "summary" not in roles(await conversations.log(agent.conversation_id))


async def test_a_model_that_fails_once_is_asked_again(conversations: Conversations, agent: AgentClient) -> None:
    await talk(agent)
    agent.model.will(fail(), say(), say("They counted."))

    assert (await conversations.compact(agent.conversation_id)).summary == "They counted."


async def test_a_reset_forgets_the_summary_too(conversations: Conversations, agent: AgentClient) -> None:
    await talk(agent)
    agent.model.will(say("They counted."))
    await conversations.compact(agent.conversation_id)

    await conversations.reset(agent.conversation_id)

    assert await conversations.log(agent.conversation_id, in_context=True) == []
    await agent.send("who are you?")
    assert shown(agent) == ["who are you?"]


async def test_a_fork_has_the_summary_as_its_own(conversations: Conversations, agent: AgentClient) -> None:
    await talk(agent)
    agent.model.will(say("They counted."))
    await conversations.compact(agent.conversation_id)
    source = await conversations.log(agent.conversation_id, in_context=True)

    fork = await conversations.fork(agent.conversation_id)
    await conversations.reset(agent.conversation_id)

    copy = await conversations.log(fork.id, in_context=True)
    assert [text_of(message) for message in copy] == [text_of(message) for message in source]
    assert not {message.id for message in copy} & {message.id for message in source}
    await agent.send("go on", conversation_id=fork.id)
    assert shown(agent)[0] == "They counted."


async def test_calls_are_not_cut_from_their_returns(conversations: Conversations, world: World) -> None:
    agent = await world.make_agent(["roll_dice"])
    for number in range(4):
        agent.model.will(call("roll_dice", f"c{number}", sides=6), say("rolled"))
        await agent.send("roll")
    agent.model.will(say("They rolled."))

    done = await conversations.compact(agent.conversation_id)

    assert done.messages_after < done.messages_before
    kept = roles(await conversations.log(agent.conversation_id, in_context=True))
    assert kept[0] != "tool"
    await agent.send("go on")
    assert agent.model.calls[-1].ended == "finished"
