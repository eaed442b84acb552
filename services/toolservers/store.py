"""Tool servers in the database. Each function works in the caller's transaction, on one organization's rows only."""

from datetime import datetime
from typing import Any

from msgspec.structs import replace
from sqlalchemy import Connection, Row, Select, bindparam, func, select

from common.db.codec import Codec
from common.db.paging import fetch_page, list_scope
from common.db.tables import tool_servers
from common.errors import NotFound
from services.toolservers.model import Reach, ToolServer

_reach: Codec[Reach] = Codec(Reach)
_CLAIM = select(func.pg_advisory_xact_lock(func.hashtextextended(bindparam("key"), 0)))


def find(conn: Connection, organization_id: str, name: str) -> ToolServer | None:
    """One server, if it is there."""
    return _one(conn, select(tool_servers), organization_id, name)


def lock(conn: Connection, organization_id: str, name: str) -> ToolServer | None:
    """One server, if it is there, which no other transaction can change or delete before this one ends."""
    return _one(conn, select(tool_servers).with_for_update(), organization_id, name)


def get(conn: Connection, organization_id: str, name: str) -> ToolServer:
    """One server, or NotFound."""
    found = find(conn, organization_id, name)
    if found is None:
        raise NotFound("tool server", name)
    return found


def claim(conn: Connection, organization_id: str, name: str) -> ToolServer | None:
    """As `lock`; if there is none yet, whoever else wants to make it waits for the end of this transaction."""
    if conn.dialect.name == "postgresql":  # SQLite has one writer, which is the same lock
        conn.execute(_CLAIM, {"key": f"tool_servers/{organization_id}/{name}"})
    return lock(conn, organization_id, name)


def insert(conn: Connection, server: ToolServer) -> None:
    """Add a server that this transaction has claimed."""
    conn.execute(
        tool_servers.insert().values(
            organization_id=server.organization_id,
            name=server.name,
            created_at=server.created_at,
            synced_at=server.synced_at,
            **_changeable(server),
        )
    )


def update(conn: Connection, server: ToolServer) -> None:
    """Write what changed of a server that this transaction has locked."""
    conn.execute(tool_servers.update().where(*_key(server.organization_id, server.name)).values(**_changeable(server)))


def synced(conn: Connection, server: ToolServer, now: datetime) -> ToolServer:
    """The server, its tools having been listed. That is no change: its connection stays as it is."""
    conn.execute(
        tool_servers.update().where(*_key(server.organization_id, server.name)).values(synced_at=now, updated_at=now)
    )
    return replace(server, synced_at=now, updated_at=now)


def delete(conn: Connection, server: ToolServer) -> None:
    """Forget a server that this transaction has locked."""
    conn.execute(tool_servers.delete().where(*_key(server.organization_id, server.name)))


def list_page(conn: Connection, organization_id: str, *, size: int, token: str) -> tuple[list[ToolServer], str]:
    """A page of servers by name, and the token of the next."""
    # The order must not depend on the locale that a Postgres was set up with.
    name = tool_servers.c.name.collate("C" if conn.dialect.name == "postgresql" else "BINARY").label("sort_key")
    page = fetch_page(
        conn,
        select(tool_servers, name).where(tool_servers.c.organization_id == organization_id),
        (name,),
        scope=list_scope("ListToolServers", organization_id),
        size=size,
        token=token,
    )
    return [_server(row) for row in page.rows], page.next_page_token


def _key(organization_id: str, name: str) -> tuple[Any, Any]:
    return tool_servers.c.organization_id == organization_id, tool_servers.c.name == name


def _one(conn: Connection, query: Select[Any], organization_id: str, name: str) -> ToolServer | None:
    row = conn.execute(query.where(*_key(organization_id, name))).one_or_none()
    return None if row is None else _server(row)


def _changeable(server: ToolServer) -> dict[str, Any]:
    return {
        "kind": server.kind,
        "spec": _reach.encode(server.reach),
        "sealed": server.sealed,
        "version": server.version,
        "updated_at": server.updated_at,
    }


def _server(row: Row[Any]) -> ToolServer:
    return ToolServer(
        organization_id=row.organization_id,
        name=row.name,
        reach=_reach.decode(row.spec),
        sealed=row.sealed,
        synced_at=row.synced_at,
        version=row.version,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )
