"""The environment of an agent's tools. Values are sealed, and are opened for nobody but the tools."""

from collections.abc import Mapping

from sqlalchemy import Connection, bindparam, delete, insert, select

from common.db.tables import agent_secrets
from common.seal import Seal

_ADD = insert(agent_secrets)
_REMOVE = delete(agent_secrets).where(agent_secrets.c.agent_id == bindparam("of_agent"))
_LOAD = select(agent_secrets.c.key, agent_secrets.c.sealed).where(agent_secrets.c.agent_id == bindparam("of_agent"))


def replace(conn: Connection, seal: Seal, agent_id: str, values: Mapping[str, str]) -> None:
    """Give an agent that this transaction has locked these secrets instead of those it has."""
    conn.execute(_REMOVE, {"of_agent": agent_id})
    rows = [
        {"agent_id": agent_id, "key": key, "sealed": seal.seal(value, _place(agent_id, key))}
        for key, value in sorted(values.items())
    ]
    if rows:
        conn.execute(_ADD, rows)


def load(conn: Connection, seal: Seal, agent_id: str) -> dict[str, str]:
    """An agent's secrets, opened. SecretKeyWrong or SecretKeyMissing if they cannot be."""
    found = conn.execute(_LOAD, {"of_agent": agent_id})
    return {row.key: seal.open(row.sealed, _place(agent_id, row.key)) for row in found}


def _place(agent_id: str, key: str) -> str:
    return f"agent/{agent_id}/{key}"
