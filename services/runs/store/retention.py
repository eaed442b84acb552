"""Deleting what nobody will ask for any more."""

from datetime import datetime

from sqlalchemy import Connection, bindparam, delete, exists

from common.db import idempotency
from common.db.tables import run_events, runs
from services.runs.model import RunState
from services.runs.store import traces

# The last batch of a run stays: it holds the end, which every reader must be able to reach.
_OLD_EVENTS = delete(run_events).where(
    run_events.c.created_at < bindparam("before"),
    exists().where(
        runs.c.id == run_events.c.run_id,
        runs.c.state.in_([state for state in RunState if state.final]),
        run_events.c.last_seq < runs.c.last_seq,
    ),
)


def forget(conn: Connection, before: datetime) -> int:
    """Delete events of stopped runs, traces and remembered requests from before this time; how many batches went."""
    idempotency.forget_before(conn, before)
    traces.forget(conn, before)
    return conn.execute(_OLD_EVENTS, {"before": before}).rowcount
