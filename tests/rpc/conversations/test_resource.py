"""A conversation as a resource: made, read, listed, changed and deleted."""

import asyncio
from typing import Any

import grpc
import grpc.aio
import pytest

from common.ids import Prefix, new_id
from common.pb.bridle.v1 import conversation_service_pb2 as api
from common.pb.bridle.v1.message_service_pb2 import GetMessageRequest
from common.pb.bridle.v1.model_pb2 import ModelSettings
from tests.helpers.inprocess import FINAL, AgentClient, Run, World, invalid, not_found, refused
from tests.helpers.models import Gate, ProbeTool, call, say
from tests.rpc.conversations.rig import Conversation, Conversations

NOT_AN_ID = "conv-1"


async def test_a_new_conversation_is_empty_and_the_agents(conversations: Conversations, agent: AgentClient) -> None:
    made = await conversations.create(
        agent.id, summary="trip", model=agent.model.handle, model_settings={"temperature": 0, "context_window": 9000}
    )
    assert made.id.startswith("conv-")
    assert (made.agent_id, made.summary, made.model, made.is_default) == (agent.id, "trip", agent.model.handle, False)
    assert (made.model_settings.HasField("temperature"), made.model_settings.context_window) == (True, 9000)
    assert made.create_time == made.update_time
    assert not made.HasField("last_message_time")
    assert await conversations.get(made.id) == made
    assert await conversations.log(made.id) == []


async def test_what_is_not_set_stays_absent(conversations: Conversations, agent: AgentClient) -> None:
    made = await conversations.create(agent.id, id="ignored", etag="ignored", is_default=True, context_floor=7)
    assert (made.model, made.summary, made.etag, made.context_floor) == ("", "", "v1", 0)
    assert not made.is_default
    assert not made.HasField("model_settings")


async def test_the_default_conversation_says_so(conversations: Conversations, agent: AgentClient) -> None:
    found = await conversations.get(agent.conversation_id)
    assert (found.is_default, found.agent_id, found.etag) == (True, agent.id, "v1")


async def test_a_bad_creation_names_its_fields(conversations: Conversations, agent: AgentClient) -> None:
    empty = conversations.stub.CreateConversation(api.CreateConversationRequest(), timeout=10)
    assert await invalid(empty) == ["conversation"]
    wrong = conversations.create("x", "r" * 129, summary="s" * 10_001, model="x", model_settings={"temperature": 3})
    assert await invalid(wrong) == [
        "conversation.agent_id",
        "conversation.summary",
        "conversation.model",
        "conversation.model_settings.temperature",
        "request_id",
    ]
    nobody = new_id(Prefix.AGENT)
    assert await not_found(conversations.create(nobody)) == ("agent", nobody)
    assert await not_found(conversations.create(agent.id, model="demo/nothing")) == ("model", "demo/nothing")
    isolated = conversations.create(agent.id, isolated_block_labels=["human"])
    metadata = await refused(isolated, grpc.StatusCode.UNIMPLEMENTED, "NOT_IMPLEMENTED")
    assert metadata == {"method": "conversation.isolated_block_labels"}
    assert len((await conversations.page(agent.id))[0]) == 1


async def test_a_repeated_creation_makes_one(conversations: Conversations, agent: AgentClient) -> None:
    twins = [conversations.create(agent.id, "once", summary="a") for _ in range(4)]
    first, *others = await asyncio.gather(*twins)
    assert others == [first] * 3
    changed = await conversations.update(Conversation(id=first.id, summary="b"))
    assert await conversations.create(agent.id, "once", summary="a") == changed
    await refused(
        conversations.create(agent.id, "once", summary="c"), grpc.StatusCode.ALREADY_EXISTS, "REQUEST_ID_REUSED"
    )
    assert len((await conversations.page(agent.id))[0]) == 2


async def test_conversations_are_listed_newest_first(conversations: Conversations, world: World) -> None:
    agent = await world.make_agent()
    other = await world.make_agent()
    mine = [await conversations.get(agent.conversation_id)]
    mine += [await conversations.create(agent.id, summary=str(number)) for number in range(4)]
    seen: list[Conversation] = []
    token = ""
    while True:
        page, token = await conversations.page(agent.id, 2, token)
        seen += page
        if not token:
            break
    assert seen == mine[::-1]
    everything, _ = await conversations.page()
    owners = [each.agent_id for each in everything[:6]]
    assert (owners.count(agent.id), owners.count(other.id)) == (5, 1)


