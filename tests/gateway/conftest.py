"""A real server with its gateway in the test's process, and a real HTTP client of it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import httpx2
import pytest

from tests.gateway.client import Gateway
from tests.helpers.database import DatabaseFactory, database_factory
from tests.helpers.inprocess import running_world
from tests.helpers.models import ProbeTool

MakeGateway = Callable[..., Awaitable[Gateway]]


@pytest.fixture(scope="session")
async def sqlite() -> AsyncIterator[DatabaseFactory]:
    """Where databases come from."""
    async with database_factory("sqlite") as factory:
        yield factory


@pytest.fixture
async def make_gateway(sqlite: DatabaseFactory) -> AsyncIterator[MakeGateway]:
    """Starts servers with the tools and settings a test wants."""
    async with AsyncExitStack() as stack:

        async def make(*tools: ProbeTool, settings: dict[str, str] | None = None, **parts: Any) -> Gateway:
            url = await sqlite.create()
            given = [probe.tool for probe in tools]
            world = await stack.enter_async_context(running_world(url, given, settings, **parts))
            client = await stack.enter_async_context(
                httpx2.AsyncClient(base_url=f"http://{world.http_address}", timeout=10)
            )
            return Gateway(world, client)

        yield make


@pytest.fixture
def secret() -> ProbeTool:
    """A tool whose calls a test lets wait for a person."""
    return ProbeTool("secret")


@pytest.fixture
def dice() -> ProbeTool:
    """A tool that just runs."""
    return ProbeTool("dice")


@pytest.fixture
async def gateway(make_gateway: MakeGateway, secret: ProbeTool, dice: ProbeTool) -> Gateway:
    """A server with both tools."""
    return await make_gateway(secret, dice)
