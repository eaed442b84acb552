"""What an endpoint is: data, so that the router, the checks and the API document are made from one table."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from gateway.http.problems import Problem

if TYPE_CHECKING:
    from gateway.backend import Backend, Caller

B = TypeVar("B")
Q = TypeVar("Q")


class Exchange(Generic[B, Q]):
    """One request, decoded, and what is needed to answer it."""

    __slots__ = ("backend", "body", "caller", "gone", "headers", "path", "query")

    def __init__(
        self,
        *,
        path: dict[str, str],
        query: Q,
        body: B,
        headers: dict[str, str],
        caller: Caller,
        backend: Backend,
        gone: Callable[[], Awaitable[None]],
    ) -> None:
        self.path = path
        self.query = query
        self.body = body
        # Names in lower case; of a repeated one the last.
        self.headers = headers
        # Goes with every call to the backend: `await exchange.caller(exchange.backend.runs.GetRun, request)`.
        self.caller = caller
        self.backend = backend
        # Returns when the client has hung up.
        self.gone = gone


class Reply(msgspec.Struct, frozen=True):
    """An answer that is not just JSON with status 200."""

    content: bytes = b""
    status: int = 200
    media_type: str = "application/json"
    headers: dict[str, str] = {}


class Empty(msgspec.Struct, frozen=True):
    """No query, or no body."""


Handler = Callable[[Exchange[Any, Any]], Awaitable[Any]]


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A method of a path. The handler gives a value that is sent as JSON, a Reply, or an EventStream."""

    method: str
    path: str
    summary: str
    tag: str
    handler: Handler
    # The JSON body. None: a body is not read. A Struct without required fields may also be left out by the client.
    body: type[msgspec.Struct] | None = None
    query: type[msgspec.Struct] = Empty
    # Type of the JSON answer, for the API document.
    answer: Any = None
    # Whether it answers, or may answer, with server-sent events.
    streams: bool = False
    # Type of its errors, for the API document, and what makes them of the usual ones. None: the usual ones.
    error: Any = None
    refusal: Callable[[Problem], Problem] | None = None
