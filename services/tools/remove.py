"""Deleting a tool takes it from every agent."""

from datetime import datetime

from msgspec.structs import replace
from sqlalchemy import Connection

from services.agents import store as agents_store
from services.tools import store
from services.tools.attach import detach


def remove(conn: Connection, organization_id: str, tool_id: str, now: datetime) -> None:
    """Delete a tool, or NotFound."""
    store.get(conn, organization_id, tool_id)
    _detach(conn, organization_id, tool_id, now)
    store.lock(conn, organization_id, tool_id)
    store.delete(conn, tool_id)
    # Who was giving it to an agent while we looked has done so by now; from here on nobody can.
    _detach(conn, organization_id, tool_id, now)


def _detach(conn: Connection, organization_id: str, tool_id: str, now: datetime) -> None:
    for agent_id in store.agents_with(conn, organization_id, tool_id):
        current = agents_store.lock(conn, organization_id, agent_id)
        spec = detach(current.spec, tool_id)
        if spec != current.spec:
            changed = replace(current, spec=spec, version=current.version + 1, updated_at=now)
            agents_store.replace(conn, current, changed)
