"""One checkpoint, one transaction: messages, steps, approvals, the run itself and the events that tell of them."""

import hashlib
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct
from sqlalchemy import Connection, and_, bindparam, insert, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from common.db.prepared import prepared
from common.db.tables import agents, approvals, conversations, messages, run_events, runs, steps
from services.callbacks import store as callbacks
from services.messages.model import Message
from services.runs import events, protocol
from services.runs.model import (
    ApprovalCall,
    ApprovalDetail,
    ApprovalState,
    Run,
    RunOutcome,
    RunState,
    StepDetail,
    StepStatus,
    StopReason,
)
from services.runs.store import rows
from services.runs.store.states import is_open

# The guards of promises 1, 2 and 4, all on the one row: the epoch, the order of checkpoints, and, before a run may
# leave its owner's hands, that no signal is waiting.
_GUARDED = prepared(
    update(runs)
    .where(
        runs.c.id == bindparam("run_id"),
        runs.c.owner_epoch == bindparam("epoch"),
        runs.c.checkpoint_no == bindparam("no_before"),
        is_open(runs.c.state),
        or_(
            bindparam("leaving") == 0,
            runs.c.last_signal_no == bindparam("consumed"),
        ),
    )
    .values(
        state=bindparam("new_state"),
        stop_reason=bindparam("new_stop_reason"),
        snapshot=bindparam("new_snapshot"),
        outcome=bindparam("new_outcome"),
        consumed_signal_no=bindparam("consumed"),
        checkpoint_no=runs.c.checkpoint_no + 1,
        checkpoint_seq=bindparam("seq"),
        last_seq=bindparam("seq"),
        reserved_seq=bindparam("reserved"),
        owner_node=bindparam("owner"),
        stopped_at=bindparam("stopped", type_=runs.c.stopped_at.type),
        updated_at=bindparam("now", type_=runs.c.updated_at.type),
    )
)
_FLUSH = prepared(
    update(runs)
    .where(
        runs.c.id == bindparam("run_id"),
        runs.c.owner_epoch == bindparam("epoch"),
        runs.c.checkpoint_no == bindparam("no_before"),
    )
    .values(
        checkpoint_no=runs.c.checkpoint_no + 1,
        last_seq=bindparam("seq"),
        reserved_seq=bindparam("reserved"),
    )
)
_GUARDS = prepared(
    select(runs.c.owner_epoch, runs.c.checkpoint_no, runs.c.last_signal_no, runs.c.state).where(
        runs.c.id == bindparam("run_id")
    )
)
_POSITIONS = prepared(
    update(conversations)
    .where(conversations.c.id == bindparam("conversation_id"))
    .values(
        next_message_seq=conversations.c.next_message_seq + bindparam("count"),
        last_message_at=bindparam("now", type_=conversations.c.last_message_at.type),
    )
    .returning(conversations.c.next_message_seq)
)
_MOVE_FLOOR = prepared(
    update(conversations)
    .where(conversations.c.id == bindparam("conversation_id"))
    .values(context_floor=bindparam("floor"), summary_message_id=bindparam("summary"))
)
_ADD_MESSAGE = prepared(insert(messages))
# After a crash the same step begins again.
_ADD_STEP = {
    "sqlite": prepared(sqlite.insert(steps).on_conflict_do_nothing(index_elements=["id"])),
    "postgresql": prepared(postgresql.insert(steps).on_conflict_do_nothing(index_elements=["id"])),
}
_END_STEP = prepared(
    update(steps)
    .where(steps.c.id == bindparam("step_id"))
    .values(status=bindparam("new_status"), detail=bindparam("new_detail"), updated_at=bindparam("now"))
    .returning(steps)
)
_ADD_APPROVAL = prepared(insert(approvals).returning(approvals))
_CLOSE_APPROVAL = prepared(
    update(approvals)
    .where(and_(approvals.c.id == bindparam("approval_id"), approvals.c.state == ApprovalState.PENDING))
    .values(
        state=bindparam("new_state"),
        detail=bindparam("new_detail"),
        decided_by=bindparam("by"),
        decided_at=bindparam("now"),
    )
    .returning(approvals)
)
_GET_APPROVAL = prepared(select(approvals).where(approvals.c.id == bindparam("approval_id")))
_ADD_EVENTS = prepared(insert(run_events))
_AGENT_STOPPED = prepared(
    update(agents)
    .where(agents.c.id == bindparam("of_agent"))
    .values(
        last_stop_reason=bindparam("reason"),
        last_run_completed_at=bindparam("now", type_=agents.c.last_run_completed_at.type),
        last_run_duration_us=bindparam("duration"),
    )
)


class Fenced(Exception):
    """Somebody else owns the run now, or it is gone: whoever hears this must stop at once."""


class SignalsWaiting(Exception):
    """The run may not stop yet: something was said to it that it has not heard."""


class Checkpoint(Struct, frozen=True):
    """Everything one state change writes."""

    run: Run
    epoch: int
    # Checkpoints of this epoch before this one.
    no: int
    records: tuple[protocol.Record, ...]
    live: tuple[events.Entry, ...]
    first_seq: int
    reserved_seq: int
    state: RunState
    stop_reason: StopReason | None
    snapshot: protocol.State
    outcome: RunOutcome
    consumed_signal_no: int
    keep_owner: str | None
    approval_ttl: timedelta | None
    now: datetime


