"""The real server for each file of tests, on SQLite and on Postgres; each test makes its own blocks and agents."""

from collections.abc import AsyncIterator

import pytest

from tests.helpers.database import DatabaseFactory
from tests.helpers.inprocess import World, running_world
from tests.rpc.blocks.rig import Blocks


@pytest.fixture(scope="module")
async def world(databases: DatabaseFactory) -> AsyncIterator[World]:
    """A server and a client of it."""
    url = await databases.create()
    async with running_world(url) as made:
        yield made
    await databases.drop(url)


@pytest.fixture
def blocks(world: World) -> Blocks:
    """A client of the service."""
    return Blocks(world)
