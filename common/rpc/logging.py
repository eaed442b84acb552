"""The access log: one line per RPC, when it is over."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

import grpc

from common.rpc.methods import is_infrastructure

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from common.clock import Clock
    from common.rpc.adapter import Call, Responses, StreamNext, UnaryNext

_log = logging.getLogger("bridle.access")

# Our own fault; everything else is the caller's, or the network's.
_FAULTS: Final = frozenset({grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.DATA_LOSS})


class LoggingInterceptor:
    """Logs method, code, duration and number of streamed messages; never a message's content."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def intercept_unary(self, call_next: UnaryNext, request: Any, call: Call) -> Awaitable[Any]:
        """Note the time, then step aside."""
        self._watch(call)
        return call_next(request, call)

    def intercept_stream(self, call_next: StreamNext, request: Any, call: Call) -> Awaitable[Responses]:
        """Note the time, then step aside."""
        self._watch(call)
        return call_next(request, call)

    def _watch(self, call: Call) -> None:
        # Probes come every few seconds and say nothing.
        level = logging.DEBUG if is_infrastructure(call.method) else logging.INFO
        started = self._clock.monotonic()

        def write(call: Call) -> None:
            code = call.code
            severity = logging.ERROR if code in _FAULTS else level
            if not _log.isEnabledFor(severity):
                return
            fields: dict[str, Any] = {
                "request_id": call.request_id,
                "method": call.method,
                "code": code.name,
                "ms": round((self._clock.monotonic() - started) * 1000, 3),
                "peer": call.context.peer(),
            }
            if call.streaming:
                fields["sent"] = call.sent
            _log.log(severity, "rpc", extra={"fields": fields})

        call.defer(write)