def checkpoint(conn: Connection, cp: Checkpoint) -> tuple[Run, list[events.Entry]]:
    """Write it all or nothing; the run as it is now and the events to publish. Harmless when it is repeated."""
    added = [record.message for record in cp.records if isinstance(record, protocol.AddMessage)]
    position = _take_positions(conn, cp, len(added)) if added else 0
    last_seq = cp.first_seq + len(cp.records) - 1
    if not _guard(conn, cp, last_seq):
        return _done_before(conn, cp)
    run = msgspec.structs.replace(
        cp.run,
        state=cp.state,
        stop_reason=cp.stop_reason,
        outcome=cp.outcome,
        last_seq=last_seq,
        stopped_at=cp.now if cp.state.final else None,
        updated_at=cp.now,
    )
    writer = _Writer(conn, cp, run, position)
    entries = [
        events.Entry(cp.first_seq + offset, cp.now, writer.write(record)) for offset, record in enumerate(cp.records)
    ]
    if cp.state.final:
        # Apart from each other: retention deletes the deltas and keeps the end.
        _add_events(conn, cp.run.id, cp.live, cp.now)
        _add_events(conn, cp.run.id, entries, cp.now)
    else:
        _add_events(conn, cp.run.id, (*cp.live, *entries), cp.now)
    if cp.state is not RunState.RUNNING:
        _tell_agent(conn, run, cp)
        callbacks.add(conn, run, cp.now)
    return run, entries


def flush(
    conn: Connection, run_id: str, epoch: int, no: int, live: Sequence[events.Entry], reserved: int, now: datetime
) -> None:
    """Make deltas durable between two checkpoints."""
    flushed = conn.execute(
        _FLUSH, {"run_id": run_id, "epoch": epoch, "no_before": no, "seq": live[-1].seq, "reserved": reserved}
    )
    if flushed.rowcount == 1:
        _add_events(conn, run_id, live, now)
        return
    guards = conn.execute(_GUARDS, {"run_id": run_id}).one_or_none()
    if guards is None or guards.owner_epoch != epoch or guards.checkpoint_no != no + 1:
        raise Fenced(run_id)


def _take_positions(conn: Connection, cp: Checkpoint, count: int) -> int:
    taken = conn.execute(
        _POSITIONS, {"conversation_id": cp.run.conversation_id, "count": count, "now": cp.now}
    ).scalar()
    if taken is None:
        raise Fenced(cp.run.id)
    return int(taken) - count


def _guard(conn: Connection, cp: Checkpoint, last_seq: int) -> bool:
    leaving = cp.state is not RunState.RUNNING
    written = conn.execute(
        _GUARDED,
        {
            "run_id": cp.run.id,
            "epoch": cp.epoch,
            "no_before": cp.no,
            "leaving": int(leaving),
            "consumed": cp.consumed_signal_no,
            "new_state": cp.state,
            "new_stop_reason": cp.stop_reason,
            "new_snapshot": rows.SNAPSHOT.encode(cp.snapshot),
            "new_outcome": rows.OUTCOME.encode(cp.outcome),
            "seq": last_seq,
            "reserved": last_seq if leaving else max(cp.reserved_seq, last_seq),
            "owner": None if leaving else cp.keep_owner,
            "stopped": cp.now if cp.state.final else None,
            "now": cp.now,
        },
    )
    return written.rowcount == 1


def _done_before(conn: Connection, cp: Checkpoint) -> tuple[Run, list[events.Entry]]:
    """Tell a checkpoint that was done but reported as lost from one that may not be done."""
    guards = conn.execute(_GUARDS, {"run_id": cp.run.id}).one_or_none()
    if guards is None or guards.owner_epoch != cp.epoch:
        raise Fenced(cp.run.id)
    if guards.checkpoint_no == cp.no and guards.last_signal_no > cp.consumed_signal_no:
        raise SignalsWaiting(cp.run.id)
    if guards.checkpoint_no != cp.no + 1:
        raise Fenced(cp.run.id)
    raise AlreadyDone(cp.run.id)


class AlreadyDone(Exception):
    """This very checkpoint is in the database already. Raised, so that nothing of the repeat is kept."""


