"""The conversation log in the database."""

from datetime import datetime
from typing import Any

from msgspec import Struct
from sqlalchemy import ColumnElement, Connection, Select, bindparam, exists, literal, or_, select, union_all

from common.db.paging import SortKey, after, fetch_page, list_scope
from common.db.prepared import prepared
from common.db.tables import agents, conversations, messages, runs
from common.errors import InvalidArgument, NotFound
from services.messages.model import InContext, Message, Role
from services.runs.store import rows

_columns = (messages.c.id, messages.c.seq, messages.c.role, messages.c.body)
_this = conversations.c.id == bindparam("conversation_id")
# Two ranges of two indexes: neither reads what lies below the floor.
_in_context = union_all(
    select(literal(0).label("place"), *_columns)
    .join(conversations, conversations.c.summary_message_id == messages.c.id)
    .where(_this),
    select(literal(1).label("place"), *_columns)
    .join(conversations, conversations.c.id == messages.c.conversation_id)
    .where(_this, messages.c.seq >= conversations.c.context_floor, messages.c.role != Role.SUMMARY),
).subquery()
_CONTEXT = prepared(select(_in_context).order_by(_in_context.c.place, _in_context.c.seq))
# What is deleted is gone for every reader, also for one that does not name the conversation.
_not_deleted = ~exists().where(
    conversations.c.id == messages.c.conversation_id, conversations.c.deleted_at.is_not(None)
)
_GET = prepared(
    select(messages).where(
        messages.c.id == bindparam("message_id"),
        messages.c.organization_id == bindparam("organization_id"),
        _not_deleted,
    )
)
_OF_RUN = (
    select(messages)
    .where(
        messages.c.organization_id == bindparam("organization_id"),
        messages.c.run_id == bindparam("run_id"),
        messages.c.created_at <= bindparam("until", type_=messages.c.created_at.type),
    )
    .order_by(messages.c.seq)
)

# Looking a role up is several times cheaper than making it, and a context has many.
_ROLES = {role.value: role for role in Role}


class MessageFilter(Struct, frozen=True):
    """Which messages are meant; at most one of the three scopes is set."""

    organization_id: str
    conversation_id: str = ""
    run_id: str = ""
    agent_id: str = ""
    in_context: bool = False
    after_message_id: str = ""
    before_message_id: str = ""
    descending: bool = False


def context(conn: Connection, conversation_id: str) -> list[InContext]:
    """What is in the context now: the summary of what lies below the floor, if there is one, and the log from there."""
    found = conn.execute(_CONTEXT, {"conversation_id": conversation_id})
    decode = rows.BODY.decode
    return [InContext(row.id, row.seq, _ROLES[row.role], decode(row.body)) for row in found]


def add_message(conn: Connection, message: Message) -> None:
    """Add a message at the position that it names, which the caller has taken."""
    conn.execute(messages.insert().values(rows.message_row(message)))


def get_message(conn: Connection, organization_id: str, message_id: str) -> Message:
    """One message, or NotFound."""
    row = conn.execute(_GET, {"message_id": message_id, "organization_id": organization_id}).one_or_none()
    if row is None:
        raise NotFound("message", message_id)
    return rows.message(row)


def messages_of_run(conn: Connection, organization_id: str, run_id: str, until: datetime) -> list[Message]:
    """What a run had said by then, in order."""
    found = conn.execute(_OF_RUN, {"organization_id": organization_id, "run_id": run_id, "until": until})
    return [rows.message(row) for row in found]


def list_messages(conn: Connection, which: MessageFilter, size: int, token: str) -> tuple[list[Message], str]:
    """A page of messages: by position within a conversation or run, by time across them."""
    page = fetch_page(
        conn,
        _select(conn, which),
        _order(which),
        scope=list_scope("messages", which),
        size=size,
        token=token,
        descending=which.descending,
    )
    return [rows.message(row) for row in page.rows], page.next_page_token


class Search(Struct, frozen=True):
    """Which messages are looked for: those in which every word occurs. `until` is not included."""

    organization_id: str
    words: tuple[str, ...]
    agent_id: str = ""
    conversation_id: str = ""
    since: datetime | None = None
    until: datetime | None = None
    # None: whoever spoke.
    roles: tuple[Role, ...] | None = None


