"""The rules that the comments of tool.proto and tool_service.proto state, with every broken one named at once."""

import re
from collections.abc import Callable, Collection, Sequence

from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.struct_pb2 import Struct

from common.errors import FieldViolation, InvalidArgument
from common.ids import Prefix
from common.pb.bridle.v1 import tool_pb2, tool_service_pb2
from services.tools.convert import MAX_DESCRIPTION
from services.tools.schema import explicit
from services.wire import checks, masks
from services.wire.checks import Found, require
from services.wire.wellknown import to_dict

Tool = tool_pb2.Tool

_MAX_SOURCE_BYTES = 256 * 1024
_MAX_SCHEMA_BYTES = 64 * 1024
_MAX_METADATA_BYTES = 16 * 1024
_MAX_ARGUMENT_BYTES = 1024 * 1024
_MAX_RETURN = 1_000_000
_MAX_TAGS = 64
_MAX_REQUIREMENTS = 64
_MAX_LISTED = 1_000
_MAX_QUERY = 1_000
# One version of one package: what was approved is what is installed.
_REQUIREMENT = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?(\[[A-Za-z0-9._,-]+\])?==[A-Za-z0-9.!+_-]+")
_KINDS = ("builtin", "python", "remote", "mcp")


def upsert(request: tool_service_pb2.UpsertToolRequest, allow_requirements: bool) -> tuple[str, ...]:
    """Refuse an upsert that breaks a rule by itself, and give the paths that it sets."""
    tool = request.tool
    found = list(checks.text("request_id", request.request_id, most=128))
    kind = tool.WhichOneof("kind")
    if not request.HasField("tool"):
        found.append(FieldViolation("tool", "is required"))
    elif kind is None:
        found.append(FieldViolation("tool.python", "is required"))
    elif kind == "builtin":
        found.append(FieldViolation("tool.builtin", "is not for callers: a built-in tool is part of the server"))
    elif kind != "python":
        found.append(FieldViolation(f"tool.{kind}", "is not for callers: SyncToolServer makes the tools of a server"))
    paths = masks.changed_paths(tool, FieldMask())
    found += _fields(tool, masks.top_level(paths) | {"python"} if kind == "python" else masks.top_level(paths))
    require([*found, *_requirements_allowed(tool, allow_requirements)])
    return paths


def update(request: tool_service_pb2.UpdateToolRequest, allow_requirements: bool) -> tuple[str, ...]:
    """Refuse an update that breaks a rule by itself, and give the paths that it changes."""
    found = list(checks.identifier("tool.id", Prefix.TOOL, request.tool.id))
    wrong = list(masks.problems(Tool.DESCRIPTOR, request.update_mask))
    if wrong:
        raise InvalidArgument([*found, *wrong])
    paths = masks.changed_paths(request.tool, request.update_mask)
    # What the mask leaves out is not looked at.
    changes = masks.copy(request.tool, Tool(), paths)
    touched = masks.top_level(paths)
    # `*` names every kind, and a tool has one. Of a Python tool, the requirements can be changed alone.
    touched -= {kind for kind in _KINDS if kind != changes.WhichOneof("kind")}
    if "python" in touched and not {"python", "python.source"} & set(paths):
        touched.remove("python")
        found += _requirements("tool.python.pip_requirements", changes.python.pip_requirements)
    require([*found, *_fields(changes, touched), *_requirements_allowed(changes, allow_requirements)])
    return paths


def listing(request: tool_service_pb2.ListToolsRequest) -> None:
    """Refuse a filter that can mean nothing."""
    found = list(checks.identifier("agent_id", Prefix.AGENT, request.agent_id)) if request.agent_id else []
    found += checks.text("query", request.query, most=_MAX_QUERY)
    found += checks.count("names", request.names, _MAX_LISTED)
    found += checks.count("tool_ids", request.tool_ids, _MAX_LISTED)
    found += _each("tool_ids", request.tool_ids, lambda at, value: checks.identifier(at, Prefix.TOOL, value))
    found += checks.count("tags", request.tags, _MAX_TAGS)
    found += _each("tags", request.tags, _tag)
    for number, kind in enumerate(request.kinds):
        at = f"kinds[{number}]"
        found += checks.enum(at, tool_service_pb2.ListToolsRequest.Kind, kind)
        if not kind:
            found.append(FieldViolation(at, "must name a kind"))
    require(found)


