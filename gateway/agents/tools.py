"""Tools as objects of the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field

from gateway.structs import plain

if TYPE_CHECKING:
    from common.pb.bridle.v1 import tool_pb2

_TYPES: Final = {"python": "custom", "remote": "custom", "mcp": "external_mcp", "builtin": "letta_builtin"}
_CORE: Final = frozenset({"memory_insert", "memory_replace", "memory_rethink"})


class Tool(Struct, frozen=True, kw_only=True):
    """Something an agent can call."""

    id: str
    name: str
    tool_type: str
    description: str | None
    json_schema: dict[str, Any]
    source_code: str | None
    tags: list[str]
    return_char_limit: int
    pip_requirements: list[dict[str, str | None]] | None
    default_requires_approval: bool
    enable_parallel_execution: bool
    metadata_: dict[str, Any] = field(name="metadata_")
    source_type: str | None = None
    args_json_schema: dict[str, Any] | None = None
    npm_requirements: None = None
    created_by_id: None = None
    last_updated_by_id: None = None
    project_id: None = None


def tool_object(tool: tool_pb2.Tool) -> Tool:
    """A tool."""
    kind = tool.WhichOneof("kind") or "builtin"
    schema = {"name": tool.name, "description": tool.description, "parameters": plain(tool.parameters)}
    return Tool(
        id=tool.id,
        name=tool.name,
        tool_type="letta_memory_core" if kind == "builtin" and tool.name in _CORE else _TYPES[kind],
        description=tool.description or None,
        json_schema=schema,
        source_type="python" if kind == "python" else None,
        source_code=tool.python.source if kind == "python" else None,
        tags=list(tool.tags),
        return_char_limit=tool.return_char_limit,
        pip_requirements=[_requirement(each) for each in tool.python.pip_requirements] or None,
        default_requires_approval=tool.default_requires_approval,
        enable_parallel_execution=tool.parallel,
        metadata_=plain(tool.metadata),
    )


def _requirement(text: str) -> dict[str, str | None]:
    name, _, version = text.partition("==")
    return {"name": name, "version": version or None}
