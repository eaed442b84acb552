"""Calls into this process's own services through the whole interceptor chain, without the loopback hop.

The gateway is a client like any other: it is authenticated, limited, logged and counted, and its errors are statuses.
What it is spared is serialising each message and sending it through a socket to itself.
"""

from __future__ import annotations

import functools
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, NoReturn

import grpc
import grpc.aio

from common.rpc.adapter import Call

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence

    from common.rpc.adapter import Interceptor, Responses, StreamNext, UnaryNext

    Pairs = Sequence[tuple[str, str | bytes]]

_PEER: Final = "inprocess"


class InProcessChannel:
    """Pass it to `add_XServicer_to_server` in place of a server, and to `XStub` in place of a channel."""

    def __init__(self, interceptors: Sequence[Interceptor]) -> None:
        self._interceptors = tuple(interceptors)
        self._handlers: dict[str, Any] = {}

    def add_generic_rpc_handlers(self, handlers: Iterable[Any]) -> None:
        """Generated code calls this too; the registered methods below say the same."""

    def add_registered_method_handlers(
        self, service: str, handlers: Mapping[str, grpc.RpcMethodHandler[Any, Any]]
    ) -> None:
        """Take a service's methods."""
        self._handlers |= {f"/{service}/{name}": handler for name, handler in handlers.items()}

    def unary_unary(self, method: str, *_: Any, **__: Any) -> Callable[..., Coroutine[Any, Any, Any]]:
        """A method with one answer. The server's default deadline holds, whatever the caller's is."""
        behaviour = self._handlers[method].unary_unary

        def innermost(request: Any, call: Call) -> Any:
            return behaviour(request, call.context)

        head: UnaryNext = innermost
        for each in reversed(self._interceptors):
            head = functools.partial(each.intercept_unary, head)

        async def run(request: Any, *, metadata: Pairs = (), **_: Any) -> Any:
            call = Call(method, _Context(metadata), streaming=False, known=True)  # type: ignore[arg-type]
            try:
                answer = await head(request, call)
                call.completed = True
                return answer
            finally:
                call.close()

        return run

    def unary_stream(self, method: str, *_: Any, **__: Any) -> Callable[..., InProcessStream]:
        """A method with many answers."""
        behaviour = self._handlers[method].unary_stream

        async def innermost(request: Any, call: Call) -> Responses:
            responses: Responses = behaviour(request, call.context)
            return responses

        head: StreamNext = innermost
        for each in reversed(self._interceptors):
            head = functools.partial(each.intercept_stream, head)

        async def run(request: Any, metadata: Pairs) -> AsyncGenerator[Any, None]:
            call = Call(method, _Context(metadata), streaming=True, known=True)  # type: ignore[arg-type]
            try:
                async with aclosing(await head(request, call)) as responses:
                    async for response in responses:
                        yield response
                        call.sent += 1
                call.completed = True
            finally:
                call.close()

        def start(request: Any, *, metadata: Pairs = (), **_: Any) -> InProcessStream:
            return InProcessStream(run(request, metadata))

        return start


class InProcessStream:
    """A stream of answers. Close it in the task that reads it: the callee runs there too."""

    def __init__(self, responses: AsyncGenerator[Any, None]) -> None:
        self._responses = responses

    def __aiter__(self) -> AsyncIterator[Any]:
        return self._responses

    async def aclose(self) -> None:
        """End the callee, as a cancelled call would."""
        await self._responses.aclose()


class _Context:
    """What interceptors and generated code use of grpc's ServicerContext."""

    __slots__ = ("_code", "_details", "_metadata", "_trailing")

    def __init__(self, metadata: Pairs) -> None:
        self._metadata = metadata
        self._code: grpc.StatusCode | None = None
        self._details = ""
        self._trailing: Pairs = ()

    def invocation_metadata(self) -> Pairs:
        return self._metadata

    def set_trailing_metadata(self, pairs: Pairs) -> None:
        self._trailing = pairs

    def set_code(self, code: grpc.StatusCode) -> None:
        self._code = code

    def set_details(self, details: str) -> None:
        self._details = details

    def code(self) -> grpc.StatusCode | None:
        return self._code

    def peer(self) -> str:
        return _PEER

    def time_remaining(self) -> None:
        """No deadline of the caller's own: the server's default holds."""

    async def abort(self, code: grpc.StatusCode, details: str = "", trailing_metadata: Pairs = ()) -> NoReturn:
        self._code, self._details = code, details
        raise grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(*trailing_metadata), details)