async def test_a_list_is_refused_what_it_cannot_mean(conversations: Conversations, agent: AgentClient) -> None:
    await conversations.create(agent.id)
    _, token = await conversations.page(agent.id, 1)
    assert await invalid(conversations.page("x")) == ["agent_id"]
    assert await invalid(conversations.page(agent.id, -1)) == ["page_size"]
    assert await invalid(conversations.page(agent.id, 1, "x")) == ["page_token"]
    assert await invalid(conversations.page("", 1, token)) == ["page_token"]
    nobody = new_id(Prefix.AGENT)
    assert await not_found(conversations.page(nobody)) == ("agent", nobody)


async def test_an_update_changes_what_it_names(conversations: Conversations, agent: AgentClient) -> None:
    made = await conversations.create(agent.id, summary="a", model_settings={"temperature": 1, "context_window": 9000})
    changed = await conversations.update(Conversation(id=made.id, model=agent.model.handle))
    assert (changed.summary, changed.model, changed.etag) == ("a", agent.model.handle, "v2")
    changed = await conversations.update(Conversation(id=made.id), "model_settings.temperature", "model")
    assert (changed.model, changed.model_settings) == ("", ModelSettings(context_window=9000))
    changed = await conversations.update(Conversation(id=made.id, model="ignored"), "model_settings")
    assert not changed.HasField("model_settings")
    assert await conversations.update(changed) == changed, "what was read can be sent back"
    changed = await conversations.update(Conversation(id=made.id, summary="b"), "*")
    assert (changed.summary, changed.agent_id) == ("b", agent.id)
    assert await conversations.get(made.id) == changed
    assert (changed.etag, changed.create_time) == ("v5", made.create_time)


@pytest.mark.parametrize("path", ["nothing", "id", "etag", "context_floor", "is_default", "*,summary"])
async def test_a_mask_cannot_name_what_cannot_be_set(
    conversations: Conversations, agent: AgentClient, path: str
) -> None:
    wanted = Conversation(id=agent.conversation_id, summary="x")
    assert set(await invalid(conversations.update(wanted, *path.split(",")))) == {"update_mask"}
    assert (await conversations.get(agent.conversation_id)).etag == "v1"


async def test_a_bad_update_changes_nothing(conversations: Conversations, world: World, agent: AgentClient) -> None:
    made, other = await conversations.create(agent.id), await world.make_agent()

    def update(*paths: str, **fields: Any) -> Any:
        return conversations.update(Conversation(**{"id": made.id, **fields}), *paths)

    assert await invalid(update(id="x", summary="s" * 10_001)) == ["conversation.id", "conversation.summary"]
    assert await invalid(update(model="x")) == ["conversation.model"]
    assert await not_found(update(model="demo/nothing")) == ("model", "demo/nothing")
    assert await invalid(update(agent_id=other.id)) == ["conversation.agent_id"]
    assert await invalid(update("agent_id")) == ["conversation.agent_id"]
    assert await invalid(update("*", agent_id=other.id)) == ["conversation.agent_id"]
    await refused(update(isolated_block_labels=["x"]), grpc.StatusCode.UNIMPLEMENTED, "NOT_IMPLEMENTED")
    missing = new_id(Prefix.CONVERSATION)
    assert await not_found(update(id=missing, summary="x")) == ("conversation", missing)
    assert await conversations.get(made.id) == made


async def test_of_two_updates_with_one_etag_one_wins(conversations: Conversations, agent: AgentClient) -> None:
    made = await conversations.create(agent.id)
    updates = (conversations.update(Conversation(id=made.id, summary=each, etag=made.etag)) for each in "ab")
    results = await asyncio.gather(*updates, return_exceptions=True)
    won = [each for each in results if isinstance(each, Conversation)]
    lost = [each for each in results if isinstance(each, grpc.aio.AioRpcError)]
    assert [each.code() for each in lost] == [grpc.StatusCode.ABORTED]
    assert await conversations.get(made.id) == won[0]