class _Writer:
    """Writes one record and says what event tells of it."""

    def __init__(self, conn: Connection, cp: Checkpoint, run: Run, position: int) -> None:
        self._conn = conn
        self._cp = cp
        self._run = run
        self._position = position

    def write(self, record: protocol.Record) -> events.Event:
        match record:
            case protocol.AddMessage():
                return self._message(record)
            case protocol.MoveFloor():
                return self._move_floor(record)
            case protocol.BeginStep():
                return self._begin_step(record)
            case protocol.EndStep():
                return self._end_step(record)
            case protocol.OpenApproval():
                return self._open_approval(record)
            case protocol.CloseApproval():
                return self._close_approval(record)
            case protocol.Stop():
                return events.RunStopped(self._run)
            case _:
                return _told(record)

    def _ids(self) -> dict[str, Any]:
        run = self._run
        return {"organization_id": run.organization_id, "agent_id": run.agent_id, "run_id": run.id}

    def _message(self, record: protocol.AddMessage) -> events.MessageAdded:
        new, run = record.message, self._run
        message = Message(
            id=new.id,
            organization_id=run.organization_id,
            agent_id=run.agent_id,
            conversation_id=run.conversation_id,
            seq=self._position,
            run_id=run.id,
            step_id=new.step_id,
            role=new.role,
            body=new.body,
            created_at=self._cp.now,
        )
        self._position += 1
        self._conn.execute(_ADD_MESSAGE, rows.message_row(message))
        return events.MessageAdded(message)

    def _move_floor(self, record: protocol.MoveFloor) -> events.ContextCompacted:
        place = {"conversation_id": self._run.conversation_id, "floor": record.floor, "summary": record.message_id}
        self._conn.execute(_MOVE_FLOOR, place)
        return events.ContextCompacted(record.message_id, record.floor, record.messages_before, record.messages_after)

    def _begin_step(self, record: protocol.BeginStep) -> events.StepStarted:
        self._conn.execute(
            _ADD_STEP[self._conn.dialect.name],
            {
                **self._ids(),
                "id": record.step_id,
                "no": record.no,
                "status": StepStatus.PENDING,
                "detail": rows.STEP.encode(StepDetail(model=self._cp.snapshot.detail.model)),
                "created_at": self._cp.now,
                "updated_at": self._cp.now,
            },
        )
        return events.StepStarted(record.step_id, record.no, record.message_id)

    def _end_step(self, record: protocol.EndStep) -> events.StepFinished:
        detail = msgspec.structs.replace(record.detail, ended_at=self._cp.now)
        row = self._conn.execute(
            _END_STEP,
            {
                "step_id": record.step_id,
                "new_status": record.status,
                "new_detail": rows.STEP.encode(detail),
                "now": self._cp.now,
            },
        ).one()
        return events.StepFinished(rows.step(row))

    def _open_approval(self, record: protocol.OpenApproval) -> events.ApprovalRequested:
        calls = tuple(
            ApprovalCall(
                call.call, hashlib.sha256(call.call.arguments.encode()).hexdigest(), client_side=call.client_side
            )
            for call in record.calls
        )
        ttl = self._cp.approval_ttl
        row = self._conn.execute(
            _ADD_APPROVAL,
            {
                **self._ids(),
                "id": record.approval_id,
                "conversation_id": self._run.conversation_id,
                "step_id": record.step_id,
                "state": ApprovalState.PENDING,
                "detail": rows.APPROVAL.encode(ApprovalDetail(record.message_id, calls)),
                "expires_at": self._cp.now + ttl if ttl else None,
                "created_at": self._cp.now,
            },
        ).one()
        return events.ApprovalRequested(rows.approval(row))

    def _close_approval(self, record: protocol.CloseApproval) -> events.ApprovalDecided:
        # An answer was already written when it was accepted; what nobody answered is closed here.
        approval = rows.approval(self._conn.execute(_GET_APPROVAL, {"approval_id": record.approval_id}).one())
        if approval.state is ApprovalState.PENDING:
            detail = msgspec.structs.replace(approval.detail, decisions=record.decisions)
            cancel = self._cp.outcome.cancel
            row = self._conn.execute(
                _CLOSE_APPROVAL,
                {
                    "approval_id": record.approval_id,
                    "new_state": record.state,
                    "new_detail": rows.APPROVAL.encode(detail),
                    "by": (cancel.requested_by if cancel else "") or "system",
                    "now": self._cp.now,
                },
            ).one()
            approval = rows.approval(row)
        return events.ApprovalDecided(approval)


def _told(record: protocol.Begin | protocol.StartTool | protocol.FinishTool | protocol.Restart) -> events.Event:
    """Records that change no row of their own: the snapshot has them."""
    match record:
        case protocol.Begin():
            return events.RunStarted()
        case protocol.StartTool(call_id=call_id, name=name):
            return events.ToolStarted(call_id, name)
        case protocol.FinishTool(result=result):
            return events.ToolFinished(result)
        case protocol.Restart(void_from_seq=first, void_to_seq=last):
            return events.Restarted(first, last)


def _add_events(conn: Connection, run_id: str, entries: Sequence[events.Entry], now: datetime) -> None:
    if entries:
        conn.execute(
            _ADD_EVENTS,
            {
                "run_id": run_id,
                "first_seq": entries[0].seq,
                "last_seq": entries[-1].seq,
                "payload": events.encode(entries),
                "created_at": now,
            },
        )


def _tell_agent(conn: Connection, run: Run, cp: Checkpoint) -> None:
    """The agent remembers why it last stopped, waiting for a person included."""
    started = run.started_at or cp.now
    conn.execute(
        _AGENT_STOPPED,
        {
            "of_agent": run.agent_id,
            "reason": cp.stop_reason,
            "now": cp.now,
            "duration": (cp.now - started) // timedelta(microseconds=1),
        },
    )