def run(request: tool_service_pb2.RunToolRequest) -> None:
    """Refuse a trial that cannot be one."""
    found = list(checks.identifier("tool_id", Prefix.TOOL, request.tool_id))
    if request.agent_id:
        found += checks.identifier("agent_id", Prefix.AGENT, request.agent_id)
    found += checks.json("arguments", request.arguments, _MAX_ARGUMENT_BYTES)
    require(found)


def tool_id(text: str) -> None:
    """Refuse what cannot be the id of a tool."""
    require(checks.identifier("tool_id", Prefix.TOOL, text))


def pair(request: tool_service_pb2.AttachToolRequest | tool_service_pb2.DetachToolRequest) -> None:
    """Refuse what cannot be an agent and a tool."""
    found = list(checks.identifier("agent_id", Prefix.AGENT, request.agent_id))
    require([*found, *checks.identifier("tool_id", Prefix.TOOL, request.tool_id)])


def approval(request: tool_service_pb2.SetToolApprovalRequest) -> None:
    """Refuse what cannot be an agent and the name of a tool."""
    found = list(checks.identifier("agent_id", Prefix.AGENT, request.agent_id))
    require([*found, *checks.tool_name("tool_name", request.tool_name)])


def schema(field: str, parameters: Struct) -> Found:
    """A schema of arguments that a caller wrote."""
    wrong = list(checks.json(field, parameters, _MAX_SCHEMA_BYTES))
    yield from wrong or (FieldViolation(field, text) for text in explicit.problems(to_dict(parameters)))


def _fields(tool: Tool, names: Collection[str]) -> Found:
    for name, check in _CHECKS.items():
        if name in names:
            yield from check(f"tool.{name}", tool)


def _each(field: str, values: Sequence[str], check: Callable[[str, str], Found]) -> Found:
    for number, value in enumerate(values):
        yield from check(f"{field}[{number}]", value)


def _tag(field: str, value: str) -> Found:
    return checks.text(field, value, least=1, most=100)


def _tags(field: str, tool: Tool) -> Found:
    yield from checks.count(field, tool.tags, _MAX_TAGS)
    yield from _each(field, tool.tags, _tag)
    yield from checks.no_duplicates(field, tool.tags)


def _parameters(field: str, tool: Tool) -> Found:
    if tool.HasField("parameters"):
        yield from schema(field, tool.parameters)


def _python(field: str, tool: Tool) -> Found:
    if not tool.python.source.strip():
        yield FieldViolation(f"{field}.source", "is required")
    yield from checks.size_in_bytes(f"{field}.source", tool.python.source, _MAX_SOURCE_BYTES)
    yield from _requirements(f"{field}.pip_requirements", tool.python.pip_requirements)


def _requirements(field: str, values: Sequence[str]) -> Found:
    yield from checks.count(field, values, _MAX_REQUIREMENTS)
    yield from _each(field, values, _requirement)
    yield from checks.no_duplicates(field, values)


def _requirement(field: str, value: str) -> Found:
    if len(value) > 200 or not _REQUIREMENT.fullmatch(value):
        yield FieldViolation(field, "must look like 'name==version'")


def _requirements_allowed(tool: Tool, allowed: bool) -> Found:
    if tool.python.pip_requirements and not allowed:
        yield FieldViolation(
            "tool.python.pip_requirements",
            "must be empty: this server installs no packages unless its operator sets BRIDLE_TOOL_REQUIREMENTS=true",
        )


def _return_char_limit(field: str, tool: Tool) -> Found:
    if not 0 <= tool.return_char_limit <= _MAX_RETURN:
        yield FieldViolation(field, f"must be 1 to {_MAX_RETURN:,}, or 0 for the default")


def _timeout(field: str, tool: Tool) -> Found:
    if tool.HasField("timeout"):
        yield from checks.duration(field, tool.timeout)


_CHECKS: dict[str, Callable[[str, Tool], Found]] = {
    "name": lambda field, tool: checks.tool_name(field, tool.name) if tool.name else iter(()),
    "description": lambda field, tool: checks.text(field, tool.description, most=MAX_DESCRIPTION),
    "parameters": _parameters,
    "python": _python,
    "return_char_limit": _return_char_limit,
    "timeout": _timeout,
    "crash_policy": lambda field, tool: checks.enum(field, Tool.CrashPolicy, tool.crash_policy),
    "tags": _tags,
    "metadata": lambda field, tool: checks.json(field, tool.metadata, _MAX_METADATA_BYTES),
}
