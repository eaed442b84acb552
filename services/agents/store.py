"""Agents in the database. Each function works in the caller's transaction, on one organization's rows only."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Connection,
    Row,
    Select,
    bindparam,
    func,
    literal,
    select,
    union_all,
)

from common.db.paging import fetch_page, list_scope
from common.db.prepared import prepared
from common.db.tables import agent_blocks, agent_tags, agents, conversations, runs
from common.errors import NotFound
from services.agents.model import Agent, AgentFilter, AgentSpec

_LIVE = ("queued", "running", "awaiting_approval")
# The position of what has none.
_TAG = -1
_ids: BindParameter[Any] = bindparam("ids", expanding=True)
_BELONGINGS = union_all(
    select(agent_tags.c.agent_id, agent_tags.c.tag, literal(_TAG)).where(agent_tags.c.agent_id.in_(_ids)),
    select(agent_blocks.c.agent_id, agent_blocks.c.block_id, agent_blocks.c.position).where(
        agent_blocks.c.agent_id.in_(_ids)
    ),
)
_spec = msgspec.json.Decoder(AgentSpec)
_MINE = select(agents).where(
    agents.c.organization_id == bindparam("organization_id"), agents.c.id == bindparam("agent_id")
)
_GET = prepared(_MINE)
_LOCK = prepared(_MINE.with_for_update())
_BELONGINGS_OF = prepared(
    union_all(
        select(agent_tags.c.agent_id, agent_tags.c.tag, literal(_TAG)).where(
            agent_tags.c.agent_id == bindparam("agent_id")
        ),
        select(agent_blocks.c.agent_id, agent_blocks.c.block_id, agent_blocks.c.position).where(
            agent_blocks.c.agent_id == bindparam("agent_id")
        ),
    )
)


def insert(conn: Connection, agent: Agent) -> None:
    """Add an agent with its empty default conversation."""
    times = {"created_at": agent.created_at, "updated_at": agent.created_at}
    conn.execute(
        agents.insert().values(
            id=agent.id,
            organization_id=agent.organization_id,
            default_conversation_id=agent.default_conversation_id,
            created_at=agent.created_at,
            **_changeable(agent),
        )
    )
    conn.execute(
        conversations.insert().values(
            id=agent.default_conversation_id,
            organization_id=agent.organization_id,
            agent_id=agent.id,
            spec="{}",
            context_floor=0,
            next_message_seq=1,
            next_run_no=1,
            version=1,
            **times,
        )
    )
    _insert_tags(conn, agent)
    _insert_blocks(conn, agent)


def get(conn: Connection, organization_id: str, agent_id: str) -> Agent:
    """One agent, or NotFound."""
    return _one(conn, _GET, organization_id, agent_id)


def lock(conn: Connection, organization_id: str, agent_id: str) -> Agent:
    """One agent, which no other transaction can change, delete or give a run before this one ends; or NotFound."""
    return _one(conn, _LOCK, organization_id, agent_id)


def replace(conn: Connection, current: Agent, changed: Agent) -> None:
    """Write what changed of an agent that this transaction has locked."""
    conn.execute(agents.update().where(agents.c.id == changed.id).values(**_changeable(changed)))
    if changed.tags != current.tags:
        conn.execute(agent_tags.delete().where(agent_tags.c.agent_id == changed.id))
        _insert_tags(conn, changed)
    if changed.block_ids != current.block_ids:
        conn.execute(agent_blocks.delete().where(agent_blocks.c.agent_id == changed.id))
        _insert_blocks(conn, changed)


def delete(conn: Connection, agent_id: str) -> None:
    """Delete an agent that this transaction has locked, with everything that belongs to it."""
    conn.execute(agents.delete().where(agents.c.id == agent_id))


def live_run(conn: Connection, agent_id: str) -> str | None:
    """The oldest run of the agent that has not ended, if there is one."""
    query = select(runs.c.id).where(runs.c.agent_id == agent_id, runs.c.state.in_(_LIVE))
    return conn.execute(query.order_by(runs.c.created_at, runs.c.id).limit(1)).scalar_one_or_none()


def list_page(
    conn: Connection, organization_id: str, wanted: AgentFilter, *, newest_first: bool, size: int, token: str
) -> tuple[list[Agent], str]:
    """A page of agents in the order of their creation, and the token of the next."""
    page = fetch_page(
        conn,
        _matching(select(agents), organization_id, wanted),
        (agents.c.created_at, agents.c.id),
        scope=list_scope("ListAgents", organization_id, wanted, newest_first),
        size=size,
        token=token,
        descending=newest_first,
    )
    return _whole(conn, page.rows), page.next_page_token


def count(conn: Connection, organization_id: str, wanted: AgentFilter) -> int:
    """How many agents match."""
    query = _matching(select(func.count()).select_from(agents), organization_id, wanted)
    number: int = conn.execute(query).scalar_one()
    return number


def tags_page(conn: Connection, organization_id: str, query: str, *, size: int, token: str) -> tuple[list[str], str]:
    """A page of the tags in use, by code point, and the token of the next."""
    # The order must not depend on the locale that a Postgres was set up with.
    tag: ColumnElement[str] = agent_tags.c.tag.collate("C" if conn.dialect.name == "postgresql" else "BINARY")
    used = select(tag).where(agent_tags.c.organization_id == organization_id).distinct()
    if query:
        used = used.where(agent_tags.c.folded.contains(query.casefold(), autoescape=True))
    scope = list_scope("ListTags", organization_id, query)
    page = fetch_page(conn, used, (tag,), scope=scope, size=size, token=token)
    return [row[0] for row in page.rows], page.next_page_token


def _changeable(agent: Agent) -> dict[str, Any]:
    return {
        "name": agent.name,
        "spec": msgspec.json.encode(agent.spec).decode(),
        "hidden": agent.spec.hidden,
        # Folded here, because SQLite folds only ASCII.
        "search_text": f"{agent.name}\n{agent.spec.description}".casefold(),
        "version": agent.version,
        "updated_at": agent.updated_at,
    }


def _insert_tags(conn: Connection, agent: Agent) -> None:
    if not agent.tags:
        return
    common = {"agent_id": agent.id, "organization_id": agent.organization_id}
    conn.execute(agent_tags.insert(), [{**common, "tag": tag, "folded": tag.casefold()} for tag in agent.tags])


def _insert_blocks(conn: Connection, agent: Agent) -> None:
    if agent.block_ids:
        placed = [{"agent_id": agent.id, "block_id": each, "position": n} for n, each in enumerate(agent.block_ids)]
        conn.execute(agent_blocks.insert(), placed)


def _one(conn: Connection, query: Select[Any], organization_id: str, agent_id: str) -> Agent:
    row = conn.execute(query, {"organization_id": organization_id, "agent_id": agent_id}).one_or_none()
    if row is None:
        raise NotFound("agent", agent_id)
    return _joined([row], conn.execute(_BELONGINGS_OF, {"agent_id": agent_id}))[0]


def _whole(conn: Connection, rows: Sequence[Row[Any]]) -> list[Agent]:
    """With what has rows of its own, all of it by one query: every run begins with this."""
    return _joined(rows, conn.execute(_BELONGINGS, {"ids": [row.id for row in rows]}))


def _joined(rows: Sequence[Row[Any]], belongings: Iterable[Any]) -> list[Agent]:
    tags: dict[str, list[str]] = {row.id: [] for row in rows}
    blocks: dict[str, list[tuple[int, str]]] = {row.id: [] for row in rows}
    for agent_id, item, position in belongings:
        if position == _TAG:
            tags[agent_id].append(item)
        else:
            blocks[agent_id].append((position, item))
    return [_agent(row, tags[row.id], blocks[row.id]) for row in rows]


def _agent(row: Row[Any], tags: Iterable[str], blocks: Iterable[tuple[int, str]]) -> Agent:
    return Agent(
        id=row.id,
        organization_id=row.organization_id,
        name=row.name,
        spec=_spec.decode(row.spec),
        tags=tuple(sorted(tags)),
        default_conversation_id=row.default_conversation_id,
        version=row.version,
        created_at=row.created_at,
        updated_at=row.updated_at,
        block_ids=tuple(block_id for _, block_id in sorted(blocks)),
        last_stop_reason=row.last_stop_reason,
        last_run_completed_at=row.last_run_completed_at,
        last_run_duration_us=row.last_run_duration_us,
    )


def _matching(query: Select[Any], organization_id: str, wanted: AgentFilter) -> Select[Any]:
    query = query.where(agents.c.organization_id == organization_id)
    if not wanted.include_hidden:
        query = query.where(agents.c.hidden.is_(False))
    if wanted.name:
        query = query.where(agents.c.name == wanted.name)
    if wanted.query:
        query = query.where(agents.c.search_text.contains(wanted.query.casefold(), autoescape=True))
    if wanted.last_stop_reason is not None:
        query = query.where(agents.c.last_stop_reason == wanted.last_stop_reason)
    if wanted.tags:
        query = query.where(agents.c.id.in_(_tagged(organization_id, wanted)))
    return query


def _tagged(organization_id: str, wanted: AgentFilter) -> Select[Any]:
    query = select(agent_tags.c.agent_id).where(
        agent_tags.c.organization_id == organization_id, agent_tags.c.tag.in_(wanted.tags)
    )
    if not wanted.match_all_tags:
        return query
    return query.group_by(agent_tags.c.agent_id).having(func.count() == len(wanted.tags))
