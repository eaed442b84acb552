"""Fresh databases for tests, of either kind, with the schema that migrations make."""

import asyncio
import itertools
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

from common.db import migrate
from common.db.engine import Database, open_database
from common.db.url import parse, sqlite_path, sqlite_url
from tests.helpers.postgres import Postgres

_ROOM = 2**30

KINDS = ("sqlite", "postgres")


class DatabaseFactory(Protocol):
    """Makes databases of one kind for the length of a test run."""

    async def create(self, *, migrated: bool = True) -> str:
        """The URL of a new database, with our tables or with none."""
        ...

    async def drop(self, url: str) -> None:
        """Forget one that `create` made."""
        ...


@asynccontextmanager
async def database_factory(kind: str) -> AsyncIterator[DatabaseFactory]:
    """The factory for `sqlite` or `postgres`; what it made is gone afterwards."""
    # Not pytest's temporary folder: it is closed to the user that the Postgres server runs as, and its path may be too
    # long for a socket.
    with tempfile.TemporaryDirectory(prefix="bridle-", dir=_in_memory(), ignore_cleanup_errors=True) as folder:
        if kind == "sqlite":
            yield await _SqliteFactory.start(Path(folder))
            return
        server = await Postgres.start(Path(folder) / "pg")
        try:
            yield _PostgresFactory(server)
        finally:
            await server.stop()


@asynccontextmanager
async def fresh_database(factory: DatabaseFactory) -> AsyncIterator[Database]:
    """An open database that nobody else uses."""
    url = await factory.create()
    db = open_database(url)
    try:
        yield db
    finally:
        await db.close()
        await factory.drop(url)


def _in_memory() -> Path | None:
    """Where files cost nothing, if there is room: copying a Postgres database there is ten times faster."""
    folder = Path("/dev/shm")  # noqa: S108 - the name that mkdtemp adds cannot be guessed
    usable = folder.is_dir() and os.access(folder, os.W_OK) and shutil.disk_usage(folder).free > _ROOM
    return folder if usable else None


class _SqliteFactory:
    def __init__(self, folder: Path, template: Path) -> None:
        self._folder = folder
        self._template = template
        self._numbers = itertools.count()

    @classmethod
    async def start(cls, folder: Path) -> "_SqliteFactory":
        template = folder / "template.db"
        await asyncio.to_thread(migrate.upgrade, sqlite_url(template))
        return cls(folder, template)

    async def create(self, *, migrated: bool = True) -> str:
        path = self._folder / f"test-{next(self._numbers)}" / "bridle.db"
        path.parent.mkdir()
        if migrated:
            shutil.copy(self._template, path)
        return sqlite_url(path)

    async def drop(self, url: str) -> None:
        path = sqlite_path(parse(url))
        assert path is not None
        shutil.rmtree(path.parent)


class _PostgresFactory:
    def __init__(self, server: Postgres) -> None:
        self._server = server
        self._names: dict[str, str] = {}

    async def create(self, *, migrated: bool = True) -> str:
        name = await self._server.create(migrated=migrated)
        url = self._server.url(name)
        self._names[url] = name
        return url

    async def drop(self, url: str) -> None:
        await self._server.drop(self._names.pop(url))
