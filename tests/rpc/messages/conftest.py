"""The real server for each file of tests, on SQLite and on Postgres; each test has agents of its own."""

from collections.abc import AsyncIterator

import pytest

from tests.helpers.database import DatabaseFactory
from tests.helpers.inprocess import World, running_world
from tests.helpers.models import ProbeTool


@pytest.fixture(scope="module")
def probe() -> ProbeTool:
    """The tool that the server has beside the built-in ones."""
    return ProbeTool("look", returns="It is 20% off at Café Zoë.")


@pytest.fixture(scope="module")
async def world(databases: DatabaseFactory, probe: ProbeTool) -> AsyncIterator[World]:
    """A server and a client of it."""
    url = await databases.create()
    async with running_world(url, [probe.tool]) as made:
        yield made
    await databases.drop(url)
