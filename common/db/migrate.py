"""Schema migrations: Alembic without its ini file, on either database, all or nothing.

These functions block, and open their own connection: call them before the event loop runs, or in a thread. That
connection has no statement timeout, and on SQLite no foreign keys: with them on, rebuilding a table would delete the
rows that refer to it.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import URL, Connection, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from common.db import sqlite
from common.db.folder import make_folder
from common.db.tables import metadata
from common.db.url import parse, shown, sqlite_path
from common.startup import StartupError

T = TypeVar("T")

_FOLDER = Path(__file__).parent / "migrations"
# Any number of pods may start "bridle migrate" at once: one works, the others wait and then find nothing to do.
_ADVISORY_LOCK = text("SELECT pg_advisory_xact_lock(7202611)")


class MigrationError(StartupError):
    """The schema could not be read or brought to the wanted revision; it is as it was before."""


def upgrade(url: str, revision: str = "head") -> None:
    """Bring the schema up to `revision`."""
    _run(url, lambda conn: command.upgrade(_config(conn), revision))


def downgrade(url: str, revision: str) -> None:
    """Take the schema back to `revision` (`base` for an empty one)."""
    _run(url, lambda conn: command.downgrade(_config(conn), revision))


def current(url: str) -> str | None:
    """The revision the database is at, or None if it has no schema of ours."""
    return _run(url, _revision)


def head() -> str:
    """The revision this program was written for."""
    newest = ScriptDirectory.from_config(_config()).get_current_head()
    if newest is None:
        raise MigrationError("this program has no migrations")
    return newest


def check(url: str) -> bool:
    """True if the schema is the one this program was written for."""
    return current(url) == head()


def differences(url: str) -> list[Any]:
    """Where the database and the tables disagree: nowhere, if the migrations are complete."""
    return _run(url, lambda conn: list(compare_metadata(MigrationContext.configure(conn), metadata)))


def new_revision(url: str, message: str) -> None:
    """Write the next migration from the differences between `url` (at head) and the tables. Read it before use."""
    number = len(list((_FOLDER / "versions").glob("*.py"))) + 1
    _run(url, lambda conn: command.revision(_config(conn), message, autogenerate=True, rev_id=f"{number:04d}"))


def _config(conn: Connection | None = None) -> Config:
    config = Config(attributes={"connection": conn})
    config.set_main_option("script_location", str(_FOLDER).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.set_main_option("file_template", "%%(rev)s_%%(slug)s")
    return config


def _revision(conn: Connection) -> str | None:
    return MigrationContext.configure(conn).get_current_revision()


def _run(url: str, work: Callable[[Connection], T]) -> T:
    parsed = parse(url)
    try:
        if parsed.get_backend_name() == "postgresql":
            return asyncio.run(_on_postgres(parsed, work))
        return _on_sqlite(parsed, work)
    except (DBAPIError, OSError) as error:
        reason = error.orig if isinstance(error, DBAPIError) else error
        raise MigrationError(f"cannot use the database {shown(parsed)}: {str(reason).splitlines()[0]}") from error
    except CommandError as error:
        raise MigrationError(f"cannot use the database {shown(parsed)}: {error}") from error


def _on_sqlite(url: URL, work: Callable[[Connection], T]) -> T:
    path = sqlite_path(url)
    if path is None:
        raise MigrationError("a database in memory has nothing to migrate")
    make_folder(path.parent)
    engine = sqlite.make_engine(path, "BEGIN IMMEDIATE", "journal_mode = WAL", "foreign_keys = OFF")
    with engine.begin() as conn:
        result = work(conn)
        broken = conn.exec_driver_sql("PRAGMA foreign_key_check").first()
        if broken is not None:
            raise MigrationError(
                f"cannot use the database {shown(url)}: rows of {broken[0]} refer to rows that are gone"
            )
        return result


async def _on_postgres(url: URL, work: Callable[[Connection], T]) -> T:
    engine = create_async_engine(url, poolclass=NullPool)
    try:
        async with engine.begin() as conn:
            await conn.execute(_ADVISORY_LOCK)
            return await conn.run_sync(work)
    finally:
        await engine.dispose()
