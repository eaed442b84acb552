"""Fixtures: the examples, built, and a server to point them at."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.clients.build import BUILDERS, Example
from tests.helpers.server import ServerProcess, running_server


@pytest.fixture(scope="session", params=BUILDERS)
def example(request: pytest.FixtureRequest) -> Example:
    """Every example in turn."""
    return BUILDERS[request.param]()


@pytest_asyncio.fixture(scope="session")
async def server() -> AsyncIterator[ServerProcess]:
    """A server for every test that leaves it alive."""
    async with running_server() as process:
        yield process
