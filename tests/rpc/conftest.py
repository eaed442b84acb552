"""Every suite that asks for `databases` runs once on SQLite and once on Postgres."""

from collections.abc import AsyncIterator

import pytest

from tests.helpers.database import KINDS, DatabaseFactory, database_factory


@pytest.fixture(scope="session", params=KINDS)
async def databases(request: pytest.FixtureRequest) -> AsyncIterator[DatabaseFactory]:
    """Where the databases of this kind come from."""
    async with database_factory(request.param) as factory:
        yield factory
