"""A deadline for unary calls that came without one, so that none can wait for ever."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from common.errors import DeadlineExceeded

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from common.rpc.adapter import Call, Responses, StreamNext, UnaryNext


class DeadlineInterceptor:
    """A client's own deadline is enforced by grpc; streams live by heartbeats and get none."""

    def __init__(self, default_seconds: float, by_method: Mapping[str, float]) -> None:
        self._default = default_seconds
        self._by_method = by_method

    async def intercept_unary(self, call_next: UnaryNext, request: Any, call: Call) -> Any:
        """Stop the call when its default deadline is over."""
        if call.context.time_remaining() is not None:
            return await call_next(request, call)
        seconds = self._by_method.get(call.method, self._default)
        try:
            async with asyncio.timeout(seconds) as deadline:
                return await call_next(request, call)
        except TimeoutError:
            # Only our own: a TimeoutError from inside the handler is a failure of the handler.
            if deadline.expired():
                raise DeadlineExceeded(seconds) from None
            raise

    def intercept_stream(self, call_next: StreamNext, request: Any, call: Call) -> Awaitable[Responses]:
        """Streams have no default deadline."""
        return call_next(request, call)
