"""What only a database server can do to us."""

import asyncio

import pytest
from sqlalchemy import Connection, text

from common.db.engine import Database
from common.errors import StoreUnavailable

pytestmark = pytest.mark.parametrize("databases", ["postgres"], indirect=True, scope="session")

OTHERS = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"


def sessions(conn: Connection, state: str) -> int:
    return int(conn.execute(text(f"SELECT count(*) {OTHERS} AND state = :state"), {"state": state}).scalar_one())


def end_all_sessions(conn: Connection) -> None:
    conn.execute(text(f"SELECT pg_terminate_backend(pid) {OTHERS}"))


async def test_a_restarted_server_is_noticed_and_no_caller_pays_for_it(db: Database) -> None:
    # All connections of the pool, so that each of them is then a dead one.
    await asyncio.gather(*(db.read(lambda conn: conn.execute(text("SELECT pg_sleep(0.05)"))) for _ in range(10)))
    await db.write(end_all_sessions)
    await asyncio.gather(*(db.write(sessions, "active") for _ in range(10)))
    await asyncio.gather(*(db.read(sessions, "active") for _ in range(10)))


async def test_cancelled_callers_leave_no_session_in_a_transaction(db: Database) -> None:
    def slow(conn: Connection) -> None:
        conn.execute(text("SELECT 1"))
        conn.execute(text("SELECT pg_sleep(10)"))

    tasks = [asyncio.create_task(db.write(slow)) for _ in range(10)]
    await asyncio.sleep(0.3)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert await db.read(sessions, "idle in transaction") == 0
    # The server was told, too: nobody is asleep in there.
    assert await db.read(sessions, "active") == 0


async def test_a_statement_that_takes_too_long_is_unavailable(db: Database) -> None:
    def slow(conn: Connection) -> None:
        conn.execute(text("SET LOCAL statement_timeout = 20"))
        conn.execute(text("SELECT pg_sleep(10)"))

    with pytest.raises(StoreUnavailable):
        await db.write(slow)
    await db.ping()


async def test_an_endless_conflict_is_given_up(db: Database) -> None:
    tries = 0

    def conflict(conn: Connection) -> None:
        nonlocal tries
        tries += 1
        conn.execute(text("DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '40001'; END $$"))

    with pytest.raises(Exception, match="Please retry") as caught:
        await db.write(conflict)
    assert getattr(caught.value, "reason", None) == "STORE_CONFLICT"
    assert tries == 8


async def test_an_unexpected_error_of_the_driver_stays_what_it_is(db: Database) -> None:
    with pytest.raises(Exception, match="no_such_table"):
        await db.read(lambda conn: conn.execute(text("SELECT * FROM no_such_table")))
