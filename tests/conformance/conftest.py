"""Every test here runs once on SQLite and once on Postgres."""

from collections.abc import AsyncIterator

import pytest

from common.db.engine import Database
from tests.helpers.database import KINDS, DatabaseFactory, database_factory, fresh_database


@pytest.fixture(scope="session", params=KINDS)
async def databases(request: pytest.FixtureRequest) -> AsyncIterator[DatabaseFactory]:
    """Where the databases of this kind come from."""
    async with database_factory(request.param) as factory:
        yield factory


@pytest.fixture
async def db(databases: DatabaseFactory) -> AsyncIterator[Database]:
    """A fresh database with our schema, open."""
    async with fresh_database(databases) as database:
        yield database
