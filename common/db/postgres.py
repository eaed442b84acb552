"""Postgres through asyncpg: the same synchronous store functions, run in SQLAlchemy's greenlet bridge on a pool."""

import asyncio
import random
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from sqlalchemy import URL, Connection, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from common.db.errors import is_conflict, is_disconnect, translate
from common.errors import StoreUnavailable

P = ParamSpec("P")
T = TypeVar("T")

_ATTEMPTS = 8
_FIRST_PAUSE = 0.005
_PING_TIMEOUT = 2.0
_PING = text("SELECT 1")
_SESSION = {
    "application_name": "bridle",
    "timezone": "UTC",
    # Ours are short statements by key: one that runs this long is a mistake, and the caller has long given up.
    "statement_timeout": "30000",
    # A node that hangs inside a transaction must not hold its locks against all others.
    "idle_in_transaction_session_timeout": "60000",
    # Compiling a plan costs more than any statement of ours takes.
    "jit": "off",
}


class PostgresDatabase:
    """A pool of connections to one Postgres database. The first one is opened when it is needed."""

    dialect = "postgresql"

    def __init__(self, url: URL, *, pool_size: int = 10, pool_timeout: float = 10.0) -> None:
        self._engine = connect(url, pool_size=pool_size, pool_timeout=pool_timeout)
        # One snapshot for all statements of a read, as SQLite gives it.
        self._snapshots = self._engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        self._open = True

    async def read(self, fn: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """See `Database.read`."""
        return await self._attempts(self._snapshots, fn, *args, **kwargs)

    async def lookup(self, fn: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """See `Database.lookup`."""
        return await self.read(fn, *args, **kwargs)

    async def write(self, fn: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """See `Database.write`."""
        return await self._attempts(self._engine, fn, *args, **kwargs)

    async def ping(self) -> None:
        """See `Database.ping`."""
        try:
            async with asyncio.timeout(_PING_TIMEOUT):
                await self.read(_ping)
        except TimeoutError as error:
            raise StoreUnavailable from error

    async def close(self) -> None:
        """See `Database.close`."""
        self._open = False
        await self._engine.dispose()

    async def _attempts(
        self, engine: AsyncEngine, fn: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        pause = _FIRST_PAUSE
        for left in reversed(range(_ATTEMPTS)):
            if not self._open:
                raise StoreUnavailable
            attempt = _Attempt()
            try:
                return await attempt.run(engine, fn, *args, **kwargs)
            except Exception as error:
                if not (left and attempt.may_repeat(error)):
                    known = translate(error)
                    if known is None:
                        raise
                    raise known from error
            # Jitter, or the same transactions meet again.
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311 - not a secret
            pause *= 2
        raise AssertionError("the last attempt returns or raises")


class _Attempt:
    """One try at a transaction, which knows whether its commit may have reached the server."""

    def __init__(self) -> None:
        self._committing = False

    async def run(
        self, engine: AsyncEngine, fn: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        try:
            async with engine.connect() as connection:
                # Leaving without commit rolls back.
                result = await connection.run_sync(fn, *args, **kwargs)
                self._committing = True
                await connection.commit()
                return result
        except OSError as error:
            # Refused, unknown host, reset, no answer: in here it can only mean the database.
            raise StoreUnavailable from error

    def may_repeat(self, error: Exception) -> bool:
        """Conflicts always; a broken connection (a restarted server) only if nothing can have been committed."""
        return is_conflict(error) or (is_disconnect(error) and not self._committing)


def connect(url: URL, *, pool_size: int, pool_timeout: float) -> AsyncEngine:
    """An engine with our session settings; a URL may add options of its own (`?ssl=require`)."""
    return create_async_engine(
        url,
        pool_size=pool_size,
        # A burst waits for a connection: opening one costs more than most transactions, and servers count them.
        max_overflow=0,
        pool_timeout=pool_timeout,
        pool_recycle=1800,
        connect_args={"timeout": 10, "server_settings": _SESSION, "prepared_statement_cache_size": 500},
    )


def _ping(connection: Connection) -> None:
    connection.execute(_PING)
