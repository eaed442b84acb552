"""Tools in the database. Each function works in the caller's transaction, on one organization's rows only."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, Select, bindparam, func, select

from common.db.codec import Codec
from common.db.paging import after
from common.db.tables import agents, tool_tags, tools
from common.errors import NotFound
from services.tools.model import Tool, ToolFilter, ToolSpec, kind_name

_spec: Codec[ToolSpec] = Codec(ToolSpec)
_RESERVE = select(func.pg_advisory_xact_lock(func.hashtextextended(bindparam("key"), 0)))
_ORDER = (tools.c.created_at, tools.c.id)


def insert(conn: Connection, tool: Tool) -> None:
    """Add a tool."""
    values = _changeable(tool)
    conn.execute(
        tools.insert().values(id=tool.id, organization_id=tool.organization_id, created_at=tool.created_at, **values)
    )
    _insert_tags(conn, tool)


def reserve(conn: Connection, organization_id: str, name: str) -> None:
    """Make others who want this name wait for the end of this transaction: a name that is free cannot be locked."""
    if conn.dialect.name == "postgresql":  # SQLite has one writer, which is the same lock
        conn.execute(_RESERVE, {"key": f"tools/{organization_id}/{name}"})


def get(conn: Connection, organization_id: str, tool_id: str) -> Tool:
    """One tool, or NotFound."""
    return _required(conn, _mine(organization_id).where(tools.c.id == tool_id), tool_id)


def lock(conn: Connection, organization_id: str, tool_id: str) -> Tool:
    """One tool, which no other transaction can change or give to an agent before this one ends; or NotFound."""
    return _required(conn, _mine(organization_id).where(tools.c.id == tool_id).with_for_update(), tool_id)


def lock_named(conn: Connection, organization_id: str, name: str) -> Tool | None:
    """The tool of that name, locked, if there is one."""
    found = _read(conn, _mine(organization_id).where(tools.c.name == name).with_for_update())
    return found[0] if found else None


def by_id(conn: Connection, organization_id: str, ids: Sequence[str], *, keep: bool = False) -> dict[str, Tool]:
    """Those of these tools that are there; `keep` them there until this transaction ends."""
    return {tool.id: tool for tool in _some(conn, organization_id, tools.c.id.in_(ids), ids, keep)}


def by_name(conn: Connection, organization_id: str, names: Sequence[str], *, keep: bool = False) -> dict[str, Tool]:
    """Those with these names that are there; `keep` them there until this transaction ends."""
    return {tool.name: tool for tool in _some(conn, organization_id, tools.c.name.in_(names), names, keep)}


def replace(conn: Connection, current: Tool, changed: Tool) -> None:
    """Write what changed of a tool that this transaction has locked."""
    conn.execute(tools.update().where(tools.c.id == changed.id).values(**_changeable(changed)))
    if changed.tags != current.tags:
        conn.execute(tool_tags.delete().where(tool_tags.c.tool_id == changed.id))
        _insert_tags(conn, changed)


def delete(conn: Connection, tool_id: str) -> None:
    """Delete a tool that this transaction has locked."""
    conn.execute(tools.delete().where(tools.c.id == tool_id))


def agents_with(conn: Connection, organization_id: str, tool_id: str) -> list[str]:
    """The ids of the agents that have a tool, in order."""
    # Ids are unique in a text, so that finding one in the specification is finding it in the list of tools.
    query = select(agents.c.id).where(
        agents.c.organization_id == organization_id, agents.c.spec.contains(f'"{tool_id}"', autoescape=True)
    )
    return list(conn.execute(query.order_by(agents.c.id)).scalars())


def list_after(conn: Connection, organization_id: str, wanted: ToolFilter, key: Any, most: int) -> list[Tool]:
    """The newest tools, or those that come after a key."""
    query = _matching(_mine(organization_id), organization_id, wanted)
    if key is not None:
        query = query.where(after(_ORDER, key, descending=True))
    return _read(conn, query.order_by(*(column.desc() for column in _ORDER)).limit(most))


def _mine(organization_id: str) -> Select[Any]:
    return select(tools).where(tools.c.organization_id == organization_id)


def _required(conn: Connection, query: Select[Any], tool_id: str) -> Tool:
    found = _read(conn, query)
    if not found:
        raise NotFound("tool", tool_id)
    return found[0]


def _some(conn: Connection, organization_id: str, condition: Any, wanted: Sequence[str], keep: bool) -> list[Tool]:
    if not wanted:
        return []
    query = _mine(organization_id).where(condition)
    return _read(conn, query.with_for_update(read=True) if keep else query)


def _matching(query: Select[Any], organization_id: str, wanted: ToolFilter) -> Select[Any]:
    if wanted.ids is not None:
        query = query.where(tools.c.id.in_(wanted.ids))
    if wanted.names:
        query = query.where(tools.c.name.in_(wanted.names))
    if wanted.kinds:
        query = query.where(tools.c.kind.in_(wanted.kinds))
    if wanted.query:
        query = query.where(tools.c.search_text.contains(wanted.query.casefold(), autoescape=True))
    if wanted.tags:
        tagged = select(tool_tags.c.tool_id).where(
            tool_tags.c.organization_id == organization_id, tool_tags.c.tag.in_(wanted.tags)
        )
        query = query.where(tools.c.id.in_(tagged))
    return query


def _changeable(tool: Tool) -> dict[str, Any]:
    return {
        "name": tool.name,
        "kind": kind_name(tool.spec.kind),
        "spec": _spec.encode(tool.spec),
        # Folded here, because SQLite folds only ASCII; Postgres stores no NUL.
        "search_text": f"{tool.name}\n{tool.spec.description}".casefold().replace("\0", ""),
        "version": tool.version,
        "updated_at": tool.updated_at,
    }


def _insert_tags(conn: Connection, tool: Tool) -> None:
    if tool.tags:
        common = {"tool_id": tool.id, "organization_id": tool.organization_id}
        conn.execute(tool_tags.insert(), [{**common, "tag": tag} for tag in tool.tags])


def _read(conn: Connection, query: Select[Any]) -> list[Tool]:
    rows = conn.execute(query).all()
    tags: dict[str, list[str]] = {row.id: [] for row in rows}
    if tags:
        tagged = select(tool_tags.c.tool_id, tool_tags.c.tag).where(tool_tags.c.tool_id.in_(tags))
        for tool_id, tag in conn.execute(tagged):
            tags[tool_id].append(tag)
    return [_tool(row, tags[row.id]) for row in rows]


def _tool(row: Row[Any], tags: Sequence[str]) -> Tool:
    return Tool(
        id=row.id,
        organization_id=row.organization_id,
        name=row.name,
        spec=_spec.decode(row.spec),
        tags=tuple(sorted(tags)),
        version=row.version,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )
