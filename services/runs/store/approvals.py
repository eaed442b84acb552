"""Approvals in the database. An answer is validated, written and turned into a signal in one transaction."""

from datetime import datetime

import msgspec
from msgspec import Struct
from sqlalchemy import ColumnElement, Connection, bindparam, or_, select, text, update

from common.db.paging import fetch_page, list_scope
from common.db.prepared import prepared
from common.db.tables import agents, approvals, runs
from common.errors import (
    ApprovalAlreadyDecided,
    ApprovalMismatch,
    InvalidArgument,
    NoPendingApproval,
    NotFound,
)
from services.messages.model import Decision, Deny, InputMessage, Result, ToolCall
from services.runs.model import (
    AnswerSignal,
    Approval,
    ApprovalDetail,
    ApprovalState,
    ClientTool,
    Run,
    RunState,
)
from services.runs.store import rows
from services.runs.store.queries import Listing, get_run
from services.runs.store.signals import add_signal

EXPIRED_REASON = "Nobody answered in time."

_GET = prepared(
    select(approvals).where(
        approvals.c.id == bindparam("approval_id"), approvals.c.organization_id == bindparam("organization_id")
    )
)
_LATEST_OF_RUN = prepared(
    select(approvals)
    .where(approvals.c.run_id == bindparam("run_id"), approvals.c.organization_id == bindparam("organization_id"))
    .order_by(approvals.c.created_at.desc(), approvals.c.id.desc())
    .limit(1)
)
_LATEST_OF_AGENT = prepared(
    select(approvals)
    .join(agents, agents.c.default_conversation_id == approvals.c.conversation_id)
    .where(agents.c.id == bindparam("agent_id"), approvals.c.organization_id == bindparam("organization_id"))
    .order_by(approvals.c.created_at.desc(), approvals.c.id.desc())
    .limit(1)
)
_LOCK_RUN = prepared(
    select(runs.c.state, runs.c.cancel_requested_at).where(runs.c.id == bindparam("run_id")).with_for_update()
)
_DECIDE = prepared(
    update(approvals)
    .where(approvals.c.id == bindparam("approval_id"), approvals.c.state == ApprovalState.PENDING)
    .values(
        state=bindparam("new_state"),
        detail=bindparam("new_detail"),
        decided_by=bindparam("by"),
        decided_at=bindparam("now"),
    )
    .returning(approvals)
)
_EXPIRED = prepared(
    select(approvals)
    # A literal: a planner cannot see that a parameter fits a partial index.
    .where(approvals.c.state == text("'pending'"), approvals.c.expires_at <= bindparam("now"))
    .order_by(approvals.c.expires_at)
    .limit(100)
)
_AGENT = prepared(
    select(agents.c.id).where(
        agents.c.id == bindparam("agent_id"), agents.c.organization_id == bindparam("organization_id")
    )
)


_CHANGED = or_(approvals.c.created_at >= bindparam("since"), approvals.c.decided_at >= bindparam("since"))


class Answer(Struct, frozen=True):
    """What SubmitApproval says; one of the three targets is set."""

    organization_id: str
    decisions: tuple[Decision, ...]
    approval_id: str = ""
    run_id: str = ""
    agent_id: str = ""
    sha256: dict[str, str] = {}
    follow_up: tuple[InputMessage, ...] = ()
    client_tools: tuple[ClientTool, ...] = ()
    principal: str = ""


class ApprovalFilter(Struct, frozen=True):
    """Which approvals are meant."""

    organization_id: str
    agent_id: str = ""
    run_id: str = ""
    states: tuple[str, ...] = (ApprovalState.PENDING,)

    def conditions(self) -> list[ColumnElement[bool]]:
        """As conditions on `approvals`, but for the state."""
        found: list[ColumnElement[bool]] = [approvals.c.organization_id == self.organization_id]
        if self.agent_id:
            found.append(approvals.c.agent_id == self.agent_id)
        if self.run_id:
            found.append(approvals.c.run_id == self.run_id)
        return found


def submit(conn: Connection, answer: Answer, now: datetime) -> tuple[Approval, Run]:
    """Accept an answer, or refuse it and change nothing. The same answer again is accepted and does nothing."""
    approval = _target(conn, answer)
    locked = conn.execute(_LOCK_RUN, {"run_id": approval.run_id}).one()
    approval = get_approval(conn, answer.organization_id, approval.id)
    try:
        decisions = _matched(approval, answer)
    except ApprovalMismatch:
        # Who did not name it did not mean one that is over: for them there is nothing to answer.
        if approval.state is ApprovalState.PENDING or answer.approval_id:
            raise
        raise NoPendingApproval from None
    if approval.state is not ApprovalState.PENDING:
        if decisions == approval.detail.decisions and answer.follow_up == approval.detail.follow_up:
            return approval, get_run(conn, answer.organization_id, approval.run_id)
        raise ApprovalAlreadyDecided(approval.id, approval.state)
    if locked.state != RunState.AWAITING_APPROVAL or locked.cancel_requested_at is not None:
        raise NoPendingApproval
    detail = msgspec.structs.replace(approval.detail, decisions=decisions, follow_up=answer.follow_up)
    decided = _decide(conn, approval, detail, ApprovalState.DECIDED, answer.principal, now)
    signal = AnswerSignal(approval.id, decisions, answer.follow_up, answer.client_tools)
    add_signal(conn, approval.run_id, signal, now)
    return decided, get_run(conn, answer.organization_id, approval.run_id)


