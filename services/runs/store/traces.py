"""What was sent to providers and what they answered, step by step."""

from datetime import datetime

from msgspec import Struct
from sqlalchemy import Connection, bindparam, delete, select

from common.db.tables import runs, step_traces, steps
from common.db.upsert import upsert
from common.errors import NotFound
from services.runs.store.queries import get_step

_OWNED = (
    select(steps.c.id)
    .join(runs, runs.c.id == steps.c.run_id)
    .where(steps.c.id == bindparam("step_id"), runs.c.owner_epoch == bindparam("epoch"))
)
_GET = select(step_traces.c.request, step_traces.c.response).where(step_traces.c.step_id == bindparam("step_id"))
_OLD = delete(step_traces).where(step_traces.c.created_at < bindparam("before"))


class Trace(Struct, frozen=True):
    """A step's trace: JSON texts."""

    request: str
    response: str


def put(conn: Connection, organization_id: str, step_id: str, epoch: int, trace: Trace, now: datetime) -> None:
    """Keep a trace, unless the run has another owner by now: then the step is made again, and this one is void."""
    if conn.execute(_OWNED, {"step_id": step_id, "epoch": epoch}).one_or_none() is not None:
        row = {"step_id": step_id, "organization_id": organization_id, "created_at": now}
        upsert(conn, step_traces, {**row, "request": trace.request, "response": trace.response})


def get(conn: Connection, organization_id: str, step_id: str) -> Trace:
    """The trace of a step, or NotFound for the step or for the trace."""
    get_step(conn, organization_id, step_id)
    row = conn.execute(_GET, {"step_id": step_id}).one_or_none()
    if row is None:
        raise NotFound("trace", step_id)
    return Trace(row.request, row.response)


def forget(conn: Connection, before: datetime) -> None:
    """Delete traces from before this time."""
    conn.execute(_OLD, {"before": before})
