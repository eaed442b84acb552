"""The one place where driver errors become ours. Their texts name hosts, files and SQL, so no client ever sees them."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from common.errors import BridleError, StoreConflict, StoreUnavailable

# Primary result codes of SQLite that say "not now" and not "your statement is wrong".
_SQLITE_TRANSIENT = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CANTOPEN,
}
_SERIALIZATION = {"40001", "40P01"}
# Lock not available, statement timeout, and the server going down, not yet up, or closing an idle session.
_POSTGRES_TRANSIENT = {"55P03", "57014", "57P01", "57P02", "57P03", "57P05", "25P03"}
# Whole classes: connection exceptions, insufficient resources.
_POSTGRES_TRANSIENT_CLASSES = {"08", "53"}


def translate(exc: BaseException) -> BridleError | None:
    """What a driver error means to a caller, or None if it is a bug of ours (or no driver error at all)."""
    if is_conflict(exc):
        return StoreConflict()
    state = _sqlstate(exc)
    if (
        isinstance(exc, PoolTimeout)
        or is_disconnect(exc)
        or state in _POSTGRES_TRANSIENT
        or state[:2] in _POSTGRES_TRANSIENT_CLASSES
        or _sqlite_code(exc) in _SQLITE_TRANSIENT
    ):
        return StoreUnavailable()
    return None


def is_conflict(exc: BaseException) -> bool:
    """True if the database chose this transaction as the victim of a conflict: it may simply be run again."""
    return _sqlstate(exc) in _SERIALIZATION


def is_disconnect(exc: BaseException) -> bool:
    """True if the connection broke under the statement."""
    return isinstance(exc, DBAPIError) and exc.connection_invalidated


@contextmanager
def translated() -> Iterator[None]:
    """Raise what `translate` makes of the body's error, with the original as its cause, or the error itself."""
    try:
        yield
    except Exception as error:
        known = translate(error)
        if known is None:
            raise
        raise known from error


def _sqlstate(exc: BaseException) -> str:
    return getattr(exc.orig, "sqlstate", None) or "" if isinstance(exc, DBAPIError) else ""


def _sqlite_code(exc: BaseException) -> int | None:
    """The primary code: SQLite puts the detail in the bits above."""
    if isinstance(exc, DBAPIError) and isinstance(exc.orig, sqlite3.Error):
        return getattr(exc.orig, "sqlite_errorcode", 0) & 0xFF
    return None