def _target(conn: Connection, answer: Answer) -> Approval:
    if answer.approval_id:
        return get_approval(conn, answer.organization_id, answer.approval_id)
    scope = {"organization_id": answer.organization_id}
    if answer.run_id:
        get_run(conn, answer.organization_id, answer.run_id)
        row = conn.execute(_LATEST_OF_RUN, {**scope, "run_id": answer.run_id}).one_or_none()
    else:
        if conn.execute(_AGENT, {**scope, "agent_id": answer.agent_id}).one_or_none() is None:
            raise NotFound("agent", answer.agent_id)
        row = conn.execute(_LATEST_OF_AGENT, {**scope, "agent_id": answer.agent_id}).one_or_none()
    if row is None:
        raise NoPendingApproval
    return rows.approval(row)


def _matched(approval: Approval, answer: Answer) -> tuple[Decision, ...]:
    """The decisions in the order of the calls, if they cover exactly those."""
    expected = [call.call.id for call in approval.detail.calls]
    given = {_call_of(approval, decision.call_id): decision for decision in answer.decisions}
    digests = {_call_of(approval, call_id): digest for call_id, digest in answer.sha256.items()}
    exact = sorted(given) == sorted(expected) and len(given) == len(answer.decisions)
    if not exact or not set(digests).issubset(expected):
        if approval.state is not ApprovalState.PENDING:
            raise NoPendingApproval
        named = answer.sha256 if exact else [decision.call_id for decision in answer.decisions]
        raise ApprovalMismatch(expected, list(named))
    for call in approval.detail.calls:
        seen = digests.get(call.call.id)
        if seen is not None and seen != call.sha256:
            raise InvalidArgument.of(f"arguments_sha256[{call.call.id}]", "is not the digest of what would run")
    return tuple(_settled(given[call.call.id], call.call) for call in approval.detail.calls)


def _settled(decision: Decision, call: ToolCall) -> Decision:
    """A result belongs to the call, whatever the client named it."""
    verdict = decision.verdict
    if isinstance(verdict, Result):
        verdict = Result(msgspec.structs.replace(verdict.value, call_id=call.id, name=call.name))
    return Decision(call.id, verdict)


def _call_of(approval: Approval, call_id: str) -> str:
    """The only call of an approval may be named by its message, as older clients do."""
    calls = approval.detail.calls
    if len(calls) == 1 and call_id == approval.detail.message_id:
        return calls[0].call.id
    return call_id


def _decide(
    conn: Connection, approval: Approval, detail: ApprovalDetail, state: ApprovalState, by: str, now: datetime
) -> Approval:
    row = conn.execute(
        _DECIDE,
        {
            "approval_id": approval.id,
            "new_state": state,
            "new_detail": rows.APPROVAL.encode(detail),
            "by": by or "anonymous",
            "now": now,
        },
    ).one()
    return rows.approval(row)


def expire(conn: Connection, now: datetime) -> list[str]:
    """Deny what nobody answered in time; the runs to wake."""
    woken: list[str] = []
    for row in conn.execute(_EXPIRED, {"now": now}).all():
        locked = conn.execute(_LOCK_RUN, {"run_id": row.run_id}).one()
        approval = get_approval(conn, row.organization_id, row.id)
        if approval.state is not ApprovalState.PENDING or locked.cancel_requested_at is not None:
            continue
        decisions = tuple(Decision(call.call.id, Deny(EXPIRED_REASON)) for call in approval.detail.calls)
        detail = msgspec.structs.replace(approval.detail, decisions=decisions)
        _decide(conn, approval, detail, ApprovalState.EXPIRED, "system", now)
        signal = AnswerSignal(approval.id, decisions, state=ApprovalState.EXPIRED)
        add_signal(conn, approval.run_id, signal, now)
        woken.append(approval.run_id)
    return woken


def get_approval(conn: Connection, organization_id: str, approval_id: str) -> Approval:
    """One approval, or NotFound."""
    row = conn.execute(_GET, {"approval_id": approval_id, "organization_id": organization_id}).one_or_none()
    if row is None:
        raise NotFound("approval", approval_id)
    return rows.approval(row)


def changed_since(conn: Connection, which: ApprovalFilter, since: datetime) -> list[Approval]:
    """What was asked or decided since then, in any state, oldest first."""
    query = select(approvals).where(*which.conditions(), _CHANGED).order_by(approvals.c.created_at, approvals.c.id)
    return [rows.approval(row) for row in conn.execute(query, {"since": since})]


def list_approvals(conn: Connection, which: ApprovalFilter, listing: Listing) -> tuple[list[Approval], str]:
    """A page of approvals, oldest first."""
    page = fetch_page(
        conn,
        select(approvals).where(*which.conditions(), approvals.c.state.in_(which.states)),
        (approvals.c.created_at, approvals.c.id),
        scope=list_scope("approvals", which),
        size=listing.size,
        token=listing.token,
        descending=listing.descending,
    )
    return [rows.approval(row) for row in page.rows], page.next_page_token
