"""The real server on SQLite and on Postgres; each test has an agent of its own."""

from collections.abc import AsyncIterator

import pytest

from tests.helpers.database import DatabaseFactory
from tests.helpers.inprocess import World, running_world
from tests.helpers.models import ProbeTool
from tests.rpc.tools.rig import Tools


@pytest.fixture(scope="module")
def dangerous() -> ProbeTool:
    """A tool that is behind a person unless somebody says otherwise."""
    return ProbeTool("delete_files", approval=True)


@pytest.fixture(scope="module")
async def world(databases: DatabaseFactory, dangerous: ProbeTool) -> AsyncIterator[World]:
    """A server and a client of it."""
    url = await databases.create()
    async with running_world(url, [dangerous.tool]) as made:
        yield made
    await databases.drop(url)


@pytest.fixture
def tools(world: World) -> Tools:
    """A client of the service."""
    return Tools(world)
