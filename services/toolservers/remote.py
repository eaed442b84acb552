"""A service that implements ToolExecutor: one channel, health before use, deadlines and cancels passed on."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from common.pb.bridle.v1 import tool_executor_pb2, tool_executor_pb2_grpc
from common.rpc.channel import channel_options, service_config
from services.toolservers.api import (
    MAX_ANSWER_BYTES,
    MAX_TOOLS,
    Answer,
    Call,
    ServerFailed,
    bounded_progress,
    timed_out,
)
from services.toolservers.content import answer_from_pb
from services.toolservers.model import Grpc, OfferedTool, Secrets
from services.toolservers.offers import offered_from_pb

# A server that said it is well is believed for so long.
_HEALTH_SECONDS: Final = 5.0
_CHECK_SECONDS: Final = 3.0
_SERVING: Final = health_pb2.HealthCheckResponse.SERVING

_SERVICE: Final = tool_executor_pb2.DESCRIPTOR.services_by_name["ToolExecutor"]

_OPTIONS: Final = [
    *channel_options(service_config([_SERVICE]), MAX_ANSWER_BYTES),
    # A server that was restarted is found again soon, not within gRPC's two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 2000),
    # A channel that is rebuilt must not inherit the connections of the one before.
    ("grpc.use_local_subchannel_pool", 1),
]

_OUTCOMES: Final = {
    grpc.StatusCode.UNAVAILABLE: ("unavailable", "cannot be reached"),
    grpc.StatusCode.UNIMPLEMENTED: ("broken", "does not implement bridle.v1.ToolExecutor, or not this method of it"),
    grpc.StatusCode.RESOURCE_EXHAUSTED: (
        "too_large",
        "answered with more than is allowed, or has no room for the call",
    ),
    grpc.StatusCode.CANCELLED: ("unavailable", "broke the call off"),
    grpc.StatusCode.UNAUTHENTICATED: ("refused", "does not accept our credentials"),
    grpc.StatusCode.PERMISSION_DENIED: ("refused", "does not accept our credentials"),
}


class RemoteConnection:
    """One channel to one server."""

    def __init__(self, reach: Grpc, secrets: Secrets) -> None:
        self._channel = _channel(reach, secrets)
        self._executor: Any = tool_executor_pb2_grpc.ToolExecutorStub(self._channel)
        self._health: Any = health_pb2_grpc.HealthStub(self._channel)
        self._well_until = 0.0
        self._closed = False
        self.healthy = True

    async def offered(self, deadline: float) -> list[OfferedTool]:
        """The tools it offers."""
        with self._failures():
            await self._check(deadline)
            answer = await self._executor.ListExecutorTools(
                tool_executor_pb2.ListExecutorToolsRequest(), timeout=_left(deadline)
            )
        if len(answer.tools) > MAX_TOOLS:
            raise ServerFailed("broken", f"offers more than {MAX_TOOLS:,} tools")
        return offered_from_pb(answer.tools)

    async def call(self, call: Call) -> Answer:
        """Make a call. Leaving it, however that happens, ends it there."""
        with self._failures(call):
            await self._check(call.deadline)
            return await self._execute(call)

    async def close(self) -> None:
        """Close the channel; its calls end."""
        self._closed = True
        await self._channel.close()

    async def _execute(self, call: Call) -> Answer:
        stream = self._executor.ExecuteTool(
            tool_executor_pb2.ExecuteToolRequest(
                tool_call_id=call.call_id,
                name=call.tool,
                arguments=call.arguments,
                agent_id=call.agent_id,
                run_id=call.run_id,
                organization_id=call.organization_id,
            ),
            timeout=_left(call.deadline),
        )
        try:
            return await _read(stream, call)
        finally:
            # A call that nobody reads to its end is kept open by gRPC.
            stream.cancel()

    async def _check(self, deadline: float) -> None:
        """Ask for its health, unless it was asked a moment ago."""
        now = asyncio.get_running_loop().time()
        if now < self._well_until:
            return
        try:
            answer = await self._health.Check(
                health_pb2.HealthCheckRequest(), timeout=min(_CHECK_SECONDS, _left(deadline))
            )
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
                raise
        else:
            self.healthy = answer.status == _SERVING
            if not self.healthy:
                raise ServerFailed("unhealthy", "says that it is not serving now")
        self.healthy = True
        self._well_until = asyncio.get_running_loop().time() + _HEALTH_SECONDS

    @contextmanager
    def _failures(self, call: Call | None = None) -> Iterator[None]:
        try:
            yield
        except grpc.aio.AioRpcError as error:
            raise self._failure(error, call) from None
        except asyncio.CancelledError:
            # To gRPC, closing a channel cancels who waits for it. Nobody has, if the task does not know of it.
            task = asyncio.current_task()
            if not self._closed or (task is not None and task.cancelling()):
                raise
            raise ServerFailed("unavailable", "was deleted or changed") from None

    def _failure(self, error: grpc.aio.AioRpcError, call: Call | None) -> ServerFailed:
        self._well_until = 0.0
        if error.code() is grpc.StatusCode.UNAVAILABLE:
            self.healthy = False
        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            return timed_out(call) if call else ServerFailed("timeout", "did not answer in time")
        outcome, text = _OUTCOMES.get(error.code(), ("broken", f"answered {error.code().name}"))
        details = " ".join((error.details() or "").split())[:500]
        return ServerFailed(outcome, f"{text} ({details})" if details else text)


async def _read(stream: Any, call: Call) -> Answer:
    report = bounded_progress(call.progress)
    async for response in stream:
        match response.WhichOneof("response"):
            case "progress":
                report(response.progress)
            case "result":
                return answer_from_pb(response.result)
    raise ServerFailed("broken", "ended the call without a result")


def _left(deadline: float) -> float:
    return max(0.001, deadline - asyncio.get_running_loop().time())


def _channel(reach: Grpc, secrets: Secrets) -> grpc.aio.Channel:
    if reach.plaintext:
        return grpc.aio.insecure_channel(reach.target, options=_OPTIONS)
    credentials = grpc.ssl_channel_credentials(
        root_certificates=reach.ca_pem.encode() or None,
        private_key=secrets.key_pem.encode() or None,
        certificate_chain=reach.certificate_pem.encode() or None,
    )
    return grpc.aio.secure_channel(reach.target, credentials, options=_OPTIONS)
