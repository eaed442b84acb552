"""Signals: the row is the truth. Numbered per run; a run may only end when it has consumed the last one."""

from datetime import datetime

from sqlalchemy import Connection, bindparam, case, insert, or_, select, update

from common.db.prepared import prepared
from common.db.tables import agents, runs, signals
from common.errors import NotFound
from services.runs.model import CancelSignal, NumberedSignal, Run, Signal
from services.runs.store import rows
from services.runs.store.queries import get_run
from services.runs.store.states import is_open

# The number is taken on the run's own row: a checkpoint that races with this is decided by that row alone.
_NUMBER = prepared(
    update(runs)
    .where(
        runs.c.id == bindparam("run_id"),
        is_open(runs.c.state),
    )
    .values(
        last_signal_no=runs.c.last_signal_no + 1,
        updated_at=bindparam("now"),
        cancel_requested_at=case(
            (runs.c.cancel_requested_at.is_not(None), runs.c.cancel_requested_at),
            else_=bindparam("cancel_at", type_=runs.c.cancel_requested_at.type),
        ),
    )
    .returning(runs.c.last_signal_no)
)
_ADD = prepared(insert(signals))
_READ = prepared(
    select(signals.c.no, signals.c.payload)
    .where(signals.c.run_id == bindparam("run_id"), signals.c.no > bindparam("after"))
    .order_by(signals.c.no)
)
# The first cancel of a run that has not stopped, decided on its row like every other signal.
_CANCEL = prepared(
    update(runs)
    .where(
        runs.c.id == bindparam("run_id"),
        runs.c.organization_id == bindparam("of_organization"),
        is_open(runs.c.state),
        runs.c.cancel_requested_at.is_(None),
    )
    .values(
        last_signal_no=runs.c.last_signal_no + 1,
        updated_at=bindparam("now"),
        cancel_requested_at=bindparam("cancel_at", type_=runs.c.cancel_requested_at.type),
    )
    .returning(runs)
)
_OPEN_OF_AGENT = prepared(
    select(runs.c.id)
    .where(
        runs.c.agent_id == bindparam("agent_id"),
        runs.c.organization_id == bindparam("organization_id"),
        is_open(runs.c.state),
    )
    .order_by(runs.c.no)
)
_AGENT = prepared(
    select(agents.c.id).where(
        agents.c.id == bindparam("agent_id"), agents.c.organization_id == bindparam("organization_id")
    )
)
_WITH_NEWS = prepared(
    select(runs.c.id).where(
        is_open(runs.c.state),
        runs.c.last_signal_no > runs.c.consumed_signal_no,
        or_(runs.c.owner_node.is_(None), runs.c.owner_node == bindparam("node")),
    )
)


def add_signal(conn: Connection, run_id: str, signal: Signal, now: datetime) -> NumberedSignal | None:
    """Add a signal to a run that has not stopped; None if it has."""
    cancel_at = signal.requested_at if isinstance(signal, CancelSignal) else None
    numbered = conn.execute(_NUMBER, {"run_id": run_id, "now": now, "cancel_at": cancel_at}).one_or_none()
    return None if numbered is None else _add(conn, run_id, numbered.last_signal_no, signal, now)


def _add(conn: Connection, run_id: str, no: int, signal: Signal, now: datetime) -> NumberedSignal:
    conn.execute(
        _ADD,
        {
            "run_id": run_id,
            "no": no,
            "kind": signal.__struct_config__.tag,
            "payload": rows.SIGNAL.encode(signal),
            "created_at": now,
        },
    )
    return NumberedSignal(no, signal)


def read_signals(conn: Connection, run_id: str, after: int) -> list[NumberedSignal]:
    """What the owner has not seen yet."""
    found = conn.execute(_READ, {"run_id": run_id, "after": after})
    return [NumberedSignal(row.no, rows.SIGNAL.decode(row.payload)) for row in found]


def runs_with_news(conn: Connection, node: str) -> list[str]:
    """Runs of this node, or of none, with a signal to look at: a lost wake costs one heartbeat, never a signal."""
    return list(conn.execute(_WITH_NEWS, {"node": node}).scalars())


def request_cancel(
    conn: Connection, organization_id: str, run_id: str, signal: CancelSignal, now: datetime
) -> tuple[Run, NumberedSignal | None]:
    """Make a cancel durable. A second one changes nothing, nor does one that comes after the end."""
    which = {"run_id": run_id, "of_organization": organization_id}
    row = conn.execute(_CANCEL, {**which, "now": now, "cancel_at": signal.requested_at}).one_or_none()
    if row is None:
        return get_run(conn, organization_id, run_id), None
    return rows.run(row), _add(conn, run_id, row.last_signal_no, signal, now)


def open_runs(conn: Connection, organization_id: str, agent_id: str) -> list[str]:
    """The agent's runs that have not stopped, oldest first."""
    scope = {"agent_id": agent_id, "organization_id": organization_id}
    if conn.execute(_AGENT, scope).one_or_none() is None:
        raise NotFound("agent", agent_id)
    return list(conn.execute(_OPEN_OF_AGENT, scope).scalars())
