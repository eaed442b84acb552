"""Reading runs, steps and events."""

from datetime import datetime

from msgspec import Struct
from sqlalchemy import ColumnElement, Connection, bindparam, delete, select

from common.db.paging import fetch_page, list_scope
from common.db.prepared import prepared
from common.db.tables import run_events, runs, steps
from common.errors import IllegalTransition, NotFound
from services.runs import events
from services.runs.model import Run, RunState, Step
from services.runs.store import rows
from services.runs.store.states import is_final

_GET = prepared(
    select(runs).where(runs.c.id == bindparam("run_id"), runs.c.organization_id == bindparam("organization_id"))
)
_BOUNDS = prepared(
    select(runs.c.last_seq, runs.c.reserved_seq, runs.c.state).where(
        runs.c.id == bindparam("run_id"), runs.c.organization_id == bindparam("organization_id")
    )
)
_EVENTS = prepared(
    select(run_events.c.payload)
    .where(run_events.c.run_id == bindparam("run_id"), run_events.c.last_seq > bindparam("after"))
    .order_by(run_events.c.last_seq)
    .limit(bindparam("most"))
)
_FIRST_EVENT = prepared(
    select(run_events.c.first_seq)
    .where(run_events.c.run_id == bindparam("run_id"))
    .order_by(run_events.c.last_seq)
    .limit(1)
)
_STEP = prepared(
    select(steps).where(steps.c.id == bindparam("step_id"), steps.c.organization_id == bindparam("organization_id"))
)


class LogBounds(Struct, frozen=True):
    """Where a run's log ends: durably, and at the most as far as any reader may have seen."""

    last_seq: int
    reserved_seq: int
    final: bool


class RunFilter(Struct, frozen=True):
    """Which runs are meant. Every list and count of runs goes through it."""

    organization_id: str
    agent_ids: tuple[str, ...] = ()
    conversation_id: str = ""
    states: tuple[str, ...] = ()
    stop_reasons: tuple[str, ...] = ()
    background: bool | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None

    def conditions(self) -> list[ColumnElement[bool]]:
        """As conditions on `runs`."""
        found: list[ColumnElement[bool]] = [runs.c.organization_id == self.organization_id]
        if self.agent_ids:
            found.append(runs.c.agent_id.in_(self.agent_ids))
        if self.conversation_id:
            found.append(runs.c.conversation_id == self.conversation_id)
        if self.states:
            found.append(runs.c.state.in_(self.states))
        if self.stop_reasons:
            found.append(runs.c.stop_reason.in_(self.stop_reasons))
        if self.background is not None:
            found.append(runs.c.background.is_(self.background))
        if self.created_after is not None:
            found.append(runs.c.created_at >= self.created_after)
        if self.created_before is not None:
            found.append(runs.c.created_at < self.created_before)
        return found


class Listing(Struct, frozen=True):
    """How a list is to be cut into pages."""

    size: int
    token: str
    descending: bool


def get_run(conn: Connection, organization_id: str, run_id: str) -> Run:
    """One run, or NotFound."""
    row = conn.execute(_GET, {"run_id": run_id, "organization_id": organization_id}).one_or_none()
    if row is None:
        raise NotFound("run", run_id)
    return rows.run(row)


def log_bounds(conn: Connection, organization_id: str, run_id: str) -> LogBounds:
    """Where a run's log ends, or NotFound."""
    row = conn.execute(_BOUNDS, {"run_id": run_id, "organization_id": organization_id}).one_or_none()
    if row is None:
        raise NotFound("run", run_id)
    return LogBounds(row.last_seq, row.reserved_seq, RunState(row.state).final)


def list_runs(conn: Connection, which: RunFilter, listing: Listing) -> tuple[list[Run], str]:
    """A page of runs."""
    page = fetch_page(
        conn,
        select(runs).where(*which.conditions()),
        (runs.c.created_at, runs.c.id),
        scope=list_scope("runs", which, listing.descending),
        size=listing.size,
        token=listing.token,
        descending=listing.descending,
    )
    return [rows.run(row) for row in page.rows], page.next_page_token


def delete_run(conn: Connection, organization_id: str, run_id: str) -> None:
    """Delete a run that has stopped; its messages stay."""
    run = get_run(conn, organization_id, run_id)
    if not run.state.final:
        raise IllegalTransition("run", run_id, run.state, "delete")
    conn.execute(delete(runs).where(runs.c.id == run_id, is_final(runs.c.state)))


def list_steps(
    conn: Connection, organization_id: str, run_id: str, agent_id: str, listing: Listing
) -> tuple[list[Step], str]:
    """A page of the steps of a run in order, or of an agent newest first."""
    query = select(steps).where(steps.c.organization_id == organization_id)
    if run_id:
        query = query.where(steps.c.run_id == run_id)
    if agent_id:
        query = query.where(steps.c.agent_id == agent_id)
    page = fetch_page(
        conn,
        query,
        (steps.c.no, steps.c.id) if run_id else (steps.c.created_at, steps.c.id),
        scope=list_scope("steps", organization_id, run_id, agent_id),
        size=listing.size,
        token=listing.token,
        descending=not run_id,
    )
    return [rows.step(row) for row in page.rows], page.next_page_token


def get_step(conn: Connection, organization_id: str, step_id: str) -> Step:
    """One step, or NotFound."""
    row = conn.execute(_STEP, {"step_id": step_id, "organization_id": organization_id}).one_or_none()
    if row is None:
        raise NotFound("step", step_id)
    return rows.step(row)


def read_events(conn: Connection, run_id: str, after: int, batches: int = 16) -> list[events.Entry]:
    """Durable events after a cursor, a bounded number of batches at a time."""
    payloads = conn.execute(_EVENTS, {"run_id": run_id, "after": after, "most": batches}).scalars()
    return [entry for payload in payloads for entry in events.decode(payload) if entry.seq > after]


def first_event(conn: Connection, run_id: str) -> int | None:
    """The oldest event that is still there."""
    first: int | None = conn.execute(_FIRST_EVENT, {"run_id": run_id}).scalar()
    return first
