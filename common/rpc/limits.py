"""Refuses calls above a number of concurrent ones, before they cost anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from common.errors import LimitExceeded
from common.rpc.methods import is_infrastructure

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from common.rpc.adapter import Call, Responses, StreamNext, UnaryNext

_RETRY_AFTER_SECONDS: Final = 1.0


class LimitInterceptor:
    """Counts unary calls and streams apart: long streams must not starve short calls.

    grpc's own `maximum_concurrent_rpcs` counts both together, and probes too.
    """

    def __init__(self, max_unary: int, max_streams: int) -> None:
        self._unary = _Slots("concurrent calls", max_unary)
        self._streams = _Slots("concurrent streams", max_streams)

    def intercept_unary(self, call_next: UnaryNext, request: Any, call: Call) -> Awaitable[Any]:
        """Take a slot for a short call."""
        self._unary.take(call)
        return call_next(request, call)

    def intercept_stream(self, call_next: StreamNext, request: Any, call: Call) -> Awaitable[Responses]:
        """Take a slot for a stream."""
        self._streams.take(call)
        return call_next(request, call)


class _Slots:
    def __init__(self, name: str, maximum: int) -> None:
        self._name = name
        self._maximum = maximum
        self._used = 0

    def take(self, call: Call) -> None:
        if is_infrastructure(call.method):
            # Under overload a probe that is refused would get the process killed.
            return
        if self._used >= self._maximum:
            raise LimitExceeded(self._name, self._maximum, retry_after=_RETRY_AFTER_SECONDS)
        self._used += 1
        call.defer(self._release)

    def _release(self, _call: Call) -> None:
        self._used -= 1
