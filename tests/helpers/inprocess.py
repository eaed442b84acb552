"""The real server inside the test's process, and a client that says a lot in one line."""

from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from common.pb.bridle.v1 import (
    agent_pb2,
    agent_service_pb2,
    approval_pb2,
    approval_service_pb2,
    message_pb2,
    message_service_pb2,
    run_event_pb2,
    run_pb2,
    run_service_pb2,
    tool_rule_pb2,
)
from common.pb.bridle.v1.agent_service_pb2_grpc import AgentServiceStub
from common.pb.bridle.v1.approval_service_pb2_grpc import ApprovalServiceStub
from common.pb.bridle.v1.block_service_pb2_grpc import BlockServiceStub
from common.pb.bridle.v1.conversation_service_pb2_grpc import ConversationServiceStub
from common.pb.bridle.v1.message_service_pb2_grpc import MessageServiceStub
from common.pb.bridle.v1.model_service_pb2_grpc import ModelServiceStub
from common.pb.bridle.v1.run_service_pb2_grpc import RunServiceStub
from common.pb.bridle.v1.tool_service_pb2_grpc import ToolServiceStub
from common.settings import Settings
from services.app import Node, Parts, running
from services.tools.functions import FunctionTool
from tests.helpers.database import KINDS
from tests.helpers.models import ScriptedModel, ScriptedModels, say
from tests.helpers.sandbox import ScriptedSandbox
from tests.helpers.wait import eventually

Run = run_pb2.Run
Event = run_event_pb2.RunEvent
Message = message_pb2.Message
Decision = message_pb2.Decision
Rule = tool_rule_pb2.ToolRule
FINAL = (Run.STATE_COMPLETED, Run.STATE_FAILED, Run.STATE_CANCELLED)

# For the tests whose promise is kept by the database: they run on each kind of it.
on_both = pytest.mark.parametrize("kind", KINDS, indirect=True)

# Long enough for a loaded machine, short enough that a hang is a failed test and not a timeout of the suite.
_SECONDS = 10.0


@asynccontextmanager
async def running_world(
    database_url: str, tools: Iterable[FunctionTool] = (), settings: Mapping[str, str] | None = None, **parts: Any
) -> AsyncIterator["World"]:
    """A server on this database and a client of it. What is live at the end is given up at once."""
    models = ScriptedModels()
    environment = {
        "BRIDLE_GRPC_ADDRESS": "127.0.0.1:0",
        "BRIDLE_HTTP_ADDRESS": "127.0.0.1:0",
        "BRIDLE_DATABASE_URL": database_url,
        "BRIDLE_DRAIN_SECONDS": "0",
        **(settings or {}),
    }
    channel: grpc.aio.Channel | None = None
    try:
        # A real one is a process of its own, which a test that has no use for it need not wait for.
        parts.setdefault("sandbox", ScriptedSandbox())
        parts_given = Parts(models=models, tools=tuple(tools), **parts)
        async with running(Settings.from_env(environment), parts_given) as serving:
            channel = grpc.aio.insecure_channel(serving.grpc_address)
            yield World(channel, models, serving.node, serving.grpc_address, serving.http_address)
    finally:
        # After the server: what a client still hears when it ends is part of the contract.
        if channel is not None:
            await channel.close()


