"""Conversations in the database. Each function works in the caller's transaction, on one organization's rows only."""

from typing import Any

from sqlalchemy import Connection, Row, Select, bindparam, select

from common.db.codec import Codec
from common.db.paging import fetch_page, list_scope
from common.db.prepared import prepared
from common.db.tables import agents, conversations, runs
from common.errors import NotFound
from services.conversations.model import Conversation, ConversationSpec
from services.runs.store.states import is_open

SPEC = Codec[ConversationSpec](ConversationSpec)

_is_default = (agents.c.default_conversation_id == conversations.c.id).label("is_default")
# What is deleted is gone for every reader; its rows stay for the runs that refer to them.
_SELECT = (
    select(conversations, _is_default)
    .join(agents, agents.c.id == conversations.c.agent_id)
    .where(conversations.c.organization_id == bindparam("organization_id"), conversations.c.deleted_at.is_(None))
)
_GET = prepared(_SELECT.where(conversations.c.id == bindparam("conversation_id")))
_LOCK = prepared(_GET.with_for_update(of=conversations))
_SPEC_OF = prepared(select(conversations.c.spec).where(conversations.c.id == bindparam("conversation_id")))
_OPEN_RUN = (
    select(runs.c.id)
    .where(
        runs.c.conversation_id == bindparam("conversation_id"),
        is_open(runs.c.state),
    )
    .order_by(runs.c.no)
    .limit(1)
)


def insert(conn: Connection, conversation: Conversation) -> None:
    """Add a conversation."""
    conn.execute(
        conversations.insert().values(
            id=conversation.id,
            organization_id=conversation.organization_id,
            agent_id=conversation.agent_id,
            next_message_seq=conversation.next_message_seq,
            next_run_no=1,
            last_message_at=conversation.last_message_at,
            created_at=conversation.created_at,
            **_changeable(conversation),
        )
    )


def get(conn: Connection, organization_id: str, conversation_id: str) -> Conversation:
    """One conversation, or NotFound."""
    return _one(conn, _GET, organization_id, conversation_id)


def lock(conn: Connection, organization_id: str, conversation_id: str) -> Conversation:
    """One conversation, which gets no run and no message before this transaction ends; or NotFound."""
    return _one(conn, _LOCK, organization_id, conversation_id)


def replace(conn: Connection, changed: Conversation) -> None:
    """Write what can change of a conversation that this transaction has locked."""
    conn.execute(conversations.update().where(conversations.c.id == changed.id).values(**_changeable(changed)))


def move_end(conn: Connection, changed: Conversation) -> None:
    """Write where the log of a conversation that this transaction has locked goes on."""
    mine = conversations.update().where(conversations.c.id == changed.id)
    conn.execute(mine.values(next_message_seq=changed.next_message_seq, last_message_at=changed.last_message_at))


def delete(conn: Connection, conversation: Conversation) -> None:
    """Hide a conversation that this transaction has locked."""
    mine = conversations.update().where(conversations.c.id == conversation.id)
    conn.execute(mine.values(deleted_at=conversation.updated_at, **_changeable(conversation)))


def open_run(conn: Connection, conversation_id: str) -> str | None:
    """The first run of the conversation that has not stopped, if there is one."""
    found: str | None = conn.execute(_OPEN_RUN, {"conversation_id": conversation_id}).scalar_one_or_none()
    return found


def spec_of(conn: Connection, conversation_id: str) -> ConversationSpec:
    """What its runs need to know of it."""
    return SPEC.decode(conn.execute(_SPEC_OF, {"conversation_id": conversation_id}).scalar_one())


def list_page(
    conn: Connection, organization_id: str, agent_id: str, *, size: int, token: str
) -> tuple[list[Conversation], str]:
    """A page of conversations of an agent, or of all, newest first; and the token of the next."""
    query = _SELECT.params(organization_id=organization_id)
    if agent_id:
        query = query.where(conversations.c.agent_id == agent_id)
    page = fetch_page(
        conn,
        query,
        (conversations.c.created_at, conversations.c.id),
        scope=list_scope("ListConversations", organization_id, agent_id),
        size=size,
        token=token,
        descending=True,
    )
    return [_conversation(row) for row in page.rows], page.next_page_token


def _changeable(conversation: Conversation) -> dict[str, Any]:
    return {
        "spec": SPEC.encode(conversation.spec),
        "context_floor": conversation.context_floor,
        "summary_message_id": conversation.summary_message_id or None,
        "version": conversation.version,
        "updated_at": conversation.updated_at,
    }


def _one(conn: Connection, query: Select[Any], organization_id: str, conversation_id: str) -> Conversation:
    wanted = {"organization_id": organization_id, "conversation_id": conversation_id}
    row = conn.execute(query, wanted).one_or_none()
    if row is None:
        raise NotFound("conversation", conversation_id)
    return _conversation(row)


def _conversation(row: Row[Any]) -> Conversation:
    return Conversation(
        id=row.id,
        organization_id=row.organization_id,
        agent_id=row.agent_id,
        spec=SPEC.decode(row.spec),
        is_default=bool(row.is_default),
        context_floor=row.context_floor,
        summary_message_id=row.summary_message_id or "",
        next_message_seq=row.next_message_seq,
        last_message_at=row.last_message_at,
        version=row.version,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )
