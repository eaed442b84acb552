"""A channel that stays in the process: the same generated stubs, without the loopback hop.

Services call each other through stubs only. Where both live in one process, this channel hands the request object to
the other's servicer in the same task: its errors arrive as they were raised, and the caller's context is the callee's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping

    import grpc


class LocalChannel:
    """Pass it to `add_XServicer_to_server` in place of a server, and to `XStub` in place of a channel."""

    def __init__(self) -> None:
        self._handlers: dict[str, Any] = {}

    def add_generic_rpc_handlers(self, handlers: Iterable[Any]) -> None:
        """Generated code calls this too; the registered methods below say the same."""

    def add_registered_method_handlers(
        self, service: str, handlers: Mapping[str, grpc.RpcMethodHandler[Any, Any]]
    ) -> None:
        """Take a service's methods."""
        self._handlers |= {f"/{service}/{name}": handler for name, handler in handlers.items()}

    def unary_unary(self, method: str, *_: Any, **__: Any) -> Callable[..., Awaitable[Any]]:
        """A method with one answer."""

        def call(request: Any, **_: Any) -> Awaitable[Any]:
            answer: Awaitable[Any] = self._handlers[method].unary_unary(request, None)
            return answer

        return call

    def unary_stream(self, method: str, *_: Any, **__: Any) -> Callable[..., LocalStream]:
        """A method with many answers."""

        def call(request: Any, **_: Any) -> LocalStream:
            return LocalStream(self._handlers[method].unary_stream(request, None))

        return call


class LocalStream:
    """A stream of answers that can be cancelled, like grpc's own."""

    def __init__(self, responses: AsyncIterator[Any]) -> None:
        self._responses = responses

    def __aiter__(self) -> AsyncIterator[Any]:
        return self._responses

    def cancel(self) -> bool:
        """Nothing to do: the callee runs in the caller's task and ends with it."""
        return True