class World:
    """A client of every service of one server."""

    def __init__(
        self,
        channel: grpc.aio.Channel,
        models: ScriptedModels,
        node: Node,
        grpc_address: str = "",
        http_address: str = "",
    ) -> None:
        self.models = models
        self.node = node
        self.grpc_address = grpc_address
        self.http_address = http_address
        self.agents: Any = AgentServiceStub(channel)
        self.runs: Any = RunServiceStub(channel)
        self.messages: Any = MessageServiceStub(channel)
        self.approvals: Any = ApprovalServiceStub(channel)
        self.conversations: Any = ConversationServiceStub(channel)
        self.tools: Any = ToolServiceStub(channel)
        self.providers: Any = ModelServiceStub(channel)
        self.blocks: Any = BlockServiceStub(channel)

    async def make_agent(
        self, tools: Sequence[str] = (), *, approval: Sequence[str] = (), rules: Sequence[Rule] = (), **fields: Any
    ) -> "AgentClient":
        """An agent with a model of its own; calls of the tools in `approval` wait for a person."""
        model = self.models.make()
        guards = [Rule(tool_name=name, requires_approval=Rule.RequiresApproval()) for name in approval]
        agent = agent_pb2.Agent(model=model.handle, tool_rules=[*rules, *guards], **fields)
        request = agent_service_pb2.CreateAgentRequest(agent=agent, tool_names=tools)
        return AgentClient(self, await self.agents.CreateAgent(request, timeout=_SECONDS), model)

    async def run(self, run_id: str) -> Run:
        """The run as it is now."""
        run: Run = await self.runs.GetRun(run_service_pb2.GetRunRequest(run_id=run_id), timeout=_SECONDS)
        return run

    async def wait_for(self, run_id: str, *states: int, timeout: float = 5.0) -> Run:
        """The run, once it is in one of these states; in any final one if none is given."""

        def there(run: Run) -> bool:
            return run.state in (states or FINAL)

        async def look() -> Run:
            return await self.run(run_id)

        return await eventually(look, until=there, timeout=timeout)

    async def cancel(self, run_id: str, *, wait: float = 5.0, reason: str = "") -> Run:
        """Cancel a run and wait until it has stopped."""
        request = run_service_pb2.CancelRunRequest(run_id=run_id, reason=reason)
        if wait:
            request.wait.FromMilliseconds(int(wait * 1000))
        run: Run = await self.runs.CancelRun(request, timeout=_SECONDS)
        return run

    def follow(self, run_id: str, after: int = 0, **fields: Any) -> Any:
        """A stream of the run's events, open."""
        request = run_service_pb2.StreamRunRequest(run_id=run_id, after_seq=after, **fields)
        return self.runs.StreamRun(request, timeout=_SECONDS)

    async def events(self, run_id: str, after: int = 0, **fields: Any) -> list[Event]:
        """The run's events until its end (or its approval, if that is asked for)."""
        return [response.event async for response in self.follow(run_id, after, **fields) if response.HasField("event")]

    async def steps(self, run_id: str) -> list[run_pb2.Step]:
        """The run's steps, in order."""
        request = run_service_pb2.ListStepsRequest(run_id=run_id)
        return list((await self.runs.ListSteps(request, timeout=_SECONDS)).steps)

    async def log(self, **scope: Any) -> list[Message]:
        """Messages of an agent or a run, in order."""
        request = message_service_pb2.ListMessagesRequest(page_size=1000, **scope)
        return list((await self.messages.ListMessages(request, timeout=_SECONDS)).messages)

    async def approval(self, approval_id: str) -> approval_pb2.Approval:
        """The approval as it is now."""
        request = approval_service_pb2.GetApprovalRequest(approval_id=approval_id)
        found: approval_pb2.Approval = await self.approvals.GetApproval(request, timeout=_SECONDS)
        return found

    async def answer(self, *decisions: Decision, **fields: Any) -> approval_service_pb2.SubmitApprovalResponse:
        """Answer an approval, named by its id, its run or its agent."""
        request = approval_service_pb2.SubmitApprovalRequest(decisions=decisions, **fields)
        answered: approval_service_pb2.SubmitApprovalResponse = await self.approvals.SubmitApproval(
            request, timeout=_SECONDS
        )
        return answered


class AgentClient:
    """One agent, its model, and what can be said to it."""

    def __init__(self, world: World, agent: agent_pb2.Agent, model: ScriptedModel) -> None:
        self.world = world
        self.id: str = agent.id
        self.conversation_id: str = agent.default_conversation_id
        self.model = model

    def request(
        self, text: str, request_id: str = "", conversation_id: str = "", **options: Any
    ) -> run_service_pb2.CreateRunRequest:
        """What starts a run that is told this."""
        return run_service_pb2.CreateRunRequest(
            agent_id=self.id,
            conversation_id=conversation_id,
            messages=[user(text)],
            options=run_service_pb2.RunOptions(**options),
            request_id=request_id,
        )

    async def create(self, text: str, **fields: Any) -> run_service_pb2.CreateRunResponse:
        """Accept a message, and return at once."""
        created: run_service_pb2.CreateRunResponse = await self.world.runs.CreateRun(
            self.request(text, **fields), timeout=_SECONDS
        )
        return created

    async def start(self, text: str, **fields: Any) -> str:
        """The id of a new run that is told this."""
        return (await self.create(text, **fields)).run.id

    async def send(self, text: str, **fields: Any) -> message_service_pb2.SendMessageResponse:
        """Say something and wait until the run stops or asks."""
        request = message_service_pb2.SendMessageRequest(run=self.request(text, **fields))
        sent: message_service_pb2.SendMessageResponse = await self.world.messages.SendMessage(request, timeout=_SECONDS)
        return sent

    def stream(self, text: str, *, cancel_on_disconnect: bool = False, **fields: Any) -> Any:
        """Say something and see every event; the open stream."""
        request = message_service_pb2.StreamMessageRequest(
            run=self.request(text, **fields), cancel_on_disconnect=cancel_on_disconnect
        )
        return self.world.messages.StreamMessage(request, timeout=_SECONDS)

    async def ask(self, text: str = "do it", **fields: Any) -> approval_pb2.Approval:
        """Say something that makes the run wait for a person; the approval it waits for."""
        run = (await self.send(text, **fields)).run
        assert run.state == Run.STATE_AWAITING_APPROVAL, run
        return await self.world.approval(run.approval_id)

    async def get(self) -> agent_pb2.Agent:
        """The agent as it is now."""
        request = agent_service_pb2.GetAgentRequest(agent_id=self.id)
        agent: agent_pb2.Agent = await self.world.agents.GetAgent(request, timeout=_SECONDS)
        return agent

    async def log(self, **fields: Any) -> list[Message]:
        """Its messages, in order."""
        return await self.world.log(agent_id=self.id, **fields)


