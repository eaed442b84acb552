"""Database URLs: what we accept, and how it is shown to people."""

from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from common.startup import StartupError

_DRIVERS = {
    "sqlite": "sqlite+pysqlite",
    "sqlite+pysqlite": "sqlite+pysqlite",
    "postgres": "postgresql+asyncpg",
    "postgresql": "postgresql+asyncpg",
    "postgresql+asyncpg": "postgresql+asyncpg",
}
_POSTGRES_OPTIONS = {"host", "port", "ssl"}


class DatabaseUrlError(StartupError):
    """The database URL is not one we can open."""


def parse(url: str) -> URL:
    """Read a database URL, filling in our driver for the database it names."""
    try:
        parsed = make_url(url)
    except ArgumentError:
        # The text may hold a password, so it is not repeated.
        raise DatabaseUrlError("the database URL cannot be read; expected sqlite:///… or postgresql://…") from None
    driver = _DRIVERS.get(parsed.drivername)
    if driver is None:
        raise DatabaseUrlError(f"cannot use a {parsed.drivername!r} database; expected sqlite:///… or postgresql://…")
    if driver.startswith("postgresql"):
        parsed = _with_options(parsed)
    return parsed.set(drivername=driver)


def _with_options(url: URL) -> URL:
    """Check the options here: the driver would trip over a wrong one only at its first connection."""
    options = dict(url.query)
    if "sslmode" in options:  # as every other client of Postgres calls it
        options["ssl"] = options.pop("sslmode")
    unknown = ", ".join(sorted(options.keys() - _POSTGRES_OPTIONS))
    if unknown:
        raise DatabaseUrlError(f"the database URL has an unknown option: {unknown}; expected host, port, sslmode")
    return url.set(query=options)


def sqlite_path(url: URL) -> Path | None:
    """The file of a SQLite URL, or None when it lives in memory."""
    if url.database in (None, "", ":memory:"):
        return None
    return Path(str(url.database)).expanduser()


def sqlite_url(path: Path) -> str:
    """The URL of a SQLite file, whatever characters its path has."""
    return URL.create("sqlite", database=str(path)).render_as_string(hide_password=False)


def shown(url: URL) -> str:
    """The URL with its password masked and without options, for messages and logs."""
    return url.set(query={}).render_as_string(hide_password=True)
