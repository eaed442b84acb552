"""The body of a streamed answer on its way out: cut into chunks as the script wants, written in few system calls."""

import asyncio
import itertools
from collections.abc import Iterable, Iterator

from services.fakellm.connection import Connection
from services.fakellm.http import LAST_CHUNK, chunk
from services.fakellm.record import Exchange
from services.fakellm.scripts import Wire

# Bytes that are collected before they are written: few system calls, and little memory for long answers.
_BATCH = 64 * 1024


class Outlet:
    """Takes events, sends chunks."""

    def __init__(self, connection: Connection, exchange: Exchange, wire: Wire) -> None:
        self._connection = connection
        self._exchange = exchange
        self._crlf = wire.crlf
        # A chunk is also written by itself if the script is about where bytes are cut.
        self._apart = bool(wire.sizes)
        self._cutter = _Sizes(wire.sizes) if wire.sizes else _Events(wire.events_per_chunk)
        self._ready: list[bytes] = []
        self._size = 0

    async def event(self, data: bytes) -> None:
        """An event, or a part of one."""
        for piece in self._cutter.cut(data.replace(b"\n", b"\r\n") if self._crlf else data):
            self._put(piece)
            if self._apart:
                await self._write()
                await asyncio.sleep(0)
        if self._size >= _BATCH:
            await self._write()

    async def flush(self) -> None:
        """Everything goes out now."""
        rest = self._cutter.rest()
        if rest:
            self._put(rest)
        await self._write()

    async def finish(self) -> None:
        """The end of the body, as HTTP wants it."""
        rest = self._cutter.rest()
        if rest:
            self._put(rest)
        self._ready.append(LAST_CHUNK)
        await self._write()

    def _put(self, piece: bytes) -> None:
        self._ready.append(chunk(piece))
        self._size += len(piece)

    async def _write(self) -> None:
        if self._ready:
            self._connection.write(b"".join(self._ready))
            self._exchange.bytes_sent += self._size
            self._ready, self._size = [], 0
            await self._connection.drain()


class _Events:
    """So many events to a chunk."""

    def __init__(self, count: int) -> None:
        self._count = max(1, count)
        self._held: list[bytes] = []

    def cut(self, data: bytes) -> Iterable[bytes]:
        if self._count == 1:
            return (data,)
        self._held.append(data)
        return (self.rest(),) if len(self._held) >= self._count else ()

    def rest(self) -> bytes:
        held, self._held = b"".join(self._held), []
        return held


class _Sizes:
    """Chunks of these sizes in turn."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self._sizes = itertools.cycle(max(1, size) for size in sizes)
        self._size = next(self._sizes)
        self._held = bytearray()

    def cut(self, data: bytes) -> Iterator[bytes]:
        self._held += data
        while len(self._held) >= self._size:
            piece = bytes(self._held[: self._size])
            del self._held[: self._size]
            self._size = next(self._sizes)
            yield piece

    def rest(self) -> bytes:
        held, self._held = bytes(self._held), bytearray()
        return held
