"""The connections to tool servers: one for each, kept while it is used, replaced when the server is changed."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from common.db.engine import Database
from common.seal import Seal
from services.toolservers import store
from services.toolservers.api import Connection, ServerFailed
from services.toolservers.model import Reach, Secrets, ToolServer, sealed_at

logger = logging.getLogger(__name__)

Connect = Callable[[Reach, Secrets], Connection]

# Nobody needs it: a process or a channel is given up, and opened again when it is needed.
_IDLE_SECONDS: Final = 600.0
_SWEEP_SECONDS: Final = 60.0
# What a server that was changed or has not been used still has under way may take so long to end.
_RETIRE_SECONDS: Final = 60.0


class _Entry:
    """A connection and who uses it."""

    def __init__(self, server: ToolServer, connection: Connection) -> None:
        self.kind = server.kind
        self.revision = server.revision
        self.connection = connection
        self.calls = 0
        self.used_at = asyncio.get_running_loop().time()
        self.unused = asyncio.Event()

    def enter(self) -> None:
        self.calls += 1
        self.unused.clear()

    def leave(self) -> None:
        self.calls -= 1
        self.used_at = asyncio.get_running_loop().time()
        if not self.calls:
            self.unused.set()


class Pool:
    """Connections by organization and name."""

    def __init__(self, db: Database, seal: Seal, connect: Connect) -> None:
        self._db = db
        self._seal = seal
        self._connect = connect
        self._entries: dict[tuple[str, str], _Entry] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._sweeper: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def using(self, server: ToolServer) -> AsyncGenerator[Connection, None]:
        """The connection to a server as it is stored now."""
        entry = self._entry(server)
        entry.enter()
        try:
            yield entry.connection
        finally:
            entry.leave()

    async def find(self, organization_id: str, name: str) -> ToolServer:
        """A server. Raises ServerFailed if it is gone, and lets go of its connection."""
        server = await self._db.lookup(store.find, organization_id, name)
        if server is None:
            await self.drop(organization_id, name)
            raise ServerFailed("unavailable", "is not registered")
        return server

    async def drop(self, organization_id: str, name: str) -> None:
        """Let go of a server that is gone; its calls end."""
        entry = self._entries.pop((organization_id, name), None)
        if entry is not None:
            await entry.connection.close()

    async def close(self) -> None:
        """Let go of everything."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        for task in self._ending:
            task.cancel()
        entries = [self._entries.pop(key) for key in list(self._entries)]
        await asyncio.gather(*(entry.connection.close() for entry in entries), *self._ending, return_exceptions=True)

    def census(self) -> Iterator[tuple[str, bool]]:
        """Each open connection's kind, and whether its server is healthy."""
        return ((entry.kind, entry.connection.healthy) for entry in list(self._entries.values()))

    def _entry(self, server: ToolServer) -> _Entry:
        key = server.organization_id, server.name
        entry = self._entries.get(key)
        # A call may have read its row before another one did: what is newer stays.
        if entry is not None and entry.revision >= server.revision:
            return entry
        if entry is not None:
            self._retire(entry)
        entry = self._entries[key] = _Entry(server, self._connect(server.reach, self._secrets(server)))
        if self._sweeper is None:
            self._sweeper = asyncio.create_task(self._sweep())
        return entry

    def _secrets(self, server: ToolServer) -> Secrets:
        if server.sealed is None:
            return Secrets()
        text = self._seal.open(server.sealed, sealed_at(server.organization_id, server.name))
        return msgspec.json.decode(text, type=Secrets)

    def _retire(self, entry: _Entry) -> None:
        """Close it once nobody uses it any more."""
        task = asyncio.create_task(_end(entry))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            old = asyncio.get_running_loop().time() - _IDLE_SECONDS
            for key, entry in list(self._entries.items()):
                if not entry.calls and entry.used_at < old:
                    del self._entries[key]
                    self._retire(entry)


async def _end(entry: _Entry) -> None:
    try:
        if entry.calls:
            async with asyncio.timeout(_RETIRE_SECONDS):
                await entry.unused.wait()
    except TimeoutError:
        logger.warning("calls of a tool server that was changed did not end", extra={"fields": {"kind": entry.kind}})
    finally:
        await entry.connection.close()
