"""SQLite: one writer, readers on WAL snapshots, so nobody ever sees "database is locked".

Writes and lookups run at once, on the event loop's own thread: a statement takes some tens of microseconds and waits
for no disk, where a hop to a thread and back costs more than the work and, under load, waits for the interpreter's lock
at every statement. What does wait for the disk has a thread of its own: folding the WAL into the file, reads of any
size, and all writes if each of them is to be flushed.

Durability: a commit survives kill -9 of the server always (it is in the kernel's hands). With the default
`synchronous=NORMAL` a power cut may lose the last commits, never corrupt the file; `full_sync=True` closes that gap for
one fsync per commit.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from common.db.errors import translated
from common.db.folder import DataDirError, FolderLock
from common.db.prepared import DirectConnection, warm
from common.db.workers import Inline, WalFolder, Workers
from common.errors import StoreUnavailable

P = ParamSpec("P")
T = TypeVar("T")

_PRAGMAS = (
    # Ours is the only server on the file, but a person with a shell may hold a lock for a moment. Longer than this the
    # event loop must not wait; callers try again.
    "busy_timeout = 500",
    "temp_store = MEMORY",
    "cache_size = -16000",
)
_FILE_PRAGMAS = ("journal_mode = WAL", "journal_size_limit = 67108864")
_PING_TIMEOUT = 2.0
_PING = text("SELECT 1")


def make_engine(path: Path | None, begin: str, *pragmas: str) -> Engine:
    """An engine whose transactions really start with `begin`: the driver's own handling of them is switched off."""
    engine = create_engine(
        URL.create("sqlite", database=None if path is None else str(path)),
        poolclass=NullPool,
        # isolation_level None: the driver would otherwise begin late, and never before DDL.
        connect_args={"isolation_level": None, "check_same_thread": False},
    )

    @event.listens_for(engine, "connect")
    def _connect(connection: Any, _record: object) -> None:
        for pragma in (*_PRAGMAS, *pragmas):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        # `DirectConnection.transact` may have begun already.
        if not _driver(connection).in_transaction:
            connection.exec_driver_sql(begin)

    return engine


class SqliteDatabase:
    """A SQLite file, shared by every task of this process and by no other process."""

    dialect = "sqlite"

    def __init__(self, path: Path, *, readers: int = 2, full_sync: bool = False) -> None:
        self._lock = FolderLock(path.parent)
        synchronous = f"synchronous = {'FULL' if full_sync else 'NORMAL'}"
        try:
            # The WAL is folded elsewhere: it is the one thing in a commit that waits for the disk.
            writer = _connect_file(path, "BEGIN IMMEDIATE", synchronous, "wal_autocheckpoint = 0")
            self._lookups = _connect_file(path, "BEGIN", "query_only = ON")
            others = [_connect_file(path, "BEGIN", "query_only = ON") for _ in range(readers)]
            self._folder = WalFolder(_connect_file(path, "BEGIN", synchronous))
        except DBAPIError as error:
            self._lock.release()
            raise DataDirError(f"cannot open the database {path}: {error.orig}") from error
        self._writer = Workers("sqlite-writer", [writer]) if full_sync else Inline(writer)
        self._readers = Workers("sqlite-reader", others)
        warm(writer.dialect)

    async def read(self, fn: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """See `Database.read`."""
        result: T = await self._readers.submit(partial(_transact, "BEGIN", fn, args, kwargs))
        return result

    async def lookup(self, fn: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """See `Database.lookup`."""
        if self._lookups.closed:
            raise StoreUnavailable
        return _transact("BEGIN", fn, args, kwargs, self._lookups)

    async def write(self, fn: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """See `Database.write`. A transaction that has begun ends, also when its caller was cancelled."""
        result: T = await self._writer.submit(partial(_transact, "BEGIN IMMEDIATE", fn, args, kwargs))
        return result

    async def ping(self) -> None:
        """See `Database.ping`. It stands in line with the writers: a stuck one is not ready."""
        try:
            async with asyncio.timeout(_PING_TIMEOUT):
                await self.write(_ping)
        except TimeoutError as error:
            raise StoreUnavailable from error

    async def close(self) -> None:
        """See `Database.close`. The last connection to close folds the WAL into the file."""
        await self._readers.close()
        await self._folder.close()
        self._lookups.close()
        await self._writer.close()
        self._lock.release()


class InlineSqlite:
    """A SQLite in memory that runs each transaction at once, in the caller's task: no threads, no await, no I/O.

    It is for deterministic simulation and for tests that want a database within microseconds.
    """

    dialect = "sqlite"

    def __init__(self, image: bytes = b"") -> None:
        """Start empty, or from what `image()` of another one gave."""
        self._connection = DirectConnection(make_engine(None, "BEGIN", "foreign_keys = ON"))
        if image:
            _driver(self._connection).deserialize(image)

    async def read(self, fn: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """See `Database.read`."""
        driver = _driver(self._usable())
        driver.execute("PRAGMA query_only = ON")
        try:
            return _transact("BEGIN", fn, args, kwargs, self._connection)
        finally:
            driver.execute("PRAGMA query_only = OFF")

    async def lookup(self, fn: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """See `Database.lookup`."""
        return await self.read(fn, *args, **kwargs)

    async def write(self, fn: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """See `Database.write`."""
        return _transact("BEGIN", fn, args, kwargs, self._usable())

    def image(self) -> bytes:
        """All committed data, to start another one from: a crash and a restart, or a schema made once."""
        data: bytes = _driver(self._connection).serialize()
        return data

    async def ping(self) -> None:
        """See `Database.ping`."""
        await self.write(_ping)

    async def close(self) -> None:
        """See `Database.close`."""
        self._connection.close()

    def _usable(self) -> DirectConnection:
        if self._connection.closed:
            raise StoreUnavailable
        return self._connection


def _connect_file(path: Path, begin: str, *pragmas: str) -> DirectConnection:
    return DirectConnection(make_engine(path, begin, *_FILE_PRAGMAS, "foreign_keys = ON", *pragmas))


def _transact(begin: str, fn: Callable[..., T], args: Any, kwargs: Any, connection: Any) -> T:
    with translated():
        result: T = connection.transact(begin, fn, args, kwargs)
    return result


def _driver(connection: Connection) -> Any:
    return connection.connection.driver_connection


def _ping(connection: Connection) -> None:
    connection.execute(_PING)
