"""common/rpc/adapter.py: the order of interceptors and what happens when a call is over."""

from collections.abc import AsyncGenerator, Awaitable
from typing import Any

import grpc
import grpc.aio
import pytest
from prometheus_client import CollectorRegistry

from common.clock import SystemClock
from common.rpc.adapter import Call, Responses, StreamNext, UnaryNext
from common.rpc.auth import Anonymous
from common.rpc.chain import ChainLimits, build_chain
from common.rpc.server import bind, build_server, graceful_stop
from common.telemetry.metrics import Metrics


class Tracer:
    """Writes down when it is entered and when the call is over."""

    def __init__(self, name: str, trace: list[str]) -> None:
        self._name = name
        self._trace = trace

    def intercept_unary(self, call_next: UnaryNext, request: Any, call: Call) -> Awaitable[Any]:
        self._enter(call)
        return call_next(request, call)

    def intercept_stream(self, call_next: StreamNext, request: Any, call: Call) -> Awaitable[Responses]:
        self._enter(call)
        return call_next(request, call)

    def _enter(self, call: Call) -> None:
        self._trace.append(f"{self._name} in")
        call.defer(lambda _: self._trace.append(f"{self._name} out"))


class Clumsy(Tracer):
    """Fails when the call is over."""

    def _enter(self, call: Call) -> None:
        def fail(_: Call) -> None:
            raise ValueError("clumsy")

        call.defer(fail)


async def collect(requests: Any, _context: Any) -> bytes:
    return b"".join([each async for each in requests])


async def double(requests: Any, _context: Any) -> AsyncGenerator[bytes, None]:
    async for each in requests:
        yield each * 2


async def test_interceptors_nest_and_every_kind_of_method_passes(caplog: pytest.LogCaptureFixture) -> None:
    trace: list[str] = []
    server = build_server([Tracer("outer", trace), Clumsy("clumsy", trace), Tracer("inner", trace)])
    handlers: dict[str, Any] = {
        "Collect": grpc.stream_unary_rpc_method_handler(collect),
        "Double": grpc.stream_stream_rpc_method_handler(double),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Kinds", handlers),))
    port = bind(server, "127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        collecting: Any = channel.stream_unary("/test.Kinds/Collect")
        doubling: Any = channel.stream_stream("/test.Kinds/Double")
        assert await collecting([b"a", b"b"], timeout=10) == b"ab"
        assert trace == ["outer in", "inner in", "inner out", "outer out"]
        assert [each async for each in doubling([b"a", b"b"], timeout=10)] == [b"aa", b"bb"]
    await graceful_stop(server, 0)
    assert trace[4:] == trace[:4]
    assert "a deferred callback of /test.Kinds/Collect failed" in caplog.text


def test_the_order_of_the_chain() -> None:
    chain = build_chain(
        clock=SystemClock(),
        metrics=Metrics(CollectorRegistry()),
        authenticator=Anonymous(),
        translate=lambda _: None,
        limits=ChainLimits(),
    )
    names = [type(each).__name__.removesuffix("Interceptor") for each in chain]
    assert names == ["Context", "Logging", "Metrics", "Error", "Deadline", "Limit", "Auth"]
