"""Makes the tools of a server in our database those that it offers now."""

import hashlib
import re
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Final

from msgspec.structs import replace
from sqlalchemy import Connection

from common.errors import AlreadyExists
from common.ids import Prefix, new_id
from services.tools import store
from services.tools.api import CrashPolicy, Mcp, Remote
from services.tools.model import Tool, ToolFilter, ToolSpec, kind_name
from services.tools.remove import remove
from services.toolservers.model import Grpc, OfferedTool, ToolServer

_MAX_NAME: Final = 48
_HASH: Final = 6
_NOT_ALLOWED: Final = re.compile(r"[^A-Za-z0-9_-]")
# Of all servers of one kind; a server alone may offer less.
_MAX_TOOLS: Final = 100_000


def sync(
    conn: Connection, server: ToolServer, offered: Sequence[OfferedTool], reserved: Collection[str], now: datetime
) -> list[Tool]:
    """Add, change and delete the tools of a locked server; what they are now, by name."""
    ours = {_offered_as(tool): tool for tool in _tools(conn, server)}
    for gone in ours.keys() - {each.name for each in offered}:
        remove(conn, server.organization_id, ours[gone].id, now)
    found = [
        _update(conn, ours[each.name], each, now) if each.name in ours else _add(conn, server, each, reserved, now)
        for each in offered
    ]
    return sorted(found, key=lambda each: each.name)


def delete(conn: Connection, server: ToolServer, now: datetime) -> None:
    """Delete all tools of a locked server."""
    for tool in _tools(conn, server):
        remove(conn, server.organization_id, tool.id, now)


def names_for(server: str, offered: str) -> tuple[str, str]:
    """What a tool can be called here: as there, else with the server's name before it."""
    return _allowed(offered), _allowed(f"{server}_{offered}")


def _allowed(name: str) -> str:
    """A name that models accept; where something had to be cut, with a hash of the whole."""
    plain = _NOT_ALLOWED.sub("_", name)
    if len(plain) <= _MAX_NAME:
        return plain
    mark = hashlib.sha256(name.encode()).hexdigest()[:_HASH]
    return f"{plain[: _MAX_NAME - _HASH - 1]}_{mark}"


def _add(conn: Connection, server: ToolServer, offered: OfferedTool, reserved: Collection[str], now: datetime) -> Tool:
    name = _free_name(conn, server, offered, reserved)
    kind = _kind(server, offered.name if offered.name != name else "")
    spec = ToolSpec(
        kind=kind,
        description=offered.description,
        parameters=offered.parameters,
        # Nobody here has looked at what an MCP server does; our own services are ours.
        default_requires_approval=isinstance(kind, Mcp),
        parallel=offered.parallel,
        crash_policy=_policy(offered) or CrashPolicy.NEVER,
    )
    tool = Tool(new_id(Prefix.TOOL), server.organization_id, name, spec, (), 1, now, now)
    store.insert(conn, tool)
    return tool


def _free_name(conn: Connection, server: ToolServer, offered: OfferedTool, reserved: Collection[str]) -> str:
    names = names_for(server.name, offered.name)
    for name in names:
        store.reserve(conn, server.organization_id, name)
        if name not in reserved and not store.by_name(conn, server.organization_id, [name]):
            return name
    raise AlreadyExists("tool", names[-1])


def _update(conn: Connection, tool: Tool, offered: OfferedTool, now: datetime) -> Tool:
    """What the server says replaces what it said; what we decided about the tool stays."""
    spec = replace(tool.spec, description=offered.description, parameters=offered.parameters)
    policy = _policy(offered)
    if policy is not None:
        spec = replace(spec, parallel=offered.parallel, crash_policy=policy)
    if spec == tool.spec:
        return tool
    changed = replace(tool, spec=spec, version=tool.version + 1, updated_at=now)
    store.replace(conn, tool, changed)
    return changed


def _policy(offered: OfferedTool) -> CrashPolicy | None:
    if offered.idempotent is None:
        return None
    return CrashPolicy.RETRY if offered.idempotent else CrashPolicy.NEVER


def _kind(server: ToolServer, tool: str) -> Remote | Mcp:
    return Remote(server.name, tool) if isinstance(server.reach, Grpc) else Mcp(server.name, tool)


def _tools(conn: Connection, server: ToolServer) -> list[Tool]:
    wanted = ToolFilter(kinds=(kind_name(_kind(server, "")),))
    found = store.list_after(conn, server.organization_id, wanted, None, _MAX_TOOLS)
    return [tool for tool in found if _server_of(tool) == server.name]


def _server_of(tool: Tool) -> str:
    return tool.spec.kind.server if isinstance(tool.spec.kind, Remote | Mcp) else ""


def _offered_as(tool: Tool) -> str:
    return (tool.spec.kind.tool if isinstance(tool.spec.kind, Remote | Mcp) else "") or tool.name
