"""Statements that are compiled once and then run on SQLite's own driver.

SQLAlchemy spends about 20 us on a statement that SQLite answers in one or two; a message to an agent is dozens of them,
and everybody else on the event loop waits for each. A store marks its fixed statements:

    _GET = prepared(select(runs).where(runs.c.id == bindparam("run_id")))
    row = conn.execute(_GET, {"run_id": run_id}).one_or_none()

and executes them as before. On Postgres, and for every statement that is not marked, nothing changes.
"""

import sqlite3
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import Connection, Dialect, Engine
from sqlalchemy.exc import DBAPIError, MultipleResultsFound, NoResultFound
from sqlalchemy.sql.dml import Insert, UpdateBase

S = TypeVar("S")
_make_row: Any = partial(namedtuple, "Row")
Process = Callable[[Any], Any]

# By identity: a statement made from a prepared one is another statement. What is marked here lives as long as we do.
_marked: dict[int, "_Prepared"] = {}


def prepared(statement: S) -> S:
    """Mark a statement that never changes; for module-level ones only."""
    _marked[id(statement)] = _Prepared(statement)
    return statement


def warm(dialect: Dialect) -> None:
    """Compile what is known so far, so that no first caller waits for that."""
    for each in _marked.values():
        each.warm(dialect)


class Answer:
    """The rows of a statement: the part of SQLAlchemy's `Result` that stores use."""

    def __init__(self, rows: list[Any], rowcount: int) -> None:
        self._rows = rows
        self.rowcount = rowcount

    def __iter__(self) -> Iterator[Any]:
        return iter(self._rows)

    def all(self) -> list[Any]:
        """Every row."""
        return self._rows

    def one(self) -> Any:
        """The only row; an error if there are none or several."""
        row = self.one_or_none()
        if row is None:
            raise NoResultFound("No row was found when one was required")
        return row

    def one_or_none(self) -> Any:
        """The only row, if there is one; an error if there are several."""
        if len(self._rows) > 1:
            raise MultipleResultsFound("Multiple rows were found when one or none was required")
        return self._rows[0] if self._rows else None

    def scalars(self) -> Iterator[Any]:
        """The first column of every row."""
        return (row[0] for row in self._rows)

    def scalar(self) -> Any:
        """The first column of the first row, or None."""
        return self._rows[0][0] if self._rows else None

    def scalar_one(self) -> Any:
        """The first column of the only row."""
        return self.one()[0]

    def scalar_one_or_none(self) -> Any:
        """The first column of the only row, if there is one."""
        row = self.one_or_none()
        return None if row is None else row[0]


class DirectConnection(Connection):
    """A connection to SQLite that runs prepared statements without SQLAlchemy's help."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.driver: sqlite3.Connection = self.connection.driver_connection  # type: ignore[assignment]

    def execute(self, statement: Any, parameters: Any = None, *, execution_options: Any = None) -> Any:
        """See `Connection.execute`."""
        marked = _marked.get(id(statement))
        # Outside of a transaction SQLAlchemy begins one; a list of parameters is for it, too.
        if marked is None or not self.driver.in_transaction or not isinstance(parameters, Mapping | None):
            return super().execute(statement, parameters, execution_options=execution_options)
        return marked.run(self.driver, self.dialect, parameters or {})

    def transact(self, begin: str, fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Run `fn(self, ...)` as one transaction."""
        self._run_driver(begin)
        try:
            result = fn(self, *args, **kwargs)
            if self.in_transaction():
                # A statement that SQLAlchemy ran has made it think of a transaction, whose end it must be told.
                self.commit()
            else:
                self._run_driver("COMMIT")
        except BaseException:
            # Also when it was the commit that failed: the next transaction must find none open, here or in SQLAlchemy.
            self.rollback()
            if self.driver.in_transaction:
                self._run_driver("ROLLBACK")
            raise
        return result

    def _run_driver(self, sql: str) -> None:
        try:
            self.driver.execute(sql)
        except sqlite3.Error as error:
            raise _wrapped(error, sql, self.dialect) from error


class _Bound(NamedTuple):
    """One `?`: a parameter's name, or a value that never changes."""

    name: str | None
    value: Any
    process: Process | None


class _Prepared:
    """A statement and its plans. An INSERT has one for each set of columns that it is given."""

    def __init__(self, statement: Any) -> None:
        self._statement = statement
        self._inserts = isinstance(statement, Insert)
        self._plans: dict[tuple[str, ...], _Plan] = {}

    def run(self, driver: sqlite3.Connection, dialect: Dialect, parameters: Mapping[str, Any]) -> Answer:
        given = tuple(parameters) if self._inserts else ()
        plan = self._plans.get(given) or self._plan(dialect, given)
        return plan.run(driver, dialect, parameters)

    def warm(self, dialect: Dialect) -> None:
        if not self._inserts:
            self._plan(dialect, ())

    def _plan(self, dialect: Dialect, given: tuple[str, ...]) -> "_Plan":
        plan = self._plans[given] = _Plan(self._statement, dialect, given)
        return plan


class _Plan:
    """Everything about a statement that can be known before it is run."""

    def __init__(self, statement: Any, dialect: Dialect, given: Sequence[str]) -> None:
        compiled = statement.compile(dialect=dialect, column_keys=list(given) or None)
        if compiled.insert_prefetch or compiled.update_prefetch:
            raise TypeError("a statement with defaults made in Python cannot be prepared")
        if compiled.post_compile_params or compiled.literal_execute_params:
            raise TypeError("a statement whose text depends on values (IN with parameters) cannot be prepared")
        self._sql = str(compiled)
        self._binds = [_bound(compiled.binds[name], name, dialect) for name in compiled.positiontup or ()]
        columns = _columns(statement)
        self._row = _make_row([column.key for column in columns], rename=True)._make
        processors = [column.type.dialect_impl(dialect).result_processor(dialect, None) for column in columns]
        self._processed = [(index, process) for index, process in enumerate(processors) if process is not None]
        self._returns = bool(columns)

    def run(self, driver: sqlite3.Connection, dialect: Dialect, parameters: Mapping[str, Any]) -> Answer:
        values = [
            value if name is None else parameters[name] if process is None else process(parameters[name])
            for name, value, process in self._binds
        ]
        try:
            cursor = driver.execute(self._sql, values)
            found = cursor.fetchall() if self._returns else []
        except sqlite3.Error as error:
            raise _wrapped(error, self._sql, dialect) from error
        return Answer([self._made(raw) for raw in found], cursor.rowcount)

    def _made(self, raw: tuple[Any, ...]) -> Any:
        values = list(raw)
        for index, process in self._processed:
            values[index] = process(values[index])
        return self._row(values)


def _bound(bind: Any, name: str, dialect: Dialect) -> _Bound:
    process = bind.type.dialect_impl(dialect).bind_processor(dialect)
    if bind.required:
        return _Bound(name, None, process)
    value = bind.effective_value
    return _Bound(None, process(value) if process is not None else value, None)


def _columns(statement: Any) -> Sequence[Any]:
    """What it returns; an INSERT, UPDATE or DELETE only if it says so."""
    if isinstance(statement, UpdateBase):
        return list(statement.returning_column_descriptions and statement.exported_columns)
    return list(statement.exported_columns)


def _wrapped(error: sqlite3.Error, sql: str, dialect: Dialect) -> BaseException:
    """As SQLAlchemy would have raised it."""
    return DBAPIError.instance(sql, None, error, sqlite3.Error, hide_parameters=True, dialect=dialect)
