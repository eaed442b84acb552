"""The ASGI application of the API: finds the endpoint, decodes, calls it, answers, and counts all of it."""

from __future__ import annotations

import asyncio
import logging
import re
import time
import uuid
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

import grpc.aio
import msgspec

from common.rpc.context import REQUEST_ID_KEY
from gateway import errors
from gateway.backend import Caller
from gateway.http import decode, events
from gateway.http.credentials import metadata
from gateway.http.endpoint import Exchange, Reply
from gateway.http.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from starlette.types import Receive, Scope, Send

    from gateway.backend import Backend
    from gateway.http.endpoint import Endpoint
    from gateway.http.metrics import HttpMetrics
    from gateway.http.router import Router

_log = logging.getLogger(__name__)
_access = logging.getLogger("bridle.access")

_REQUEST_ID: Final = re.compile(r"[!-~]{1,128}")
_encode: Final = msgspec.json.Encoder().encode
# All paths that do not exist share one label value: a scanner must not fill the registry.
_NO_ROUTE: Final = "none"


class Api:
    """One instance per process."""

    def __init__(self, router: Router, backend: Backend, metrics: HttpMetrics, max_body_bytes: int) -> None:
        self._router = router
        self._backend = backend
        self._metrics = metrics
        self._max_body = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1000})
            return
        began = time.perf_counter()
        request = _Request(scope, receive, send)
        try:
            await self._answer(request)
        except Problem as problem:
            await request.refuse(problem)
        except grpc.aio.AioRpcError as error:
            await request.refuse(errors.problem(errors.read(error)))
        except Exception:
            _log.exception("%s %s failed", scope["method"], request.route)
            await request.refuse(Problem(500, {"detail": errors.UNKNOWN_ERROR, "request_id": request.id}))
        finally:
            self._count(request, time.perf_counter() - began)

    async def _answer(self, request: _Request) -> None:
        endpoint, path = self._router.find(request.method, request.path)
        request.route = endpoint.path
        request.refusal = endpoint.refusal
        exchange = await self._exchange(request, endpoint, path)
        answer = await endpoint.handler(exchange)
        if isinstance(answer, events.EventStream):
            await self._stream(request, answer)
        elif isinstance(answer, Reply):
            await request.respond(answer.status, answer.content, answer.media_type, answer.headers)
        else:
            await request.respond(200, _encode(answer), "application/json", {})

    async def _exchange(self, request: _Request, endpoint: Endpoint, path: dict[str, str]) -> Exchange[Any, Any]:
        headers = request.headers
        body = None
        if endpoint.body is not None:
            raw = await request.read(self._max_body)
            body = decode.body(raw, headers.get("content-type", ""), endpoint.body)
        return Exchange(
            path=path,
            query=decode.query(request.query_string, endpoint.query),
            body=body,
            headers=headers,
            caller=Caller(metadata(headers, request.id)),
            backend=self._backend,
            gone=request.until_gone,
        )

    async def _stream(self, request: _Request, stream: events.EventStream) -> None:
        """Send frames until the last one, or until the client is gone. What produces them goes on without it."""
        task = asyncio.current_task()
        if task is None:  # pragma: no cover - a server always has one
            raise RuntimeError("no task")
        watch = asyncio.ensure_future(request.until_gone())
        over = hung_up = False

        def on_gone(_: object) -> None:
            nonlocal hung_up
            if not over:
                hung_up = True
                task.cancel()

        watch.add_done_callback(on_gone)
        self._metrics.streams.inc()
        try:
            async with aclosing(stream.frames) as frames:
                await request.start(200, events.HEADERS, {})
                async for frame in frames:
                    await request.write(frame)
                    request.sent += 1
            over = True
            await request.end()
        except asyncio.CancelledError:
            if not hung_up:
                raise
            task.uncancel()
            request.status = 499
        finally:
            over = True
            watch.cancel()
            self._metrics.streams.dec()
            self._metrics.events.inc(request.sent)

    def _count(self, request: _Request, seconds: float) -> None:
        self._metrics.seconds(request.method, request.route, str(request.status)).observe(seconds)
        level = logging.ERROR if request.status == 500 else logging.INFO
        if _access.isEnabledFor(level):
            fields: dict[str, Any] = {
                "request_id": request.id,
                "method": request.method,
                "route": request.route,
                "path": request.path,
                "status": request.status,
                "ms": round(seconds * 1000, 3),
                "peer": request.peer,
            }
            if request.sent:
                fields["sent"] = request.sent
            _access.log(level, "http", extra={"fields": fields})


class _Request:
    """The ASGI side of one request."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.query_string: bytes = scope["query_string"]
        self.headers = {key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]}
        client = scope.get("client")
        self.peer = client[0] if client else ""
        given = self.headers.get(REQUEST_ID_KEY, "")
        self.id = given if _REQUEST_ID.fullmatch(given) else str(uuid.uuid4())
        self.route = _NO_ROUTE
        self.refusal: Callable[[Problem], Problem] | None = None
        self.status = 0
        self.sent = 0
        self._gone = False

    async def read(self, most: int) -> bytes:
        """The body, or 413."""
        length = self.headers.get("content-length", "")
        if length.isdigit() and int(length) > most:
            raise _too_large(most)
        pieces: list[bytes] = []
        size, more = 0, True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self._gone = True
                raise Problem(499, {"detail": "The client went away."})
            piece = message.get("body", b"")
            size += len(piece)
            if size > most:
                raise _too_large(most)
            pieces.append(piece)
            more = message.get("more_body", False)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def until_gone(self) -> None:
        """Until the client hangs up. A body that nobody wanted is skipped."""
        while not self._gone:
            message = await self._receive()
            self._gone = message["type"] == "http.disconnect"

    async def refuse(self, problem: Problem) -> None:
        """An error in the endpoint's shape, unless an answer was begun already."""
        if not self.status:
            told = self.refusal(problem) if self.refusal is not None else problem
            await self.respond(told.status, _encode(told.body), "application/json", told.headers)

    async def respond(self, status: int, content: bytes, media_type: str, headers: Mapping[str, str]) -> None:
        """A whole answer."""
        own = ((b"content-type", media_type.encode()), (b"content-length", str(len(content)).encode()))
        await self.start(status, own, headers)
        await self._send({"type": "http.response.body", "body": content})

    async def start(self, status: int, own: Iterable[tuple[bytes, bytes]], headers: Mapping[str, str]) -> None:
        """The head of an answer."""
        self.status = status
        given = ((key.encode("latin-1"), value.encode("latin-1")) for key, value in headers.items())
        head = [*own, (REQUEST_ID_KEY.encode(), self.id.encode()), *given]
        await self._send({"type": "http.response.start", "status": status, "headers": head})

    async def write(self, content: bytes) -> None:
        """A piece of an answer; waits while the client's buffers are full."""
        await self._send({"type": "http.response.body", "body": content, "more_body": True})

    async def end(self) -> None:
        """The end of an answer that was written in pieces."""
        await self._send({"type": "http.response.body", "body": b""})


def _too_large(most: int) -> Problem:
    return Problem(413, {"detail": f"The body must have at most {most:,} bytes."})
