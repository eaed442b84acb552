"""Deleting what nobody will ask for any more, a little at a time: others write in between."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, bindparam, delete, exists, select

from common.db import idempotency
from common.db.engine import Database
from common.db.prepared import prepared
from common.db.tables import run_events, runs
from services.runs.store import traces
from services.runs.store.states import is_final

# The last batch of a run stays: it holds the end, which every reader must be able to reach.
_OLD_EVENTS = prepared(
    select(run_events.c.run_id, run_events.c.last_seq)
    .where(
        run_events.c.created_at < bindparam("before"),
        exists().where(
            runs.c.id == run_events.c.run_id,
            is_final(runs.c.state),
            run_events.c.last_seq < runs.c.last_seq,
        ),
    )
    .order_by(run_events.c.created_at)
    .limit(bindparam("most"))
)
_DELETE = delete(run_events).where(
    run_events.c.run_id == bindparam("of_run"), run_events.c.last_seq == bindparam("of_seq")
)
_AT_ONCE = 100


async def sweep(db: Database, before: datetime) -> None:
    """Delete events of stopped runs, traces and remembered requests from before this time."""
    await db.write(idempotency.forget_before, before)
    await db.write(traces.forget, before)
    # Looked for by a reader: among the batches that stay, of all runs there ever were, that may take long.
    while found := await db.read(_old_events, before):
        await db.write(_delete, found)


def _old_events(conn: Connection, before: datetime) -> Sequence[Any]:
    return conn.execute(_OLD_EVENTS, {"before": before, "most": _AT_ONCE}).all()


def _delete(conn: Connection, found: Sequence[Any]) -> None:
    # Stopped is for ever, so what was found by a reader is still right.
    conn.execute(_DELETE, [{"of_run": row.run_id, "of_seq": row.last_seq} for row in found])