def user(text: str) -> message_pb2.InputMessage:
    """A message of a person."""
    return message_pb2.InputMessage(parts=[text_part(text)])


def text_part(text: str) -> message_pb2.Part:
    """A piece of text."""
    return message_pb2.Part(text=message_pb2.Text(text=text))


def approve(call_id: str) -> Decision:
    """Let the call run."""
    return Decision(tool_call_id=call_id, approve=message_pb2.Approve())


def deny(call_id: str, reason: str = "") -> Decision:
    """Do not let the call run."""
    return Decision(tool_call_id=call_id, deny=message_pb2.Deny(reason=reason))


def result(call_id: str, *content: str | message_pb2.Part, failed: bool = False) -> Decision:
    """What the call returned where the client ran it."""
    outcome = message_pb2.ToolReturn.OUTCOME_FAILED if failed else message_pb2.ToolReturn.OUTCOME_SUCCEEDED
    parts = [text_part(part) if isinstance(part, str) else part for part in content]
    return Decision(
        tool_call_id=call_id,
        result=message_pb2.ToolReturn(tool_call_id=call_id, outcome=outcome, content=parts),
    )


async def read_until(stream: Any, kind: str, count: int = 1) -> list[Event]:
    """The events of an open stream up to the one that is the `count`-th of this kind."""
    seen: list[Event] = []
    async for response in stream:
        if response.HasField("event"):
            seen.append(response.event)
            count -= response.event.WhichOneof("event") == kind
            if count == 0:
                return seen
    raise AssertionError(f"the stream ended before {kind}: {kinds(seen)}")


async def rest_of(stream: Any) -> list[Event]:
    """The events of an open stream until it ends."""
    return [response.event async for response in stream if response.HasField("event")]


def kinds(events: Iterable[Event]) -> list[str]:
    """What happened, by name."""
    return [str(event.WhichOneof("event")) for event in events]


def text_of(message: Message) -> str:
    """What a message says."""
    return "".join(part.text.text for part in message.parts)


def calls_of(messages: Iterable[Message]) -> list[message_pb2.ToolCall]:
    """The tool calls in these messages, in order."""
    return [part.tool_call for message in messages for part in message.parts if part.HasField("tool_call")]


def returns_of(messages: Iterable[Message]) -> list[message_pb2.ToolReturn]:
    """The tool returns in these messages, in order."""
    return [part.tool_return for message in messages for part in message.parts if part.HasField("tool_return")]


def return_text(returned: message_pb2.ToolReturn) -> str:
    """What a tool said."""
    return "".join(part.text.text for part in returned.content)


def roles(messages: Iterable[Message]) -> list[str]:
    """Who spoke, in order."""
    return [Message.Role.Name(message.role).removeprefix("ROLE_").lower() for message in messages]


async def assert_sound(agent: AgentClient) -> None:
    """What is in context is the log itself, and every tool call in it has exactly one outcome."""
    log = await agent.log()
    assert [message.id for message in await agent.log(in_context=True)] == [message.id for message in log]
    assert [message.seq for message in log] == sorted({message.seq for message in log})
    called = [call.id for call in calls_of(log)]
    returned = [returned.tool_call_id for returned in returns_of(log)]
    assert sorted(called) == sorted(returned)
    assert len(set(called)) == len(called)


async def assert_usable(agent: AgentClient) -> None:
    """The agent answers the next message, and the model is shown the whole log."""
    await assert_sound(agent)
    agent.model.will(say("yes"))
    sent = await agent.send("are you still there?")
    assert sent.run.state == Run.STATE_COMPLETED, sent.run
    assert text_of(sent.messages[-1]) == "yes"
    await assert_sound(agent)


async def refused(call: Awaitable[Any], code: grpc.StatusCode, reason: str) -> dict[str, str]:
    """The metadata of the ErrorInfo that a call is refused with."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return error_info(caught.value, code, reason)


def error_info(error: grpc.aio.AioRpcError, code: grpc.StatusCode, reason: str) -> dict[str, str]:
    """The metadata of an error's ErrorInfo, which must be of this kind."""
    assert error.code() is code, error.details()
    status = rpc_status.from_call(error)  # type: ignore[arg-type]  # reads only what both have
    assert status is not None
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    assert info.reason == reason
    return dict(info.metadata)


async def invalid(call: Awaitable[Any]) -> list[str]:
    """The fields that a call is refused for."""
    metadata = await refused(call, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_ARGUMENT")
    return metadata["fields"].split(",")


async def not_found(call: Awaitable[Any]) -> tuple[str, str]:
    """What a call did not find."""
    metadata = await refused(call, grpc.StatusCode.NOT_FOUND, "RESOURCE_NOT_FOUND")
    return metadata["resource"], metadata["id"]
