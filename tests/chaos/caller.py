"""A client's connection: every call is repeated until the server has said yes or no."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio

from common.pb.bridle.v1 import agent_service_pb2_grpc, approval_service_pb2_grpc, message_service_pb2_grpc
from common.pb.bridle.v1 import run_service_pb2_grpc as run_api
from tests.chaos.ledger import Ledger

# A server that comes back is noticed at once.
_IMPATIENT = [("grpc.initial_reconnect_backoff_ms", 50), ("grpc.max_reconnect_backoff_ms", 100)]
_DEADLINE = 60.0
_PAUSE = 0.05


class Refused(Exception):
    """The server said no, and why."""

    def __init__(self, error: grpc.aio.AioRpcError) -> None:
        super().__init__(f"{error.code().name}: {error.details()}")
        self.code = error.code()


def unanswered(error: grpc.aio.AioRpcError) -> bool:
    """Whether the call must be made again, because no server of ours has said anything to it."""
    if error.code() is grpc.StatusCode.UNAVAILABLE:
        return True
    # What reaches a server while it stops, grpc itself turns away with a bare CANCELLED (grpc/grpc#41785).
    bare = not error.initial_metadata() and not error.trailing_metadata()
    return error.code() is grpc.StatusCode.CANCELLED and bare


class Caller:
    """The four services, over one channel that survives the server."""

    def __init__(self, address: str, ledger: Ledger) -> None:
        self._channel = grpc.aio.insecure_channel(address, options=_IMPATIENT)
        self._ledger = ledger
        self.agents = agent_service_pb2_grpc.AgentServiceStub(self._channel)
        self.approvals = approval_service_pb2_grpc.ApprovalServiceStub(self._channel)
        self.messages = message_service_pb2_grpc.MessageServiceStub(self._channel)
        self.runs = run_api.RunServiceStub(self._channel)

    async def close(self) -> None:
        """Hang up."""
        await self._channel.close()

    async def call(self, method: Any, request: Any) -> Any:
        """The answer; Refused if it is no. Without one, the same request is sent again."""
        while True:
            try:
                return await method(request, timeout=_DEADLINE, wait_for_ready=True)
            except grpc.aio.AioRpcError as error:
                if not unanswered(error):
                    raise Refused(error) from error
                self._ledger.note("calls repeated")
                await asyncio.sleep(_PAUSE)

    async def pages(self, method: Any, request: Any, field: str) -> AsyncIterator[Any]:
        """Everything on a list, page by page."""
        request.page_size = 500
        while True:
            answer = await self.call(method, request)
            for each in getattr(answer, field):
                yield each
            if not answer.next_page_token:
                return
            request.page_token = answer.next_page_token
