"""A dry run shows exactly what a run would send, and leaves no trace."""

import json
from typing import Any

import grpc
import msgspec

from common.db.tables import agents, blocks, conversations, messages, runs
from common.ids import Prefix, new_id
from common.pb.bridle.v1 import (
    agent_service_pb2,
    block_pb2,
    block_service_pb2,
    conversation_pb2,
    conversation_service_pb2,
    tool_pb2,
)
from common.pb.bridle.v1 import message_service_pb2 as api
from common.pb.bridle.v1.model_pb2 import ModelSettings
from common.pb.bridle.v1.run_service_pb2 import CreateRunRequest, RunOptions
from tests.helpers.inprocess import AgentClient, Rule, World, invalid, not_found, refused
from tests.helpers.models import Gate, ProbeTool, call, say
from tests.rpc.agents.rig import rows


async def preview(agent: AgentClient, text: str = "hello", **fields: Any) -> Any:
    request = api.PreviewMessageRequest(run=agent.request(text, **fields))
    made = await agent.world.messages.PreviewMessage(request, timeout=10)
    assert made.provider == "script"
    return json.loads(made.request)


async def sent(agent: AgentClient, text: str = "hello", **fields: Any) -> Any:
    """What the provider was really asked first by a run with this message."""
    number = len(agent.model.calls)
    await agent.send(text, **fields)
    return asked(agent, number)


def asked(agent: AgentClient, number: int) -> Any:
    """One call of the model, without whoever watched it: a preview has nobody."""
    request = msgspec.structs.replace(agent.model.calls[number].request, watch=None)
    return json.loads(msgspec.json.encode(request))


async def counts(world: World) -> list[int]:
    return [await rows(world.node.db, table) for table in (agents, blocks, conversations, messages, runs)]


async def test_it_is_what_a_run_sends_and_nothing_is_stored(world: World) -> None:
    rules = [
        Rule(tool_name="look", run_first=Rule.RunFirst()),
        Rule(tool_name="wait", max_count=Rule.MaxCount(limit=1)),
    ]
    agent = await world.make_agent(["look", "wait"], rules=rules, system="Be brief.", timezone="Europe/Paris")
    human = block_service_pb2.CreateBlockRequest(block=block_pb2.Block(label="human", value="Ada"))
    block = await world.blocks.CreateBlock(human)
    await world.blocks.AttachBlock(block_service_pb2.AttachBlockRequest(agent_id=agent.id, block_id=block.id))
    agent.model.will(call("look"), say("done"))
    await agent.send("first")
    before, called = await counts(world), len(agent.model.calls)
    shown = await preview(agent)
    assert (await counts(world), len(agent.model.calls)) == (before, called)
    assert shown["forced"] is True
    assert [tool["name"] for tool in shown["tools"]] == ["look"]
    for text in ("Be brief.", "Ada", "at most 1 time", "Europe/Paris"):
        assert text in shown["system"]
    agent.model.will(call("look"), say("done"))
    assert shown == await sent(agent)


async def test_options_and_conversations_count(world: World) -> None:
    agent, other = await world.make_agent(), await world.make_agent()
    await agent.send("in the default conversation")
    conversation = conversation_pb2.Conversation(agent_id=agent.id, model_settings=ModelSettings(temperature=0.5))
    request = conversation_service_pb2.CreateConversationRequest(conversation=conversation)
    side = await world.conversations.CreateConversation(request)
    options: dict[str, Any] = {"system": "Otherwise.", "client_tools": [tool_pb2.ClientTool(name="mine")]}
    shown = await preview(agent, conversation_id=side.id, model=other.model.handle, **options)
    assert (shown["system"], shown["model"]) == ("Otherwise.", other.model.handle.partition("/")[2])
    assert [tool["name"] for tool in shown["tools"]] == ["mine"]
    assert len(shown["messages"]) == 1
    assert shown["settings"]["temperature"] == 0.5
    assert shown == await sent(agent, conversation_id=side.id, **options) | {"model": shown["model"]}


async def test_a_message_that_would_be_refused_is_refused(world: World) -> None:
    agent = await world.make_agent(["look"], approval=["look"])
    agent.model.will(call("look", "c-1"))
    approval = await agent.ask()
    metadata = await refused(preview(agent), grpc.StatusCode.FAILED_PRECONDITION, "PENDING_APPROVAL")
    assert metadata == {"approval_id": approval.id, "run_id": approval.run_id}
    denying: dict[str, Any] = {"on_pending_approval": RunOptions.ON_PENDING_APPROVAL_DENY_AND_CONTINUE}
    shown = await preview(agent, **denying)
    assert "denied" in shown["messages"][2]["parts"][0]["content"][0]["text"]
    assert shown == await sent(agent, **denying)


async def test_a_busy_conversation_is_taken_as_its_policy_says(world: World, probe: ProbeTool) -> None:
    agent = await world.make_agent(["look"])
    probe.gate = Gate()
    agent.model.will(call("look", "c-1"), say("late"))
    run_id = await agent.start("work")
    await probe.gate.reached()
    rejecting: dict[str, Any] = {"on_busy": RunOptions.ON_BUSY_REJECT}
    metadata = await refused(preview(agent, **rejecting), grpc.StatusCode.ABORTED, "CONVERSATION_BUSY")
    assert metadata == {"run_id": run_id}
    assert [each["role"] for each in (await preview(agent))["messages"]] == ["user", "assistant", "user"]
    interrupting: dict[str, Any] = {"on_busy": RunOptions.ON_BUSY_INTERRUPT}
    shown = await preview(agent, **interrupting)
    assert "cancelled" in shown["messages"][2]["parts"][0]["content"][0]["text"]
    agent.model.forget()
    number = len(agent.model.calls)
    await agent.send("hello", **interrupting)
    assert shown == asked(agent, number)
    probe.gate.open()


async def test_bad_requests_are_refused_as_those_of_runs(world: World) -> None:
    agent, other = await world.make_agent(), await world.make_agent()
    stub = world.messages
    wrong = CreateRunRequest(agent_id="x", options=RunOptions(max_steps=-1))
    fields = ["run.agent_id", "run.messages", "run.options.max_steps"]
    assert await invalid(stub.PreviewMessage(api.PreviewMessageRequest(run=wrong))) == fields
    assert await invalid(stub.PreviewMessage(api.PreviewMessageRequest())) == ["run.agent_id", "run.messages"]
    assert await not_found(preview(agent, model="nobody/knows")) == ("model", "nobody/knows")
    nothing = new_id(Prefix.CONVERSATION)
    assert await not_found(preview(agent, conversation_id=nothing)) == ("conversation", nothing)
    foreign = other.conversation_id
    assert await not_found(preview(agent, conversation_id=foreign)) == ("conversation", foreign)
    await world.agents.DeleteAgent(agent_service_pb2.DeleteAgentRequest(agent_id=other.id))
    assert await not_found(preview(other)) == ("agent", other.id)


async def test_a_model_that_is_gone_is_named(world: World) -> None:
    agent = await world.make_agent()
    world.models.remove(agent.model)
    assert await not_found(preview(agent)) == ("model", agent.model.handle)
