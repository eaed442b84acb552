"""Rows to values."""

from typing import Any

from sqlalchemy import Row

from common.db.codec import Codec
from services.messages.model import Body, Message, Role
from services.messages.words import search_text
from services.runs.model import (
    Approval,
    ApprovalDetail,
    ApprovalState,
    Callback,
    Run,
    RunOutcome,
    RunRequest,
    RunState,
    Signal,
    Step,
    StepDetail,
    StepStatus,
    StopReason,
)
from services.runs.protocol import State

REQUEST = Codec[RunRequest](RunRequest)
CALLBACK = Codec[Callback](Callback)
OUTCOME = Codec[RunOutcome](RunOutcome)
SNAPSHOT = Codec[State](State)
BODY = Codec[Body](Body)
STEP = Codec[StepDetail](StepDetail)
APPROVAL = Codec[ApprovalDetail](ApprovalDetail)
SIGNAL = Codec[Signal](Signal)


def run(row: Row[Any]) -> Run:
    """A row of `runs`."""
    return Run(
        id=row.id,
        organization_id=row.organization_id,
        agent_id=row.agent_id,
        conversation_id=row.conversation_id,
        no=row.no,
        state=RunState(row.state),
        stop_reason=StopReason(row.stop_reason) if row.stop_reason else None,
        request=REQUEST.decode(row.request),
        outcome=OUTCOME.decode(row.outcome),
        background=row.background,
        last_seq=row.last_seq,
        cancel_requested_at=row.cancel_requested_at,
        started_at=row.started_at,
        stopped_at=row.stopped_at,
        created_at=row.created_at,
        updated_at=row.updated_at,
        callback=CALLBACK.decode(row.callback) if row.callback else None,
    )


def step(row: Row[Any]) -> Step:
    """A row of `steps`."""
    return Step(
        id=row.id,
        organization_id=row.organization_id,
        run_id=row.run_id,
        agent_id=row.agent_id,
        no=row.no,
        status=StepStatus(row.status),
        detail=STEP.decode(row.detail),
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


def approval(row: Row[Any]) -> Approval:
    """A row of `approvals`."""
    return Approval(
        id=row.id,
        organization_id=row.organization_id,
        agent_id=row.agent_id,
        conversation_id=row.conversation_id,
        run_id=row.run_id,
        step_id=row.step_id,
        state=ApprovalState(row.state),
        detail=APPROVAL.decode(row.detail),
        created_at=row.created_at,
        decided_by=row.decided_by or "",
        decided_at=row.decided_at,
        expires_at=row.expires_at,
    )


def message(row: Row[Any]) -> Message:
    """A row of `messages`."""
    return Message(
        id=row.id,
        organization_id=row.organization_id,
        agent_id=row.agent_id,
        conversation_id=row.conversation_id,
        seq=row.seq,
        run_id=row.run_id or "",
        step_id=row.step_id or "",
        role=Role(row.role),
        body=BODY.decode(row.body),
        created_at=row.created_at,
    )


def message_row(message: Message) -> dict[str, Any]:
    """What a message is in `messages`: every one that is added is written by this."""
    return {
        "id": message.id,
        "organization_id": message.organization_id,
        "agent_id": message.agent_id,
        "conversation_id": message.conversation_id,
        "seq": message.seq,
        "run_id": message.run_id or None,
        "step_id": message.step_id or None,
        "role": message.role,
        "body": BODY.encode(message.body),
        "search_text": search_text(message.body),
        "created_at": message.created_at,
    }
