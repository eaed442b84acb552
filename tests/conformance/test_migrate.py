"""Migrations make exactly the tables that the code is written for, and can be taken back."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import Connection, inspect, select, text

from common.db import migrate
from common.db.engine import open_database
from common.db.tables import metadata, nodes
from tests.helpers.database import DatabaseFactory


@pytest.fixture
async def url(databases: DatabaseFactory) -> AsyncIterator[str]:
    """An empty database."""
    created = await databases.create(migrated=False)
    yield created
    await databases.drop(created)


async def tables(url: str) -> set[str]:
    db = open_database(url)
    try:
        return set(await db.read(lambda conn: inspect(conn).get_table_names()))
    finally:
        await db.close()


async def execute(url: str, statement: str) -> None:
    db = open_database(url)
    try:
        await db.write(lambda conn: conn.execute(text(statement)) and None)
    finally:
        await db.close()


async def test_upgrade_makes_the_tables_of_the_code(url: str) -> None:
    assert await asyncio.to_thread(migrate.current, url) is None
    assert not await asyncio.to_thread(migrate.check, url)
    await asyncio.to_thread(migrate.upgrade, url)
    assert await asyncio.to_thread(migrate.differences, url) == []
    assert await asyncio.to_thread(migrate.check, url)
    assert await asyncio.to_thread(migrate.current, url) == migrate.head()
    assert await tables(url) == {"alembic_version", *metadata.tables}


async def test_differences_are_found(url: str) -> None:
    await asyncio.to_thread(migrate.upgrade, url)
    await execute(url, "ALTER TABLE nodes DROP COLUMN address")
    found = await asyncio.to_thread(migrate.differences, url)
    assert [(kind, table, column.name) for kind, _, table, column in found] == [("add_column", "nodes", "address")]


async def test_upgrading_twice_changes_nothing(url: str) -> None:
    await asyncio.to_thread(migrate.upgrade, url)
    await asyncio.to_thread(migrate.upgrade, url)
    assert await asyncio.to_thread(migrate.check, url)


async def test_downgrade_takes_everything_back(url: str) -> None:
    await asyncio.to_thread(migrate.upgrade, url)
    await asyncio.to_thread(migrate.downgrade, url, "base")
    assert await tables(url) == {"alembic_version"}
    await asyncio.to_thread(migrate.upgrade, url)
    assert await asyncio.to_thread(migrate.check, url)


async def test_a_schema_of_a_newer_program_is_refused_in_one_line(url: str) -> None:
    await asyncio.to_thread(migrate.upgrade, url)
    await execute(url, "UPDATE alembic_version SET version_num = 'later'")
    assert not await asyncio.to_thread(migrate.check, url)
    with pytest.raises(migrate.MigrationError, match="later") as caught:
        await asyncio.to_thread(migrate.upgrade, url)
    assert "\n" not in str(caught.value)


async def test_the_schema_can_be_made_while_the_database_is_open(url: str) -> None:
    """A server takes the data folder first and migrates second, so that two of them never migrate at once."""

    def count(conn: Connection) -> int:
        return len(conn.execute(select(nodes)).all())

    db = open_database(url)
    await db.ping()
    await asyncio.to_thread(migrate.upgrade, url)
    assert await db.read(count) == 0
    await db.close()
