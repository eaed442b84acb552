"""Turns grpc.aio's handler-factory interceptors into `call_next` interceptors.

Two things are done here once, for every method:
- Messages are decoded and encoded inside the chain, so that a malformed request or a wrong response
  is an error like any other, and nothing is parsed before the caller is authenticated.
- Streams are driven with `context.write` in the RPC's own task. grpc.aio would close an async
  generator from another task when a client hangs up during a write; here its `finally` always runs in
  the task and context that it was started in, before the RPC ends.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from common.errors import InvalidArgument, NotImplementedYet

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence

Responses: TypeAlias = "AsyncGenerator[Any, None]"
UnaryNext: TypeAlias = "Callable[[Any, Call], Awaitable[Any]]"
StreamNext: TypeAlias = "Callable[[Any, Call], Awaitable[Responses]]"
_Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"

_log = logging.getLogger(__name__)


class Call:
    """One RPC in progress, as interceptors see it."""

    __slots__ = (
        "_deferred",
        "_metadata",
        "completed",
        "context",
        "known",
        "method",
        "request_id",
        "sent",
        "streaming",
    )

    def __init__(self, method: str, context: grpc.aio.ServicerContext[Any, Any], streaming: bool, known: bool) -> None:
        self.method = method
        self.context = context
        self.streaming = streaming
        self.known = known
        self.request_id = ""
        self.sent = 0
        self.completed = False
        self._deferred: list[Callable[[Call], None]] = []
        self._metadata: dict[str, str | bytes] | None = None

    @property
    def metadata(self) -> Mapping[str, str | bytes]:
        """The client's metadata; of a repeated key the last value."""
        if self._metadata is None:
            self._metadata = dict(self.context.invocation_metadata() or ())
        return self._metadata

    @property
    def code(self) -> grpc.StatusCode:
        """How the RPC ended; meaningful in deferred callbacks."""
        code: grpc.StatusCode | None = self.context.code()
        if code is not None:
            return code
        if self.completed:
            return grpc.StatusCode.OK
        # The client went away. When its deadline is over, that is why.
        late = self.context.time_remaining() == 0
        return grpc.StatusCode.DEADLINE_EXCEEDED if late else grpc.StatusCode.CANCELLED

    def defer(self, callback: Callable[[Call], None]) -> None:
        """Run the callback when the RPC is over, however it ends; last added runs first."""
        self._deferred.append(callback)

    def close(self) -> None:
        """Run the deferred callbacks; a failing one is logged and stops no other."""
        while self._deferred:
            callback = self._deferred.pop()
            try:
                callback(self)
            except Exception:
                _log.exception("a deferred callback of %s failed", self.method)


class Interceptor(Protocol):
    """Code around every RPC. One that only sets things up returns what `call_next` gives."""

    def intercept_unary(self, call_next: UnaryNext, request: Any, call: Call) -> Awaitable[Any]:
        """Around a call with one response."""
        ...

    def intercept_stream(self, call_next: StreamNext, request: Any, call: Call) -> Awaitable[Responses]:
        """Around a call with many responses; wrap the stream only if each message matters."""
        ...


class ChainAdapter(grpc.aio.ServerInterceptor):
    """The one grpc.aio interceptor: folds ours, outermost first, around each method once."""

    def __init__(self, interceptors: Sequence[Interceptor]) -> None:
        self._interceptors = tuple(interceptors)
        self._wrapped: dict[str, tuple[_Handler, _Handler]] = {}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[_Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> _Handler:
        """Find the method's handler and wrap it; called by grpc.aio for every RPC."""
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None:
            # Not remembered: a scanner may ask for any number of names.
            return self._stream(method, _unknown(method), known=False)
        cached = self._wrapped.get(method)
        if cached is None or cached[0] is not handler:
            wrap = self._stream if handler.response_streaming else self._unary
            cached = self._wrapped[method] = (handler, wrap(method, handler, known=True))
        return cached[1]

    def _unary(self, method: str, handler: _Handler, known: bool) -> _Handler:
        behaviour: Any = handler.stream_unary if handler.request_streaming else handler.unary_unary
        decode, encode = _decoder(handler), handler.response_serializer or _same

        async def innermost(request: Any, call: Call) -> Any:
            return encode(await behaviour(decode(request), call.context))

        head: UnaryNext = innermost
        for each in reversed(self._interceptors):
            head = functools.partial(each.intercept_unary, head)

        async def run(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            call = Call(method, context, streaming=False, known=known)
            try:
                response = await head(request, call)
                call.completed = True
                return response
            finally:
                call.close()

        if handler.request_streaming:
            return grpc.stream_unary_rpc_method_handler(run, handler.request_deserializer)
        return grpc.unary_unary_rpc_method_handler(run)

    def _stream(self, method: str, handler: _Handler, known: bool) -> _Handler:
        behaviour: Any = handler.stream_stream if handler.request_streaming else handler.unary_stream
        decode, encode = _decoder(handler), handler.response_serializer or _same

        async def innermost(request: Any, call: Call) -> Responses:
            responses: Responses = behaviour(decode(request), call.context)
            return responses if encode is _same else _encoded(responses, encode)

        head: StreamNext = innermost
        for each in reversed(self._interceptors):
            head = functools.partial(each.intercept_stream, head)

        async def run(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
            call = Call(method, context, streaming=True, known=known)
            try:
                async with aclosing(await head(request, call)) as responses:
                    async for response in responses:
                        await _write(context, response)
                        call.sent += 1
                call.completed = True
            finally:
                call.close()

        if handler.request_streaming:
            return grpc.stream_stream_rpc_method_handler(run, handler.request_deserializer)
        return grpc.unary_stream_rpc_method_handler(run)


def _same(message: Any) -> Any:
    return message


async def _write(context: grpc.aio.ServicerContext[Any, Any], response: Any) -> None:
    try:
        await context.write(response)
    except grpc.aio.InternalError:
        # A write fails only when the client is gone, which is no error of ours: grpc would log it as one.
        raise asyncio.CancelledError from None


async def _encoded(responses: Responses, encode: Callable[[Any], bytes]) -> Responses:
    async with aclosing(responses):
        async for response in responses:
            yield encode(response)


def _decoder(handler: _Handler) -> Callable[[Any], Any]:
    parse = handler.request_deserializer
    if parse is None or handler.request_streaming:
        return _same

    def decode(raw: bytes) -> Any:
        try:
            return parse(raw)
        except DecodeError:
            raise InvalidArgument.of("request", "is not a valid message of this method") from None

    return decode


def _unknown(method: str) -> _Handler:
    """Goes through the chain like any method, so that it is logged, counted and gets an ErrorInfo."""

    def refuse(_requests: Any, _context: Any) -> Responses:
        raise NotImplementedYet(method)

    return grpc.stream_stream_rpc_method_handler(refuse)