async def test_a_deleted_conversation_is_gone(conversations: Conversations, agent: AgentClient) -> None:
    made = await conversations.create(agent.id)
    sent = await agent.send("hello", conversation_id=made.id)
    await conversations.delete(made.id)
    for call_it in (
        conversations.get(made.id),
        conversations.update(Conversation(id=made.id, summary="x")),
        conversations.delete(made.id),
        conversations.fork(made.id),
        conversations.reset(made.id),
        conversations.log(made.id),
        agent.start("still there?", conversation_id=made.id),
    ):
        assert await not_found(call_it) == ("conversation", made.id)
    assert [each.id for each in (await conversations.page(agent.id))[0]] == [agent.conversation_id]
    assert (await agent.world.run(sent.run.id)).state == Run.STATE_COMPLETED, "its runs stay"


async def test_messages_of_a_deleted_conversation_are_in_no_list(
    conversations: Conversations, agent: AgentClient
) -> None:
    made = await conversations.create(agent.id)
    gone = await agent.send("soon gone", conversation_id=made.id)
    kept = await agent.send("kept")
    await conversations.delete(made.id)
    assert {message.run_id for message in await agent.world.log()} == {kept.run.id}
    assert await agent.world.log(run_id=gone.run.id) == []
    message_id = gone.messages[0].id
    lookup = agent.world.messages.GetMessage(GetMessageRequest(message_id=message_id), timeout=10)
    assert await not_found(lookup) == ("message", message_id)


async def test_the_default_conversation_cannot_be_deleted(conversations: Conversations, agent: AgentClient) -> None:
    refusal = refused(
        conversations.delete(agent.conversation_id), grpc.StatusCode.FAILED_PRECONDITION, "RESOURCE_IN_USE"
    )
    assert (await refusal)["used_by"] == f"agent '{agent.id}'"
    assert (await agent.send("still there?")).run.state == Run.STATE_COMPLETED


async def test_open_runs_keep_their_conversation(
    conversations: Conversations, agent: AgentClient, slow: ProbeTool
) -> None:
    made = await conversations.create(agent.id)
    agent.model.will(call("slow"), say(Gate(), "never"))
    running = await agent.start("go", conversation_id=made.id)
    await slow.gate.reached()
    queued = await agent.start("next", conversation_id=made.id)
    for run_id in (running, queued):
        used = await refused(conversations.delete(made.id), grpc.StatusCode.FAILED_PRECONDITION, "RESOURCE_IN_USE")
        assert used == {"resource": "conversation", "id": made.id, "used_by": f"run '{run_id}'"}
        await agent.world.cancel(run_id)
    await conversations.delete(made.id)


async def test_a_run_that_waits_for_a_person_keeps_its_conversation(conversations: Conversations, world: World) -> None:
    agent = await world.make_agent(["slow"], approval=["slow"])
    made = await conversations.create(agent.id)
    agent.model.will(call("slow"))
    approval = await agent.ask("go", conversation_id=made.id)
    used = await refused(conversations.delete(made.id), grpc.StatusCode.FAILED_PRECONDITION, "RESOURCE_IN_USE")
    assert used["used_by"] == f"run '{approval.run_id}'"


async def test_deleting_races_with_a_new_run_and_one_of_them_wins(
    conversations: Conversations, agent: AgentClient
) -> None:
    for _ in range(10):
        made = await conversations.create(agent.id)
        started, deleted = await asyncio.gather(
            agent.start("hello", conversation_id=made.id), conversations.delete(made.id), return_exceptions=True
        )
        assert isinstance(started, str) or deleted is None
        if isinstance(started, str):
            # Both may only happen if the run had already stopped when the conversation went.
            assert deleted is not None or (await agent.world.run(started)).state in FINAL
            await agent.world.wait_for(started)


@pytest.mark.parametrize("method", ["Get", "Delete", "Fork", "Reset", "Compact"])
async def test_what_cannot_be_an_id_is_refused(conversations: Conversations, method: str) -> None:
    act = {
        "Get": conversations.get,
        "Delete": conversations.delete,
        "Fork": conversations.fork,
        "Reset": conversations.reset,
        "Compact": conversations.compact,
    }[method]
    for text in ("", NOT_AN_ID, new_id(Prefix.RUN)):
        assert await invalid(act(text)) == ["conversation_id"]
    missing = new_id(Prefix.CONVERSATION)
    assert await not_found(act(missing)) == ("conversation", missing)
