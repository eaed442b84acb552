"""A node's way to the database: real SQL, and everything that can happen around it."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from sqlalchemy import Connection

from common.db.sqlite import InlineSqlite
from common.errors import StoreUnavailable
from tests.simulation.world import World

P = ParamSpec("P")
T = TypeVar("T")


class NodeDead(BaseException):
    """The process is gone. Not an Exception: nothing may handle it and go on."""


class Witness(Protocol):
    """Sees every transaction before it commits."""

    def look(self, conn: Connection, node: str, fn: Callable[..., Any], args: tuple[Any, ...]) -> None:
        """Check what this transaction did."""
        ...


class Host(Protocol):
    """The process that talks to the database."""

    name: str
    dead: bool

    def crash(self) -> None:
        """kill -9."""
        ...


class FaultyDatabase:
    """Before and after every transaction: a stall, a refusal, a lost answer, or the end of the process."""

    dialect = "sqlite"

    def __init__(self, world: World, host: Host, db: InlineSqlite, witness: Witness) -> None:
        self._world = world
        self._host = host
        self._db = db
        self._witness = witness

    async def read(self, fn: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """See `Database.read`."""
        await self._before()
        try:
            return await self._db.read(fn, *args, **kwargs)
        finally:
            await self._after()

    async def lookup(self, fn: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """See `Database.lookup`."""
        return await self.read(fn, *args, **kwargs)

    async def write(self, fn: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """See `Database.write`."""
        witnessed = self._witnessed(fn)
        try:
            await self._before()
        except asyncio.CancelledError:
            # Its caller went away while it stood in line: it happens all the same, or it does not.
            if not self._host.dead and self._world.rng.random() < 0.5:
                with contextlib.suppress(Exception):
                    await self._db.write(witnessed, *args, **kwargs)
            raise
        self._say(fn, "begins")
        try:
            result = await self._db.write(witnessed, *args, **kwargs)
        except Exception:
            await self._pause()
            raise
        await self._after(written=True)
        return result

    async def ping(self) -> None:
        """See `Database.ping`."""

    async def close(self) -> None:
        """See `Database.close`: it is the world's."""

    def _witnessed(self, fn: Callable[Concatenate[Connection, P], T]) -> Callable[Concatenate[Connection, P], T]:
        def run(conn: Connection, /, *args: P.args, **kwargs: P.kwargs) -> T:
            result = fn(conn, *args, **kwargs)
            self._witness.look(conn, self._host.name, fn, args)
            return result

        return run

    async def _before(self) -> None:
        self._alive()
        world = self._world
        if world.chance(world.hazards.crash):
            world.trace("crash before a transaction")
            self._host.crash()
        await self._pause()
        self._alive()
        if world.chance(world.hazards.refused):
            raise StoreUnavailable

    async def _after(self, *, written: bool = False) -> None:
        world = self._world
        if world.chance(world.hazards.crash):
            world.trace("crash after a transaction")
            self._host.crash()
        await self._pause()
        self._alive()
        if written and world.chance(world.hazards.lost_answer):
            world.trace("the answer of a commit is lost")
            raise StoreUnavailable

    async def _pause(self) -> None:
        rng = self._world.rng
        if self._world.chance(self._world.hazards.stall):
            await asyncio.sleep(rng.choice((0.02, 0.3, 2.0)) * rng.random())
        elif rng.random() < 0.5:
            await asyncio.sleep(rng.choice((0.0, 0.001, 0.004)))

    def _alive(self) -> None:
        if self._host.dead:
            raise NodeDead(self._host.name)

    def _say(self, fn: Callable[..., Any], what: str) -> None:
        if self._world.tracing:
            self._world.trace(f"{getattr(fn, '__name__', fn)} {what}")
