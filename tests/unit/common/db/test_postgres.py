"""A Postgres that is not there."""

import pytest
from sqlalchemy import text

from common.db.engine import open_database
from common.db.migrate import MigrationError, check
from common.errors import StoreUnavailable

NOWHERE = "postgresql://bridle:hunter2@127.0.0.1:1/bridle?ssl=disable"


async def test_it_is_unavailable_and_opening_does_not_wait_for_it() -> None:
    db = open_database(NOWHERE)
    for call in (db.write, db.read):
        with pytest.raises(StoreUnavailable):
            await call(lambda conn: conn.execute(text("SELECT 1")))
    with pytest.raises(StoreUnavailable):
        await db.ping()
    await db.close()


def test_a_migration_says_so_in_one_line_without_the_password() -> None:
    with pytest.raises(MigrationError) as caught:
        check(NOWHERE)
    line = str(caught.value)
    assert line.startswith("cannot use the database postgresql+asyncpg://bridle:***@127.0.0.1:1/bridle: ")
    assert "\n" not in line
    assert "hunter2" not in line
