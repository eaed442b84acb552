"""Tools between protobuf and the domain: the only file here that knows both."""

from typing import Any

from common.errors import FieldViolation, InvalidArgument
from common.pb.bridle.v1 import tool_pb2, tool_service_pb2
from services.messages.convert import timestamp
from services.tools.api import Builtin, CrashPolicy, Kind, Mcp, Python, Remote, ToolDefinition
from services.tools.model import RETURN_CHAR_LIMIT, Tool, ToolFilter, ToolSpec
from services.tools.schema import explicit
from services.tools.schema.source import Function, derive, function_of
from services.wire import checks
from services.wire.wellknown import enum_number, enum_text, to_dict, to_duration, to_seconds, to_struct

MAX_DESCRIPTION = 10_000

_POLICY = (tool_pb2.Tool.CrashPolicy, "CRASH_POLICY_")
_KIND = (tool_service_pb2.ListToolsRequest.Kind, "KIND_")


def etag(version: int) -> str:
    """What callers compare; they must not read anything into it."""
    return f"v{version}"


def filter_from_pb(pb: tool_service_pb2.ListToolsRequest, ids: tuple[str, ...] | None) -> ToolFilter:
    """Which tools a caller means; `ids` are those of the agent that it named."""
    wanted = tuple(sorted(set(pb.tool_ids))) or None
    if ids is not None:
        wanted = tuple(sorted(each for each in set(ids) if wanted is None or each in wanted))
    return ToolFilter(
        names=tuple(sorted(set(pb.names))),
        query=pb.query,
        tags=tuple(sorted(set(pb.tags))),
        ids=wanted,
        kinds=tuple(sorted({enum_text(*_KIND, kind) for kind in pb.kinds})),
    )


def to_pb(tool: Tool | ToolDefinition) -> tool_pb2.Tool:
    """A tool as callers see it."""
    if isinstance(tool, ToolDefinition):
        return _definition_to_pb(tool)
    pb = _definition_to_pb(tool.definition)
    pb.tags.extend(tool.tags)
    if tool.spec.metadata:
        pb.metadata.CopyFrom(to_struct(tool.spec.metadata))
    pb.etag = etag(tool.version)
    pb.create_time.CopyFrom(timestamp(tool.created_at))
    pb.update_time.CopyFrom(timestamp(tool.updated_at))
    return pb


def settable_pb(tool: Tool) -> tool_pb2.Tool:
    """A tool as its callers wrote it: without what follows from its source, so that it can follow from another one."""
    pb = to_pb(tool)
    if isinstance(tool.spec.kind, Python):
        pb.ClearField("name")
        if not tool.spec.own_description:
            pb.ClearField("description")
        if not tool.spec.own_parameters:
            pb.ClearField("parameters")
    return pb


def from_pb(pb: tool_pb2.Tool) -> tuple[str, ToolSpec]:
    """Name and specification of a checked tool; what follows from a source is read from it."""
    kind = _kind_from_pb(pb)
    told: dict[str, Any] = {"description": pb.description, "parameters": to_dict(pb.parameters)}
    name = pb.name
    if isinstance(kind, Python):
        name, told = _from_source(pb, kind)
    return name, ToolSpec(
        kind=kind,
        **told,
        default_requires_approval=pb.default_requires_approval,
        parallel=pb.parallel,
        return_char_limit=pb.return_char_limit or RETURN_CHAR_LIMIT,
        timeout=to_seconds(pb.timeout) if pb.HasField("timeout") else None,
        crash_policy=CrashPolicy(enum_text(*_POLICY, pb.crash_policy)) if pb.crash_policy else CrashPolicy.NEVER,
        metadata=to_dict(pb.metadata),
    )


def _from_source(pb: tool_pb2.Tool, kind: Python) -> tuple[str, dict[str, Any]]:
    function = function_of(kind.source)
    if pb.name and pb.name != function.name:
        raise InvalidArgument.of("tool.name", f"must be '{function.name}', as the source says, or empty")
    own = pb.HasField("parameters")
    if own:
        parameters = explicit.completed(to_dict(pb.parameters))
        _check_fit(parameters, function)
        description = pb.description or function.docstring
    else:
        derived = derive(kind.source)
        parameters, description = derived.parameters, pb.description or derived.description
    if not description.strip():
        raise InvalidArgument.of("tool.description", "is required: the function has no docstring")
    checks.require(checks.text("tool.description", description, most=MAX_DESCRIPTION))
    return function.name, {
        "description": description,
        "parameters": parameters,
        "own_description": bool(pb.description),
        "own_parameters": own,
    }


def _check_fit(parameters: dict[str, Any], function: Function) -> None:
    """A schema must not promise the model what the function does not take, or leave out what it needs."""
    shown = {each.name for each in function.parameters if not each.injected}
    found = [] if function.takes_anything else [name for name in parameters["properties"] if name not in shown]
    field = "tool.parameters"
    violations = [FieldViolation(field, f"has '{name}', which '{function.name}' does not take") for name in found]
    violations += [
        FieldViolation(field, f"lacks '{each.name}', without which '{function.name}' cannot be called")
        for each in function.parameters
        if not each.injected and not each.has_default and each.name not in parameters["properties"]
    ]
    checks.require(violations)


def _kind_from_pb(pb: tool_pb2.Tool) -> Kind:
    match pb.WhichOneof("kind"):
        case "python":
            return Python(pb.python.source, tuple(pb.python.pip_requirements))
        case "remote":
            return Remote(pb.remote.server, pb.remote.tool)
        case "mcp":
            return Mcp(pb.mcp.server, pb.mcp.tool)
        case _:
            return Builtin()


def _definition_to_pb(tool: ToolDefinition) -> tool_pb2.Tool:
    pb = tool_pb2.Tool(
        id=tool.id,
        name=tool.name,
        description=tool.description,
        parameters=to_struct(tool.parameters),
        default_requires_approval=tool.default_requires_approval,
        parallel=tool.parallel,
        return_char_limit=tool.return_char_limit,
        crash_policy=enum_number(*_POLICY, tool.crash_policy),
    )
    if tool.timeout is not None:
        pb.timeout.CopyFrom(to_duration(tool.timeout))
    match tool.kind:
        case Builtin():
            pb.builtin.SetInParent()
        case Python(source=source, requirements=requirements):
            pb.python.CopyFrom(tool_pb2.PythonTool(source=source, pip_requirements=requirements))
        case Remote(server=server, tool=name):
            pb.remote.server, pb.remote.tool = server, name
        case Mcp(server=server, tool=name):
            pb.mcp.server, pb.mcp.tool = server, name
    return pb
