"""What only SQLite promises: its file, its threads, its twin in memory."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from common.db.engine import Database, open_database
from common.db.folder import DataDirError
from common.db.sqlite import InlineSqlite, SqliteDatabase
from common.db.url import sqlite_url
from common.errors import StoreUnavailable
from tests.helpers import eventually


@pytest.fixture
async def db(tmp_path: Path) -> AsyncIterator[SqliteDatabase]:
    database = SqliteDatabase(tmp_path / "bridle.db")
    yield database
    await database.close()


def create(conn: Connection) -> None:
    conn.execute(text("CREATE TABLE notes (body TEXT NOT NULL)"))


def note(conn: Connection, body: str = "x") -> None:
    conn.execute(text("INSERT INTO notes VALUES (:body)"), {"body": body})


def count(conn: Connection) -> int:
    return int(conn.execute(text("SELECT count(*) FROM notes")).scalar_one())


def pragma(conn: Connection, name: str) -> object:
    return conn.exec_driver_sql(f"PRAGMA {name}").scalar_one()


async def test_the_connections_are_set_up(db: SqliteDatabase) -> None:
    for run in (db.read, db.lookup, db.write):
        assert await run(pragma, "journal_mode") == "wal"
        assert await run(pragma, "foreign_keys") == 1
        assert await run(pragma, "busy_timeout") == 500
    assert await db.write(pragma, "synchronous") == 1
    assert await db.read(pragma, "query_only") == 1


async def test_full_sync_can_be_asked_for(tmp_path: Path) -> None:
    db = SqliteDatabase(tmp_path / "bridle.db", full_sync=True)
    assert await db.write(pragma, "synchronous") == 2
    await db.close()


async def test_ddl_rolls_back_too(db: SqliteDatabase) -> None:
    def fail(conn: Connection) -> None:
        create(conn)
        raise LookupError

    with pytest.raises(LookupError):
        await db.write(fail)
    await db.write(create)


async def test_closing_ends_the_threads_and_folds_the_log(tmp_path: Path) -> None:
    db = SqliteDatabase(tmp_path / "bridle.db")
    await db.write(create)
    await db.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("sqlite-")]
    assert set(os.listdir(tmp_path)) == {"bridle.db", "lock"}


async def test_a_full_disk_refuses_the_write_and_nothing_else(db: SqliteDatabase) -> None:
    await db.write(create)
    await db.write(note)
    pages = await db.write(pragma, "page_count")
    await db.write(pragma, f"max_page_count = {pages}")
    with pytest.raises(StoreUnavailable):
        await db.write(note, "x" * 100_000)
    assert await db.read(count) == 1
    await db.write(pragma, "max_page_count = 100000")
    await db.write(note, "x" * 100_000)
    assert await db.read(count) == 2


async def test_writes_and_lookups_run_at_once_and_reads_beside_the_loop(db: SqliteDatabase) -> None:
    here = threading.current_thread()
    assert await db.write(lambda conn: threading.current_thread()) is here
    assert await db.lookup(lambda conn: threading.current_thread()) is here
    assert await db.read(lambda conn: threading.current_thread()) is not here


async def test_a_lookup_cannot_write(db: SqliteDatabase) -> None:
    await db.write(create)
    with pytest.raises(DBAPIError, match="readonly"):
        await db.lookup(note)


async def test_the_log_is_folded_into_the_file_beside_the_loop(db: SqliteDatabase, tmp_path: Path) -> None:
    await db.write(create)
    await db.write(note, "x" * 500_000)
    await eventually(lambda: (tmp_path / "bridle.db").stat().st_size > 500_000)


async def test_a_stuck_writer_is_not_ready(tmp_path: Path) -> None:
    db = SqliteDatabase(tmp_path / "bridle.db", full_sync=True)
    stuck = threading.Event()
    writing = asyncio.create_task(db.write(lambda conn: stuck.wait(10)))
    await asyncio.sleep(0)
    with pytest.raises(StoreUnavailable):
        await db.ping()
    stuck.set()
    await writing
    await db.ping()
    await db.close()


async def test_a_second_server_on_the_folder_is_refused(db: SqliteDatabase, tmp_path: Path) -> None:
    with pytest.raises(DataDirError, match="in use by another server"):
        SqliteDatabase(tmp_path / "bridle.db")
    await db.ping()


async def test_a_file_that_is_no_database_is_refused_and_the_folder_let_go(tmp_path: Path) -> None:
    path = tmp_path / "bridle.db"
    path.write_text("Dear diary, " * 1000)
    for _ in range(2):
        with pytest.raises(DataDirError, match="file is not a database"):
            SqliteDatabase(path)
    path.unlink()
    await SqliteDatabase(path).close()


_WRITES_FOR_EVER = """
import asyncio, sys
from pathlib import Path
from sqlalchemy import text
from common.db.sqlite import SqliteDatabase

async def main():
    db = SqliteDatabase(Path(sys.argv[1]))
    await db.write(lambda conn: conn.execute(text("CREATE TABLE notes (body TEXT)")) and None)
    while True:
        await db.write(lambda conn: conn.execute(text("INSERT INTO notes VALUES ('x')")) and None)
        print("done", flush=True)

asyncio.run(main())
"""


def killed_while_writing(path: Path) -> int:
    """Let a process commit, kill it in the middle of it, and say how many commits it had told of."""
    with subprocess.Popen([sys.executable, "-c", _WRITES_FOR_EVER, str(path)], stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        for _ in range(50):
            server.stdout.readline()
        server.kill()
        return 50 + server.stdout.read().count(b"\n")


async def test_what_was_committed_survives_kill_9(tmp_path: Path) -> None:
    told = await asyncio.to_thread(killed_while_writing, tmp_path / "bridle.db")
    db = SqliteDatabase(tmp_path / "bridle.db")
    kept = await db.read(count)
    await db.close()
    # The last one may have been committed and not yet told of.
    assert kept in (told, told + 1)


async def test_memory_runs_in_the_callers_thread() -> None:
    db: Database = open_database("sqlite://")
    assert isinstance(db, InlineSqlite)
    assert await db.write(lambda conn: threading.current_thread()) is threading.current_thread()
    assert await db.read(lambda conn: threading.current_thread()) is threading.current_thread()
    assert await db.write(pragma, "foreign_keys") == 1
    await db.ping()
    await db.close()


async def test_memory_keeps_the_rules_of_the_file() -> None:
    db = InlineSqlite()
    await db.write(create)

    def fail(conn: Connection) -> None:
        note(conn)
        raise LookupError

    with pytest.raises(LookupError):
        await db.write(fail)
    with pytest.raises(DBAPIError):
        await db.read(note)
    assert await db.read(count) == 0
    await db.write(note)
    assert await db.read(count) == 1
    await db.close()
    for late in (db.read(count), db.write(count), db.ping()):
        with pytest.raises(StoreUnavailable):
            await late


async def test_memory_can_be_copied() -> None:
    first = InlineSqlite()
    await first.write(create)
    await first.write(note)
    second = InlineSqlite(first.image())
    await second.write(note)
    assert await first.read(count) == 1
    assert await second.read(count) == 2
    assert await second.write(pragma, "foreign_keys") == 1
    await first.close()
    await second.close()


async def test_a_url_opens_its_file(tmp_path: Path) -> None:
    db = open_database(sqlite_url(tmp_path / "new" / "no #1.db"))
    await db.ping()
    await db.close()
    assert (tmp_path / "new" / "no #1.db").exists()