def search_messages(conn: Connection, wanted: Search, size: int, token: str) -> tuple[list[Message], str]:
    """A page of findings, newest first. What is in a deleted conversation is not found."""
    _require_scope(conn, wanted)
    page = fetch_page(
        conn,
        _found(wanted),
        (messages.c.created_at, messages.c.id),
        scope=list_scope("SearchMessages", wanted),
        size=size,
        token=token,
        descending=True,
    )
    return [rows.message(row) for row in page.rows], page.next_page_token


def _require_scope(conn: Connection, wanted: Search) -> None:
    if wanted.agent_id:
        _default_conversation(conn, wanted.organization_id, wanted.agent_id)
    if wanted.conversation_id:
        _require_conversation(conn, wanted.organization_id, wanted.conversation_id)


def _found(wanted: Search) -> Select[tuple[object, ...]]:
    query = (
        select(messages)
        .join(conversations, conversations.c.id == messages.c.conversation_id)
        .where(messages.c.organization_id == wanted.organization_id, conversations.c.deleted_at.is_(None))
    )
    if wanted.conversation_id:
        query = query.where(messages.c.conversation_id == wanted.conversation_id)
    if wanted.agent_id:
        query = query.where(messages.c.agent_id == wanted.agent_id)
    if wanted.roles is not None:
        query = query.where(messages.c.role.in_(wanted.roles))
    if wanted.since is not None:
        query = query.where(messages.c.created_at >= wanted.since)
    if wanted.until is not None:
        query = query.where(messages.c.created_at < wanted.until)
    return query.where(*(messages.c.search_text.contains(word, autoescape=True) for word in wanted.words))


def _select(conn: Connection, which: MessageFilter) -> Select[tuple[object, ...]]:
    query = select(messages).where(messages.c.organization_id == which.organization_id)
    conversation_id = which.conversation_id
    if which.agent_id:
        conversation_id = _default_conversation(conn, which.organization_id, which.agent_id)
    if conversation_id:
        _require_conversation(conn, which.organization_id, conversation_id)
        query = query.where(messages.c.conversation_id == conversation_id)
    else:
        query = query.where(_not_deleted)
    if which.run_id:
        conversation_id = _conversation_of(conn, which.organization_id, which.run_id)
        query = query.where(messages.c.run_id == which.run_id)
    if which.in_context:
        mine = conversations.c.id == messages.c.conversation_id
        floor = select(conversations.c.context_floor).where(mine).scalar_subquery()
        summary = select(conversations.c.summary_message_id).where(mine).scalar_subquery()
        above = (messages.c.seq >= floor) & (messages.c.role != Role.SUMMARY)
        query = query.where(or_(above, messages.c.id == summary))
    if which.after_message_id:
        key = _position(conn, which, "after_message_id", which.after_message_id, conversation_id)
        query = query.where(after(_order(which), key))
    if which.before_message_id:
        key = _position(conn, which, "before_message_id", which.before_message_id, conversation_id)
        query = query.where(after(_order(which), key, descending=True))
    return query


def _order(which: MessageFilter) -> tuple[ColumnElement[Any], ...]:
    scoped = which.conversation_id or which.run_id or which.agent_id
    return (messages.c.seq if scoped else messages.c.created_at), messages.c.id


def _position(conn: Connection, which: MessageFilter, field: str, message_id: str, conversation_id: str) -> SortKey:
    """Where a message stands in the order of this list; one of another conversation stands nowhere in it."""
    message = get_message(conn, which.organization_id, message_id)
    if not conversation_id:
        return message.created_at, message.id
    if message.conversation_id != conversation_id:
        raise InvalidArgument.of(field, "is not a message of this conversation")
    return message.seq, message.id


def _default_conversation(conn: Connection, organization_id: str, agent_id: str) -> str:
    query = select(agents.c.default_conversation_id).where(
        agents.c.id == agent_id, agents.c.organization_id == organization_id
    )
    found: str | None = conn.execute(query).scalar()
    if found is None:
        raise NotFound("agent", agent_id)
    return found


def _require_conversation(conn: Connection, organization_id: str, conversation_id: str) -> None:
    query = select(conversations.c.id).where(
        conversations.c.id == conversation_id,
        conversations.c.organization_id == organization_id,
        conversations.c.deleted_at.is_(None),
    )
    if conn.execute(query).one_or_none() is None:
        raise NotFound("conversation", conversation_id)


def _conversation_of(conn: Connection, organization_id: str, run_id: str) -> str:
    query = select(runs.c.conversation_id).where(runs.c.id == run_id, runs.c.organization_id == organization_id)
    found: str | None = conn.execute(query).scalar()
    if found is None:
        raise NotFound("run", run_id)
    return found
