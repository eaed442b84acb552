"""What every store may rely on, whichever database it runs on."""

import asyncio
import time

import pytest
from sqlalchemy import Column, Connection, Integer, MetaData, String, Table, func, select, text, update
from sqlalchemy.exc import DBAPIError, IntegrityError

from common.db.engine import Database
from common.errors import StoreUnavailable

metadata = MetaData()
counters = Table("counters", metadata, Column("name", String(8), primary_key=True), Column("value", Integer))


@pytest.fixture(autouse=True)
async def two_counters(db: Database) -> None:
    def create(conn: Connection) -> None:
        metadata.create_all(conn)
        conn.execute(counters.insert(), [{"name": "a", "value": 0}, {"name": "b", "value": 100}])

    await db.write(create)


def add(conn: Connection, name: str, amount: int = 1) -> None:
    conn.execute(update(counters).where(counters.c.name == name).values(value=counters.c.value + amount))


def value(conn: Connection, name: str) -> int:
    return int(conn.execute(select(counters.c.value).where(counters.c.name == name)).scalar_one())


def linger(conn: Connection, seconds: float) -> None:
    """Be a transaction that takes a while."""
    if conn.dialect.name == "postgresql":
        conn.execute(select(func.pg_sleep(seconds)))
    else:
        time.sleep(seconds)


async def test_a_write_can_be_read_at_once(db: Database) -> None:
    for expected in range(1, 20):
        await db.write(add, "a")
        assert await db.read(value, "a") == expected


async def test_arguments_and_result_pass_through(db: Database) -> None:
    def together(conn: Connection, name: str, *, amount: int) -> int:
        add(conn, name, amount)
        return value(conn, name)

    assert await db.write(together, "a", amount=7) == 7


async def test_a_raise_rolls_everything_back(db: Database) -> None:
    def fail(conn: Connection) -> None:
        add(conn, "a")
        raise LookupError("no such thing")

    with pytest.raises(LookupError, match="no such thing"):
        await db.write(fail)
    assert await db.read(value, "a") == 0
    await db.write(add, "a")
    assert await db.read(value, "a") == 1


async def test_a_broken_constraint_is_the_stores_own_business(db: Database) -> None:
    def twice(conn: Connection) -> None:
        conn.execute(counters.insert().values(name="c", value=1))
        conn.execute(counters.insert().values(name="a", value=1))

    with pytest.raises(IntegrityError):
        await db.write(twice)
    assert await db.read(lambda conn: conn.execute(select(func.count()).select_from(counters)).scalar_one()) == 2


async def test_a_stop_iteration_does_not_hang_the_caller(db: Database) -> None:
    with pytest.raises(RuntimeError):
        await db.write(lambda conn: next(iter(())))
    await db.write(add, "a")


async def test_a_read_cannot_write(db: Database) -> None:
    with pytest.raises(DBAPIError):
        await db.read(add, "a")
    assert await db.read(value, "a") == 0
    await db.write(add, "a")


async def test_many_writers_lose_nothing(db: Database) -> None:
    async def writer() -> None:
        for _ in range(50):
            await db.write(add, "a")

    await asyncio.gather(*(writer() for _ in range(64)))
    assert await db.read(value, "a") == 64 * 50


async def test_a_read_sees_one_moment_while_others_write(db: Database) -> None:
    def move(conn: Connection) -> None:
        add(conn, "a", 1)
        add(conn, "b", -1)

    def total(conn: Connection) -> int:
        first = value(conn, "a")
        linger(conn, 0.002)
        return first + value(conn, "b")

    async def reader() -> set[int]:
        return {await db.read(total) for _ in range(20)}

    async def writer() -> None:
        for _ in range(50):
            await db.write(move)

    *seen, _, _ = await asyncio.gather(*(reader() for _ in range(8)), writer(), writer())
    assert all(totals == {100} for totals in seen)
    assert await db.read(value, "a") == 100


# SQLite runs a write at once, on the loop's own thread: nothing can happen beside it.
@pytest.mark.parametrize("databases", ["postgres"], indirect=True, scope="session")
async def test_reads_do_not_wait_for_a_slow_writer(db: Database) -> None:
    def slow(conn: Connection) -> None:
        add(conn, "a")
        linger(conn, 0.5)

    writing = asyncio.create_task(db.write(slow))
    await asyncio.sleep(0.1)
    assert await db.read(value, "a") == 0
    assert not writing.done()
    await writing
    assert await db.read(value, "a") == 1


async def test_transactions_that_lock_each_other_out_are_run_again(db: Database) -> None:
    def cross(conn: Connection, first: str, second: str) -> None:
        add(conn, first)
        linger(conn, 0.02)
        add(conn, second)

    await asyncio.gather(*(db.write(cross, *names) for names in [("a", "b"), ("b", "a")] * 2))
    assert await db.read(value, "a") == 4
    assert await db.read(value, "b") == 104


async def test_a_cancelled_write_is_whole_or_nothing_and_leaves_no_trace(db: Database) -> None:
    def both(conn: Connection) -> None:
        add(conn, "a")
        linger(conn, 0.005)
        add(conn, "b")

    for delay in range(30):
        tasks = [asyncio.create_task(db.write(both)) for _ in range(3)]
        await asyncio.sleep(delay / 2000)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    done = await db.write(value, "a")
    assert await db.write(value, "b") == 100 + done
    # More than there are connections: one that was lost, or left in a transaction, would show.
    await asyncio.gather(*(db.write(add, "a") for _ in range(40)))
    assert await db.read(value, "a") == done + 40


# SQLite runs a write at once, on the loop's own thread: nothing can happen beside it.
@pytest.mark.parametrize("databases", ["postgres"], indirect=True, scope="session")
async def test_a_cancelled_write_before_its_turn_never_happens(db: Database) -> None:
    blockers = [asyncio.create_task(db.write(linger, 0.05)) for _ in range(10)]
    await asyncio.sleep(0.02)
    late = asyncio.create_task(db.write(add, "a"))
    await asyncio.sleep(0.01)
    late.cancel()
    await asyncio.gather(*blockers)
    await db.write(add, "b")
    assert await db.read(value, "a") == 0


async def test_ping_says_ready(db: Database) -> None:
    await db.ping()


async def test_a_closed_database_is_unavailable(db: Database) -> None:
    accepted = asyncio.create_task(db.write(add, "a"))
    await asyncio.sleep(0)
    await asyncio.gather(accepted, db.close())
    for late in (db.write(add, "a"), db.read(value, "a"), db.ping()):
        with pytest.raises(StoreUnavailable):
            await late


async def test_the_dialect_names_itself(db: Database) -> None:
    assert db.dialect == await db.read(lambda conn: conn.dialect.name)


async def test_foreign_keys_hold(db: Database) -> None:
    with pytest.raises(IntegrityError):
        await db.write(
            lambda conn: conn.execute(
                text("INSERT INTO agent_tags (agent_id, tag, organization_id) VALUES ('agent-x', 't', 'org-x')")
            )
        )
