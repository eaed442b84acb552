"""The real server on a fresh database for each test: SQLite, and Postgres too for tests marked with `on_both`."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.helpers.database import DatabaseFactory, database_factory
from tests.helpers.inprocess import World, running_world
from tests.helpers.models import ProbeTool

Factories = Callable[[str], Awaitable[DatabaseFactory]]


@pytest.fixture(scope="session")
async def factories() -> AsyncIterator[Factories]:
    """Where databases come from, by kind; each server is started when it is first needed."""
    made: dict[str, DatabaseFactory] = {}
    async with AsyncExitStack() as stack:

        async def factory(kind: str) -> DatabaseFactory:
            if kind not in made:
                made[kind] = await stack.enter_async_context(database_factory(kind))
            return made[kind]

        yield factory


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> str:
    """The kind of database; `on_both` gives it both values."""
    return str(getattr(request, "param", "sqlite"))


class MakeWorld:
    """Starts servers with the tools and settings a test wants, one after the other on the same database."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._running = AsyncExitStack()

    async def __call__(self, *tools: ProbeTool, settings: dict[str, str] | None = None, **parts: Any) -> World:
        """A server and a client of it."""
        given = [probe.tool for probe in tools]
        return await self._running.enter_async_context(running_world(self._url, given, settings, **parts))

    async def stop(self) -> None:
        """End what was started."""
        await self._running.aclose()


@pytest.fixture(scope="session")
async def endings(factories: Factories) -> AsyncIterator[list[asyncio.Task[None]]]:
    """Servers that are going away: most of that is waiting, which the next test need not do."""
    tasks: list[asyncio.Task[None]] = []
    yield tasks
    await asyncio.gather(*tasks)


@pytest.fixture
async def make_world(kind: str, factories: Factories, endings: list[asyncio.Task[None]]) -> AsyncIterator[MakeWorld]:
    """Servers that end with the test."""
    factory = await factories(kind)
    url = await factory.create()
    made = MakeWorld(url)
    yield made

    async def end() -> None:
        await made.stop()
        await factory.drop(url)

    endings.append(asyncio.ensure_future(end()))


@pytest.fixture
async def world(make_world: MakeWorld) -> World:
    """A server with no tools but the built-in ones."""
    return await make_world()
