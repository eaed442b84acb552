"""The calls that the chat makes, each with a deadline, and their errors in one line."""

from __future__ import annotations

import hashlib
import uuid
from typing import TYPE_CHECKING, Any, Final

import grpc
import grpc.aio

from common.pb.bridle.v1 import (
    agent_service_pb2,
    agent_service_pb2_grpc,
    approval_service_pb2,
    approval_service_pb2_grpc,
    message_pb2,
    message_service_pb2,
    message_service_pb2_grpc,
    run_service_pb2,
    run_service_pb2_grpc,
)
from common.rpc.channel import open_channel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from common.pb.bridle.v1 import agent_pb2, approval_pb2, run_pb2

_DEADLINE: Final = 10.0

# They change something, and are safe to repeat: we send a request_id, or they do nothing the second time.
_REPEATABLE: Final = (
    "bridle.v1.AgentService.CreateAgent",
    "bridle.v1.RunService.CreateRun",
    "bridle.v1.RunService.CancelRun",
    "bridle.v1.ApprovalService.SubmitApproval",
)


class Client:
    """One connection to a server. Make it inside the event loop that uses it."""

    def __init__(self, address: str) -> None:
        self.address = address
        services = (
            agent_service_pb2.DESCRIPTOR.services_by_name["AgentService"],
            approval_service_pb2.DESCRIPTOR.services_by_name["ApprovalService"],
            message_service_pb2.DESCRIPTOR.services_by_name["MessageService"],
            run_service_pb2.DESCRIPTOR.services_by_name["RunService"],
        )
        self._channel = open_channel(address, services, also_retry=_REPEATABLE)
        self._agents = agent_service_pb2_grpc.AgentServiceStub(self._channel)
        self._approvals = approval_service_pb2_grpc.ApprovalServiceStub(self._channel)
        self._messages = message_service_pb2_grpc.MessageServiceStub(self._channel)
        self._runs = run_service_pb2_grpc.RunServiceStub(self._channel)

    async def close(self) -> None:
        """Hang up."""
        await self._channel.close()

    async def create_agent(self, agent: agent_pb2.Agent, tools: Sequence[str] = ()) -> agent_pb2.Agent:
        """A new agent with these tools, by name."""
        request = agent_service_pb2.CreateAgentRequest(agent=agent, tool_names=tools, request_id=_request_id())
        return await self._agents.CreateAgent(request, timeout=_DEADLINE)

    async def agent(self, agent_id: str) -> agent_pb2.Agent:
        """An agent that is there already."""
        return await self._agents.GetAgent(agent_service_pb2.GetAgentRequest(agent_id=agent_id), timeout=_DEADLINE)

    async def start(self, agent_id: str, text: str) -> run_service_pb2.CreateRunResponse:
        """Say something; the answer names the run and where to follow it from."""
        message = message_pb2.InputMessage(parts=[message_pb2.Part(text=message_pb2.Text(text=text))])
        request = run_service_pb2.CreateRunRequest(agent_id=agent_id, messages=[message], request_id=_request_id())
        return await self._runs.CreateRun(request, timeout=_DEADLINE)

    def stream(self, run_id: str, after_seq: int) -> Any:
        """The open call: events after a cursor until the run stops. Cancel it when done."""
        return self._runs.StreamRun(run_service_pb2.StreamRunRequest(run_id=run_id, after_seq=after_seq))

    async def run(self, run_id: str) -> run_pb2.Run:
        """A run as it is now."""
        return await self._runs.GetRun(run_service_pb2.GetRunRequest(run_id=run_id), timeout=_DEADLINE)

    async def cancel(self, run_id: str) -> None:
        """Stop a run. Its stream will say when it has stopped."""
        request = run_service_pb2.CancelRunRequest(run_id=run_id, reason="cancelled in the chat")
        await self._runs.CancelRun(request, timeout=_DEADLINE)

    async def open_approval(self, agent_id: str) -> approval_pb2.Approval | None:
        """What the agent is waiting for, if anything."""
        request = approval_service_pb2.ListApprovalsRequest(agent_id=agent_id, page_size=1)
        response = await self._approvals.ListApprovals(request, timeout=_DEADLINE)
        return response.approvals[0] if response.approvals else None

    async def answer(self, approval: approval_pb2.Approval, decisions: Sequence[message_pb2.Decision]) -> None:
        """Answer an approval, vouching for the arguments as they were shown."""
        digests = {each.call.id: hashlib.sha256(each.call.arguments.encode()).hexdigest() for each in approval.calls}
        request = approval_service_pb2.SubmitApprovalRequest(
            approval_id=approval.id, decisions=decisions, arguments_sha256=digests, request_id=_request_id()
        )
        await self._approvals.SubmitApproval(request, timeout=_DEADLINE)

    async def history(self, agent_id: str, count: int) -> list[message_pb2.Message]:
        """The last messages, oldest first."""
        request = message_service_pb2.ListMessagesRequest(
            agent_id=agent_id, order_by="create_time desc", page_size=count
        )
        response = await self._messages.ListMessages(request, timeout=_DEADLINE)
        return list(reversed(response.messages))

    def describe(self, error: grpc.aio.AioRpcError) -> str:
        """What went wrong, in one line for a person."""
        # Our servers explain every refusal in the trailer; a status without it was made up by the transport.
        explained = any(key == "grpc-status-details-bin" for key, _ in error.trailing_metadata() or ())
        if error.code() is grpc.StatusCode.UNAVAILABLE and not explained:
            return f"cannot reach a server at {self.address} (start one with: bridle serve)"
        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED and not explained:
            return f"no answer from {self.address} in time"
        return " ".join((error.details() or error.code().name).split())


def _request_id() -> str:
    return str(uuid.uuid4())
