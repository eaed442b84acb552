"""The one way to a database: a plain synchronous function over a connection, run as one transaction.

    async def rename(db: Database, agent_id: str, name: str) -> None:
        await db.write(store.rename, agent_id, name)      # store.rename(conn, agent_id, name)

Stores are written once, compose into one transaction by calling each other, and know nothing of threads or greenlets.
"""

from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from sqlalchemy import Connection

from common.db.postgres import PostgresDatabase
from common.db.sqlite import InlineSqlite, SqliteDatabase
from common.db.url import parse, sqlite_path

P = ParamSpec("P")
T = TypeVar("T")


class Database(Protocol):
    """Transactions on one database. Driver errors leave it only as `BridleError`s, or untouched when they are our bug.

    A cancelled `await` leaves no transaction open and no connection behind. Whether the transaction happened is then
    unknown (whole or not at all): the caller reads the database to find out, as it must after a crash.
    """

    @property
    def dialect(self) -> str:
        """`sqlite` or `postgresql`."""

    async def read(self, fn: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `fn(conn, ...)` on one snapshot. A write inside it is refused by the database."""

    async def lookup(self, fn: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """`read` for a few rows by key: an embedded database answers on the caller's own thread, at once."""

    async def write(self, fn: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `fn(conn, ...)` as one transaction: committed when it returns, rolled back when it raises.

        `fn` must have no effect but its SQL, because it is run again after a deadlock. SQLite runs writers one after
        the other. Postgres runs them at READ COMMITTED: deciding on what was read takes a guarded UPDATE or FOR UPDATE.
        """

    async def ping(self) -> None:
        """Return if a transaction could begin now, else raise `StoreUnavailable` (readiness)."""

    async def close(self) -> None:
        """Finish what was accepted, then let go of every connection. Later calls raise `StoreUnavailable`."""


def open_database(url: str, *, full_sync: bool = False) -> Database:
    """Open what `url` names: a SQLite file (its folder is made and locked), `sqlite://` in memory, or Postgres."""
    parsed = parse(url)
    if parsed.get_backend_name() == "postgresql":
        return PostgresDatabase(parsed)
    path = sqlite_path(parsed)
    return SqliteDatabase(path, full_sync=full_sync) if path else InlineSqlite()
