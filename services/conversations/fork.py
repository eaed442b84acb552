"""Copying a conversation: everything that is durable, up to the first tool call that nothing came of yet."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from msgspec.structs import replace
from sqlalchemy import Connection, Row, bindparam, insert, select

from common.db.tables import messages, runs
from common.ids import IdSource, Prefix
from services.conversations import store
from services.conversations.model import Conversation
from services.messages.model import Part, ToolCall, ToolReturn
from services.runs.model import RunState
from services.runs.store import rows

# A long log is not held in memory as a whole.
_BATCH = 500
# Only a run that has not stopped can have calls without an outcome.
_UNSETTLED = (
    select(messages.c.seq, messages.c.body)
    .join(runs, runs.c.id == messages.c.run_id)
    .where(
        messages.c.conversation_id == bindparam("conversation_id"),
        runs.c.state.in_([RunState.RUNNING, RunState.AWAITING_APPROVAL]),
    )
    .order_by(messages.c.seq)
)
_LAST_BEFORE = (
    select(messages.c.created_at)
    .where(messages.c.conversation_id == bindparam("conversation_id"), messages.c.seq < bindparam("end"))
    .order_by(messages.c.seq.desc())
    .limit(1)
)
_NEXT_BATCH = (
    select(messages)
    .where(
        messages.c.conversation_id == bindparam("conversation_id"),
        messages.c.seq > bindparam("after"),
        messages.c.seq < bindparam("end"),
    )
    .order_by(messages.c.seq)
    .limit(_BATCH)
)
_ADD = insert(messages)


def fork(conn: Connection, source: Conversation, ids: IdSource, now: datetime) -> Conversation:
    """A new conversation that says the same as one that this transaction has locked. The two share nothing."""
    end = _end(conn, source)
    copy = replace(
        source,
        id=ids(Prefix.CONVERSATION),
        is_default=False,
        context_floor=min(source.context_floor, end),
        next_message_seq=end,
        last_message_at=conn.execute(_LAST_BEFORE, {"conversation_id": source.id, "end": end}).scalar_one_or_none(),
        version=1,
        created_at=now,
        updated_at=now,
    )
    # The source's summary is copied like any other message.
    copy = replace(copy, summary_message_id=ids(Prefix.MESSAGE) if source.summary_message_id else "")
    store.insert(conn, copy)
    _copy(conn, source, copy, ids)
    return copy


def first_unanswered(log: Iterable[tuple[int, Sequence[Part]]]) -> int | None:
    """The position of the first message with a tool call that has no return."""
    waiting: dict[str, int] = {}
    for seq, parts in log:
        for part in parts:
            if isinstance(part, ToolCall):
                waiting[part.id] = seq
            elif isinstance(part, ToolReturn):
                waiting.pop(part.call_id, None)
    return min(waiting.values(), default=None)


def _end(conn: Connection, source: Conversation) -> int:
    found = conn.execute(_UNSETTLED, {"conversation_id": source.id})
    unanswered = first_unanswered((row.seq, rows.BODY.decode(row.body).parts) for row in found)
    return source.next_message_seq if unanswered is None else unanswered


def _copy(conn: Connection, source: Conversation, copy: Conversation, ids: IdSource) -> None:
    after = 0
    while True:
        scope = {"conversation_id": source.id, "after": after, "end": copy.next_message_seq}
        batch = conn.execute(_NEXT_BATCH, scope).all()
        if batch:
            conn.execute(_ADD, [_message(row, source, copy, ids) for row in batch])
            after = batch[-1].seq
        if len(batch) < _BATCH:
            return


def _message(row: Row[Any], source: Conversation, copy: Conversation, ids: IdSource) -> dict[str, Any]:
    # Runs and steps are the source's history: a copied message belongs to none of them.
    return {
        "id": copy.summary_message_id if row.id == source.summary_message_id else ids(Prefix.MESSAGE),
        "organization_id": copy.organization_id,
        "agent_id": copy.agent_id,
        "conversation_id": copy.id,
        "seq": row.seq,
        "role": row.role,
        "body": row.body,
        "search_text": row.search_text,
        "created_at": row.created_at,
    }
