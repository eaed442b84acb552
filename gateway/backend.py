"""The services behind the gateway, as stubs, and how a call to one of them carries who is asking."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from common.pb.bridle.v1.agent_service_pb2_grpc import AgentServiceStub
from common.pb.bridle.v1.approval_service_pb2_grpc import ApprovalServiceStub
from common.pb.bridle.v1.block_service_pb2_grpc import BlockServiceStub
from common.pb.bridle.v1.conversation_service_pb2_grpc import ConversationServiceStub
from common.pb.bridle.v1.message_service_pb2_grpc import MessageServiceStub
from common.pb.bridle.v1.model_service_pb2_grpc import ModelServiceStub
from common.pb.bridle.v1.run_service_pb2_grpc import RunServiceStub
from common.pb.bridle.v1.tool_service_pb2_grpc import ToolServiceStub

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from common.pb.bridle.v1.agent_service_pb2_grpc import AgentServiceAsyncStub
    from common.pb.bridle.v1.approval_service_pb2_grpc import ApprovalServiceAsyncStub
    from common.pb.bridle.v1.block_service_pb2_grpc import BlockServiceAsyncStub
    from common.pb.bridle.v1.conversation_service_pb2_grpc import ConversationServiceAsyncStub
    from common.pb.bridle.v1.message_service_pb2_grpc import MessageServiceAsyncStub
    from common.pb.bridle.v1.model_service_pb2_grpc import ModelServiceAsyncStub
    from common.pb.bridle.v1.run_service_pb2_grpc import RunServiceAsyncStub
    from common.pb.bridle.v1.tool_service_pb2_grpc import ToolServiceAsyncStub

_SECONDS: Final = 30.0


class Backend:
    """Stubs of every service, on one channel."""

    def __init__(self, channel: Any, *, remote: bool) -> None:
        # Whether a lost stream may be found again on another node.
        self.remote = remote
        self.agents: AgentServiceAsyncStub = AgentServiceStub(channel)
        self.approvals: ApprovalServiceAsyncStub = ApprovalServiceStub(channel)
        self.blocks: BlockServiceAsyncStub = BlockServiceStub(channel)
        self.conversations: ConversationServiceAsyncStub = ConversationServiceStub(channel)
        self.messages: MessageServiceAsyncStub = MessageServiceStub(channel)
        self.models: ModelServiceAsyncStub = ModelServiceStub(channel)
        self.runs: RunServiceAsyncStub = RunServiceStub(channel)
        self.tools: ToolServiceAsyncStub = ToolServiceStub(channel)


class Caller:
    """Makes the calls of one request: its credential and its request id go with each of them."""

    __slots__ = ("_metadata",)

    def __init__(self, metadata: tuple[tuple[str, str], ...]) -> None:
        self._metadata = metadata

    async def __call__(self, method: Any, request: Any, timeout: float = _SECONDS) -> Any:
        """One answer."""
        return await method(request, metadata=self._metadata, timeout=timeout)

    @asynccontextmanager
    async def stream(self, method: Any, request: Any) -> AsyncIterator[AsyncIterator[Any]]:
        """Many answers; the call ends with the block."""
        call = method(request, metadata=self._metadata)
        try:
            yield aiter(call)
        finally:
            close = getattr(call, "aclose", None)
            if close is not None:
                await close()
            else:
                call.cancel()
                # Let the cancellation out before the task goes on to something else.
                await asyncio.sleep(0)
