"""Runs of one conversation are serial, those of two are independent, and a conversation's model is used in it."""

from common.pb.bridle.v1.run_pb2 import Run
from services.agents.model import ModelSettings
from tests.helpers.inprocess import AgentClient, World, assert_usable, text_of
from tests.helpers.models import Gate, ProbeTool, call, say
from tests.rpc.conversations.rig import Conversation, Conversations


async def test_two_conversations_of_one_agent_run_at_the_same_time(
    conversations: Conversations, agent: AgentClient
) -> None:
    made = await conversations.create(agent.id)
    gate, other = Gate(), Gate()
    agent.model.will(say(gate, "one"))
    first = await agent.start("hello")
    await gate.reached()
    agent.model.will(say(other, "two"))
    second = await agent.start("hello too", conversation_id=made.id)
    await other.reached()
    for run_id in (first, second):
        assert (await agent.world.run(run_id)).state == Run.STATE_RUNNING
    # The later one ends first: neither waits for the other.
    other.open()
    assert (await agent.world.wait_for(second)).state == Run.STATE_COMPLETED
    assert (await agent.world.run(first)).state == Run.STATE_RUNNING
    gate.open()
    assert (await agent.world.wait_for(first)).state == Run.STATE_COMPLETED
    assert await conversations.texts(agent.conversation_id) == ["hello", "one"]
    assert await conversations.texts(made.id) == ["hello too", "two"]


async def test_runs_of_one_conversation_wait_for_each_other(
    conversations: Conversations, agent: AgentClient, slow: ProbeTool
) -> None:
    made = await conversations.create(agent.id)
    agent.model.will(call("slow"), say("one"), say("two"), say("three"))
    run_ids = [await agent.start(f"message {number}", conversation_id=made.id) for number in range(3)]
    await slow.gate.reached()
    states = [(await agent.world.run(run_id)).state for run_id in run_ids]
    assert states == [Run.STATE_RUNNING, Run.STATE_QUEUED, Run.STATE_QUEUED]
    slow.gate.open()
    for run_id in run_ids:
        assert (await agent.world.wait_for(run_id)).state == Run.STATE_COMPLETED
    texts = await conversations.texts(made.id)
    assert [text for text in texts if text] == ["message 0", "one", "message 1", "two", "message 2", "three"]


async def test_the_model_is_shown_only_its_conversation(conversations: Conversations, agent: AgentClient) -> None:
    made = await conversations.create(agent.id)
    await agent.send("in the default one")
    await agent.send("in the other one", conversation_id=made.id)
    shown = agent.model.calls[-1].request.messages
    assert len(shown) == 1
    assert "in the other one" in str(shown)
    await assert_usable(agent)


async def test_a_conversation_has_its_own_model_and_settings(conversations: Conversations, world: World) -> None:
    agent = await world.make_agent(model_settings={"temperature": 1, "context_window": 9000})
    own = world.models.make()
    made = await conversations.create(agent.id, model=own.handle, model_settings={"temperature": 0})
    own.will(say("from the other model"))
    sent = await agent.send("hello", conversation_id=made.id)
    assert text_of(sent.messages[-1]) == "from the other model"
    assert own.calls[0].request.settings == ModelSettings(temperature=0)
    assert [step.model for step in await world.steps(sent.run.id)] == [own.handle]

    await agent.send("hello")
    assert agent.model.calls[0].request.settings == ModelSettings(temperature=1, context_window=9000)
    assert len(own.calls) == 1, "the default conversation has the agent's"


async def test_what_a_conversation_does_not_set_is_the_agents(conversations: Conversations, world: World) -> None:
    agent = await world.make_agent(model_settings={"temperature": 1})
    own = world.models.make()
    only_model = await conversations.create(agent.id, model=own.handle)
    await agent.send("hello", conversation_id=only_model.id)
    assert own.calls[0].request.settings == ModelSettings(temperature=1)
    only_settings = await conversations.create(agent.id, model_settings={"max_output_tokens": 7})
    await agent.send("hello", conversation_id=only_settings.id)
    assert agent.model.calls[0].request.settings == ModelSettings(max_output_tokens=7)


async def test_a_run_may_name_another_model_than_its_conversation(conversations: Conversations, world: World) -> None:
    agent, own, named = await world.make_agent(), world.models.make(), world.models.make()
    made = await conversations.create(agent.id, model=own.handle)
    await agent.send("hello", conversation_id=made.id, model=named.handle)
    assert (len(named.calls), len(own.calls), len(agent.model.calls)) == (1, 0, 0)


async def test_a_change_of_model_holds_from_the_next_run_on(conversations: Conversations, world: World) -> None:
    agent, own = await world.make_agent(), world.models.make()
    await agent.send("hello")
    await conversations.update(Conversation(id=agent.conversation_id, model=own.handle))
    await agent.send("hello again")
    await conversations.update(Conversation(id=agent.conversation_id), "model")
    await agent.send("and again")
    assert (len(agent.model.calls), len(own.calls)) == (2, 1)


async def test_messages_move_its_time_and_not_its_etag(conversations: Conversations, agent: AgentClient) -> None:
    made = await conversations.create(agent.id)
    await agent.send("hello", conversation_id=made.id)
    after = await conversations.get(made.id)
    last = (await conversations.log(made.id))[-1]
    assert (after.etag, after.update_time, after.last_message_time) == (made.etag, made.update_time, last.create_time)
