"""Serves an application on the caller's event loop, and leaves signals to the caller."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from starlette.applications import Starlette

from common.startup import StartupError


@asynccontextmanager
async def http_server(app: Starlette, address: str, grace: float) -> AsyncIterator[int]:
    """Listen for the duration of the block; the port."""
    listening = _listen(address)
    config = uvicorn.Config(
        app, log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=max(1, int(grace))
    )
    server = _Server(config)
    serving = asyncio.ensure_future(server.serve(sockets=[listening]))
    try:
        yield listening.getsockname()[1]
    finally:
        server.should_exit = True
        await serving


class _Server(uvicorn.Server):
    """Uvicorn would take SIGINT and SIGTERM for itself; the process drains in an order of its own."""

    def install_signal_handlers(self) -> None:
        """Leave them alone."""

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve without capturing signals."""
        await self._serve(sockets)


def _listen(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host.strip("[]"), int(port)))
    except OSError as error:
        listening.close()
        raise StartupError(f"cannot listen on {address}: {error.strerror}") from None
    listening.setblocking(False)
    return listening
