"""One TCP connection, down to how it ends."""

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import cast

from services.fakellm.http import HttpError, Request, RequestReader, json_response

Handler = Callable[[Request, "Connection"], Awaitable[None]]


class Connection(asyncio.Protocol):
    """Reads requests one after the other and lets the handler write the answers."""

    def __init__(self, handler: Handler, connections: set["Connection"]) -> None:
        self._handler = handler
        self._connections = connections
        self._reader = RequestReader()
        self._task: asyncio.Task[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._gone = asyncio.Event()
        self._transport: asyncio.Transport
        # Whether the client has gone.
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The client is there."""
        self._transport = cast("asyncio.Transport", transport)
        self._connections.add(self)

    def data_received(self, data: bytes) -> None:
        """The client says something."""
        self._reader.feed(data)
        if self._task is None:
            self._take()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone, or we have let go of it."""
        self.lost = True
        self._gone.set()
        self._connections.discard(self)
        if self._task is not None:
            self._task.cancel()

    def pause_writing(self) -> None:
        """The client does not keep up."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """The client has caught up."""
        self._writable.set()

    def write(self, data: bytes) -> None:
        """Send, or queue if the client is slow."""
        self._transport.write(data)

    async def drain(self) -> None:
        """Wait while the client is slow."""
        await self._writable.wait()

    def close(self) -> None:
        """Hang up, after what was written."""
        self._transport.close()

    async def stop(self) -> None:
        """Give up what is being answered, and hang up."""
        task = self._task
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        self._transport.abort()
        await self._gone.wait()

    async def reset(self) -> None:
        """Hang up rudely: the client's TCP hears RST, after what was written."""
        # With this limit, to be writable means that the kernel has taken everything.
        self._transport.set_write_buffer_limits(high=0)
        await self.drain()
        taken = self._transport.get_extra_info("socket")
        # The event loop does not hand out its socket for changes; another handle of the same one does as well.
        with socket.socket(fileno=socket.dup(taken.fileno())) as handle:
            # To linger for 0 seconds is what makes the kernel send RST instead of FIN.
            handle.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    def _take(self) -> None:
        try:
            request = self._reader.next()
        except HttpError as error:
            self.write(b"".join(json_response(error.status, {"error": {"message": str(error)}})))
            self.close()
            return
        if request is not None:
            self._task = asyncio.create_task(self._handle(request))
        elif self._reader.leave_wanted():
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    async def _handle(self, request: Request) -> None:
        try:
            await self._handler(request, self)
        except BaseException as error:
            self._transport.abort()
            if self.lost and isinstance(error, asyncio.CancelledError):
                return
            raise
        self._task = None
        if not request.keep_alive:
            self.close()
        elif not self._transport.is_closing():
            self._take()
