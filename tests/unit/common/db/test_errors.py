"""Which driver errors a caller may hear of, and as what."""

import sqlite3

import pytest
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from common.db.errors import translate, translated
from common.errors import StoreConflict, StoreUnavailable


class PostgresError(Exception):
    """As the driver gives it: the SQLSTATE is an attribute."""

    def __init__(self, sqlstate: str | None) -> None:
        super().__init__("relation secret at db.internal:5432")
        self.sqlstate = sqlstate


def postgres(sqlstate: str | None, *, disconnected: bool = False) -> DBAPIError:
    return DBAPIError("SELECT secret", {}, PostgresError(sqlstate), connection_invalidated=disconnected)


def sqlite(code: int) -> DBAPIError:
    error = sqlite3.OperationalError("database secret is locked")
    error.sqlite_errorcode = code
    return OperationalError("SELECT secret", {}, error)


@pytest.mark.parametrize("state", ["40001", "40P01"])
def test_a_lost_race_is_a_conflict(state: str) -> None:
    assert isinstance(translate(postgres(state)), StoreConflict)


@pytest.mark.parametrize(
    "error",
    [
        *(postgres(state) for state in ("08006", "53300", "55P03", "57014", "57P01", "57P03")),
        postgres(None, disconnected=True),
        sqlite(sqlite3.SQLITE_BUSY),
        sqlite(sqlite3.SQLITE_BUSY_SNAPSHOT),
        sqlite(sqlite3.SQLITE_FULL),
        sqlite(sqlite3.SQLITE_IOERR_FSYNC),
        PoolTimeout(),
    ],
)
def test_what_may_pass_is_unavailable_and_says_nothing_of_the_cause(error: Exception) -> None:
    meant = translate(error)
    assert isinstance(meant, StoreUnavailable)
    assert "secret" not in meant.message


@pytest.mark.parametrize(
    "error", [postgres("23505"), postgres("42P01"), postgres(None), sqlite(sqlite3.SQLITE_READONLY), ValueError("x")]
)
def test_our_own_mistakes_are_not_explained_away(error: Exception) -> None:
    assert translate(error) is None
    with pytest.raises(type(error)), translated():
        raise error


def test_the_cause_is_kept_for_the_log() -> None:
    cause = postgres("40001")
    with pytest.raises(StoreConflict) as caught, translated():
        raise cause
    assert caught.value.__cause__ is cause
