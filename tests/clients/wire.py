"""A connection that can be cut, between a client and a server that does not know of it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class Wire:
    """Forwards TCP connections to a server."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._ends: set[asyncio.StreamWriter] = set()
        self.cuts = 0

    def cut(self) -> None:
        """Break every connection that is open now; new ones are served."""
        self.cuts += len(self._ends) // 2
        for end in self._ends:
            end.transport.abort()

    async def connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until either side ends it."""
        host, _, port = self._target.rpartition(":")
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        ends = {writer, far_writer}
        self._ends |= ends
        try:
            await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
        finally:
            self._ends -= ends


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


@asynccontextmanager
async def wire_to(target: str) -> AsyncIterator[tuple[Wire, str]]:
    """A wire for the length of a block, and the address of its near end."""
    wire = Wire(target)
    listener = await asyncio.start_server(wire.connect, "127.0.0.1", 0)
    async with listener:
        host, port = listener.sockets[0].getsockname()[:2]
        yield wire, f"{host}:{port}"
        wire.cut()
