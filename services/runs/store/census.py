"""Counting what is open, for the dashboards."""

from datetime import datetime

from msgspec import Struct
from sqlalchemy import Connection, func, select, text, union_all

from common.db.prepared import prepared
from common.db.tables import approvals, runs
from services.runs.model import RunState

# The conditions are literals, as in the partial indexes that answer them.
_ACTIVE = (
    select(runs.c.state, func.count().label("runs"), func.min(runs.c.created_at).label("oldest"))
    .where(text("state IN ('running', 'awaiting_approval')"))
    .group_by(runs.c.state)
)
_QUEUED = (
    select(runs.c.state, func.count().label("runs"), func.min(runs.c.created_at).label("oldest"))
    .where(runs.c.state == text("'queued'"))
    .group_by(runs.c.state)
)
_OPEN = prepared(union_all(_ACTIVE, _QUEUED))
_OLDEST_APPROVAL = prepared(select(func.min(approvals.c.created_at)).where(approvals.c.state == text("'pending'")))


class Census(Struct, frozen=True):
    """How much is open, and since when."""

    runs: dict[RunState, int]
    oldest_queued: datetime | None
    oldest_approval: datetime | None


def census(conn: Connection) -> Census:
    """Count."""
    found = {RunState(row.state): row for row in conn.execute(_OPEN)}
    queued = found.get(RunState.QUEUED)
    return Census(
        runs={state: found[state].runs if state in found else 0 for state in RunState if not state.final},
        oldest_queued=queued.oldest if queued else None,
        oldest_approval=conn.execute(_OLDEST_APPROVAL).scalar(),
    )
