"""A real MCP server over HTTP, in this process."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from tests.helpers.mcp_server import Record, build
from tests.helpers.wait import eventually


class HttpServer:
    """Serves HTTP on a port of its own, which stays the same when it is started again."""

    def __init__(self, record: Record, *, legacy: bool, json_response: bool) -> None:
        self._record = record
        self._legacy = legacy
        self._json = json_response
        self._serving: asyncio.Task[None] | None = None
        self.requests: list[dict[str, str]] = []
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    async def start(self) -> None:
        """Listen."""
        app = build(self._record).streamable_http_app(json_response=self._json)
        listening = socket.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", self.port))
        self.port = listening.getsockname()[1]
        config = uvicorn.Config(self._seen(app), log_config=None, access_log=False, timeout_graceful_shutdown=1)
        self._uvicorn = _Server(config)
        self._serving = asyncio.create_task(self._uvicorn.serve(sockets=[listening]))
        await eventually(lambda: self._uvicorn.started)

    async def stop(self) -> None:
        """Hang up on everybody."""
        if self._serving is not None:
            self._uvicorn.should_exit = True
            await self._serving
            self._serving = None

    def _seen(self, app: Any) -> Any:
        async def asgi(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "http":
                headers = {name.decode(): value.decode() for name, value in scope["headers"]}
                self.requests.append(headers)
                if self._legacy and headers.get("mcp-protocol-version") in MODERN_PROTOCOL_VERSIONS:
                    # As a server of last year does.
                    await send({"type": "http.response.start", "status": 400, "headers": []})
                    await send({"type": "http.response.body", "body": b"unsupported protocol version"})
                    return
            await app(scope, receive, send)

        return asgi


class _Server(uvicorn.Server):
    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Leave signals to pytest."""
        await self._serve(sockets)


@asynccontextmanager
async def mcp_over_http(
    record: Record, *, legacy: bool = False, json_response: bool = False
) -> AsyncIterator[HttpServer]:
    """A server for the length of a block."""
    server = HttpServer(record, legacy=legacy, json_response=json_response)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
