"""Accepting messages: a new run, or the live one that they join."""

from datetime import datetime
from typing import Any

from msgspec import Struct
from sqlalchemy import Connection, bindparam, insert, select, update

from common.db.idempotency import remember, replay
from common.db.prepared import prepared
from common.db.tables import agents, conversations, runs
from common.errors import ConversationBusy, NotFound, PendingApproval
from services.runs.model import (
    CancelSignal,
    OnBusy,
    OnPendingApproval,
    Run,
    RunOutcome,
    RunRequest,
    RunState,
    SteerSignal,
)
from services.runs.store import rows
from services.runs.store.queries import get_run
from services.runs.store.signals import add_signal
from services.runs.store.states import is_open

_METHOD = "CreateRun"
_AGENT = prepared(
    select(agents.c.default_conversation_id).where(
        agents.c.id == bindparam("agent_id"), agents.c.organization_id == bindparam("organization_id")
    )
)
# Taking a number also locks the conversation: "is it busy?" and "add a run" become one decision.
_TAKE_NUMBER = prepared(
    update(conversations)
    .where(
        conversations.c.id == bindparam("conversation_id"),
        conversations.c.agent_id == bindparam("of_agent"),
        conversations.c.deleted_at.is_(None),
    )
    .values(next_run_no=conversations.c.next_run_no + 1)
    .returning(conversations.c.next_run_no)
)
_LIVE = prepared(
    select(runs.c.id, runs.c.state, runs.c.outcome, runs.c.request)
    .where(
        runs.c.conversation_id == bindparam("conversation_id"),
        is_open(runs.c.state),
        runs.c.cancel_requested_at.is_(None),
    )
    .order_by(runs.c.no)
)
_INSERT = prepared(insert(runs))


class NewRun(Struct, frozen=True):
    """What CreateRun asks for."""

    id: str
    organization_id: str
    agent_id: str
    conversation_id: str
    request: RunRequest
    principal: str = ""
    request_id: str = ""
    fingerprint: str = ""


class Created(Struct, frozen=True):
    """What CreateRun did. `wake` are the runs whose owners have something to look at."""

    run: Run
    joined: bool = False
    # Where the events of this message begin. A repeat does not know, so that it begins with the first.
    after_seq: int = 0
    wake: tuple[str, ...] = ()


def create_run(conn: Connection, new: NewRun, now: datetime) -> Created:
    """Accept messages by the caller's busy policy, in one transaction."""
    first = replay(conn, new.organization_id, _METHOD, new.request_id, new.fingerprint)
    if first is not None:
        run = get_run(conn, new.organization_id, first)
        return Created(run, joined=run.request != new.request)
    conversation_id, number = _take_number(conn, new)
    created = _by_policy(conn, new, conversation_id, number, now)
    remember(conn, new.organization_id, _METHOD, new.request_id, new.fingerprint, created.run.id, now)
    return created


def _take_number(conn: Connection, new: NewRun) -> tuple[str, int]:
    agent = conn.execute(_AGENT, {"agent_id": new.agent_id, "organization_id": new.organization_id}).one_or_none()
    if agent is None:
        raise NotFound("agent", new.agent_id)
    conversation_id = new.conversation_id or agent.default_conversation_id
    taken = conn.execute(_TAKE_NUMBER, {"conversation_id": conversation_id, "of_agent": new.agent_id}).one_or_none()
    if taken is None:
        raise NotFound("conversation", conversation_id)
    return conversation_id, taken.next_run_no - 1


def _by_policy(conn: Connection, new: NewRun, conversation_id: str, number: int, now: datetime) -> Created:
    options = new.request.options
    live = conn.execute(_LIVE, {"conversation_id": conversation_id}).all()
    wake: list[str] = []
    active = next((row for row in live if row.state != RunState.QUEUED), None)
    if active is not None and active.state == RunState.AWAITING_APPROVAL:
        if options.on_pending_approval is OnPendingApproval.REFUSE:
            raise PendingApproval(rows.OUTCOME.decode(active.outcome).approval_id, active.id)
        wake.append(_cancel(conn, active.id, new, now))
    elif live and options.on_busy is OnBusy.REJECT:
        raise ConversationBusy(live[0].id)
    elif active is not None and options.on_busy is OnBusy.INTERRUPT:
        wake.append(_cancel(conn, active.id, new, now))
    elif active is not None and options.on_busy is OnBusy.STEER:
        add_signal(conn, active.id, SteerSignal(new.request.messages), now)
        run = get_run(conn, new.organization_id, active.id)
        return Created(run, joined=True, after_seq=run.last_seq, wake=(run.id,))
    if options.on_busy is OnBusy.INTERRUPT:
        wake += [_cancel(conn, row.id, new, now) for row in live if _interrupts(row)]
    return Created(_insert(conn, new, conversation_id, number, now), wake=tuple(wake))


def _interrupts(row: Any) -> bool:
    """Whether a run waits because it interrupted another one: a newer interruption takes its place."""
    return row.state == RunState.QUEUED and rows.REQUEST.decode(row.request).options.on_busy is OnBusy.INTERRUPT


def _cancel(conn: Connection, run_id: str, new: NewRun, now: datetime) -> str:
    add_signal(conn, run_id, CancelSignal(now, new.principal, f"interrupted by {new.id}"), now)
    return run_id


def _insert(conn: Connection, new: NewRun, conversation_id: str, number: int, now: datetime) -> Run:
    outcome = RunOutcome()
    conn.execute(
        _INSERT,
        {
            "id": new.id,
            "organization_id": new.organization_id,
            "agent_id": new.agent_id,
            "conversation_id": conversation_id,
            "no": number,
            "state": RunState.QUEUED,
            "request": rows.REQUEST.encode(new.request),
            "owner_epoch": 0,
            "checkpoint_no": 0,
            "last_signal_no": 0,
            "consumed_signal_no": 0,
            "checkpoint_seq": 0,
            "last_seq": 0,
            "reserved_seq": 0,
            "background": new.request.options.background,
            "outcome": rows.OUTCOME.encode(outcome),
            "created_at": now,
            "updated_at": now,
        },
    )
    return Run(
        id=new.id,
        organization_id=new.organization_id,
        agent_id=new.agent_id,
        conversation_id=conversation_id,
        no=number,
        state=RunState.QUEUED,
        stop_reason=None,
        request=new.request,
        outcome=outcome,
        background=new.request.options.background,
        last_seq=0,
        cancel_requested_at=None,
        started_at=None,
        stopped_at=None,
        created_at=now,
        updated_at=now,
    )
