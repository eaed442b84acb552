"""Somebody who is told of stopped runs, over real HTTP."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec import Struct
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.server import http_server


class Told(Struct, frozen=True):
    """One request that arrived."""

    headers: dict[str, str]
    body: bytes


class Receiver:
    """Answers with the next of `answers`, then with 200."""

    def __init__(self) -> None:
        self.answers: list[int] = []
        self.told: asyncio.Queue[Told] = asyncio.Queue()
        self.url = ""

    async def take(self, request: Request) -> Response:
        """One request."""
        self.told.put_nowait(Told(dict(request.headers), await request.body()))
        status = self.answers.pop(0) if self.answers else 200
        headers = {"location": self.url} if status == 302 else {}
        return Response(status_code=status, headers=headers)

    async def next(self, timeout: float = 10.0) -> Told:
        """The next request."""
        async with asyncio.timeout(timeout):
            return await self.told.get()


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    """A receiver on a free port of this machine."""
    receiver = Receiver()
    app = Starlette(routes=[Route("/hook", receiver.take, methods=["POST"])])
    async with http_server(app, "127.0.0.1:0", 1.0) as port:
        receiver.url = f"http://127.0.0.1:{port}/hook"
        yield receiver
