"""Counts and times every RPC; outside of auth and errors, so that it sees the final code."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from common.clock import Clock
    from common.rpc.adapter import Call, Responses, StreamNext, UnaryNext
    from common.telemetry.metrics import RpcMetrics

# All names that this server does not serve share one label value: a scanner must not fill the registry.
UNKNOWN_METHOD: Final = "unknown"


class MetricsInterceptor:
    """Feeds `RpcMetrics`."""

    def __init__(self, metrics: RpcMetrics, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock

    def intercept_unary(self, call_next: UnaryNext, request: Any, call: Call) -> Awaitable[Any]:
        """Start the measurement, then step aside."""
        self._begin(call)
        return call_next(request, call)

    async def intercept_stream(self, call_next: StreamNext, request: Any, call: Call) -> Responses:
        """Start the measurement and count messages as they pass: a stream may live for hours."""
        method = self._begin(call)
        responses = await call_next(request, call)
        return _counted(responses, self._metrics.sent(method).inc)

    def _begin(self, call: Call) -> str:
        method = call.method if call.known else UNKNOWN_METHOD
        in_flight = self._metrics.in_flight(method)
        in_flight.inc()
        started = self._clock.monotonic()

        def end(call: Call) -> None:
            in_flight.dec()
            elapsed = self._clock.monotonic() - started
            self._metrics.seconds(method, call.code.name).observe(elapsed)

        call.defer(end)
        return method


async def _counted(responses: Responses, count: Any) -> Responses:
    async with aclosing(responses):
        async for response in responses:
            count()
            yield response
