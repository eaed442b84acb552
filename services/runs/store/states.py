"""States in conditions: as literals, since a planner cannot see that a parameter fits a partial index."""

from typing import Any

from sqlalchemy import ColumnElement, literal_column

from services.runs.model import RunState


def is_open(state: ColumnElement[Any]) -> ColumnElement[bool]:
    """The run has not stopped."""
    return state.in_([_literal(each) for each in RunState if not each.final])


def is_final(state: ColumnElement[Any]) -> ColumnElement[bool]:
    """The run has stopped."""
    return state.in_([_literal(each) for each in RunState if each.final])


def _literal(state: RunState) -> ColumnElement[str]:
    return literal_column(f"'{state}'")
