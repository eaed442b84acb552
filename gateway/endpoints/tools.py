"""Tools: those of the organization, and those of an agent."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from google.protobuf.field_mask_pb2 import FieldMask
from msgspec import Meta, Struct

from common.pb.bridle.v1 import message_pb2, tool_pb2, tool_service_pb2
from gateway.agents.related import get_agent
from gateway.agents.tools import Tool, tool_object
from gateway.endpoints.agents import BASE_TOOLS
from gateway.http.endpoint import Empty, Endpoint, Exchange
from gateway.http.problems import invalid, not_found
from gateway.messages.inputs import fill
from gateway.messages.listing import Limit, Order
from gateway.paging import Cursor, pages, window

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_RUN_SECONDS: Final = 600.0
_SUCCEEDED: Final = message_pb2.ToolReturn.OUTCOME_SUCCEEDED


class Requirement(Struct, frozen=True):
    """A package that a tool needs."""

    name: str
    version: str | None = None


class ToolFields(Struct, frozen=True, kw_only=True):
    """What can be said of a tool."""

    source_code: str | None = None
    source_type: Literal["python"] | None = None
    description: str | None = None
    tags: list[str] | None = None
    json_schema: dict[str, Any] | None = None
    args_json_schema: dict[str, Any] | None = None
    return_char_limit: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    pip_requirements: list[Requirement] | None = None
    default_requires_approval: bool | None = None
    enable_parallel_execution: bool | None = None


class UpsertBody(ToolFields, frozen=True, kw_only=True):
    """A tool by its source: the function's name is its name."""

    source_code: str


class ListQuery(Struct, frozen=True, kw_only=True):
    """Which tools."""

    name: str | None = None
    names: list[str] | None = None
    tool_ids: list[str] | None = None
    search: str | None = None
    tool_types: list[str] | None = None
    exclude_tool_types: list[str] | None = None
    return_only_letta_tools: bool = False
    before: str | None = None
    after: str | None = None
    limit: Limit = 50
    order: Order = "desc"


class OfAgentQuery(Struct, frozen=True, kw_only=True):
    """Which tools of an agent."""

    before: str | None = None
    after: str | None = None
    limit: Limit = 10
    order: Order = "desc"


class ApprovalBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Whether calls wait for a person."""

    requires_approval: bool | None = None
    # What the JavaScript SDK sends: it has taken the name of the parameter for that of the field.
    body_requires_approval: bool | None = None


class ApprovalQuery(Struct, frozen=True):
    """The older place for it."""

    requires_approval: bool | None = None


class RunBody(Struct, frozen=True):
    """What to call it with."""

    args: dict[str, Any] = {}


class RunResult(Struct, frozen=True, kw_only=True):
    """What came of a trial."""

    status: str
    func_return: Any
    stdout: list[str]
    stderr: list[str]
    agent_state: None = None
    sandbox_config_fingerprint: None = None


async def upsert(exchange: Exchange[UpsertBody, Empty]) -> Tool:
    """Register a tool, or change the one of the same name."""
    tool, _ = _said(exchange.body)
    request = tool_service_pb2.UpsertToolRequest(tool=tool)
    return tool_object(await exchange.caller(exchange.backend.tools.UpsertTool, request))


def _said(body: ToolFields) -> tuple[tool_pb2.Tool, list[str]]:
    tool, paths = tool_pb2.Tool(), list[str]()
    for name, ours in (
        ("description", "description"),
        ("default_requires_approval", "default_requires_approval"),
        ("enable_parallel_execution", "parallel"),
        ("return_char_limit", "return_char_limit"),
    ):
        if getattr(body, name) is not None:
            setattr(tool, ours, getattr(body, name))
            paths.append(ours)
    if body.source_code is not None:
        tool.python.source = body.source_code
        paths.append("python.source")
    if body.pip_requirements is not None:
        tool.python.pip_requirements.extend(map(_requirement, body.pip_requirements))
        paths.append("python.pip_requirements")
    if body.tags is not None:
        tool.tags.extend(body.tags)
        paths.append("tags")
    _schema(body, tool, paths)
    return tool, paths


def _requirement(given: Requirement) -> str:
    return f"{given.name}=={given.version}" if given.version else given.name


def _schema(body: ToolFields, tool: tool_pb2.Tool, paths: list[str]) -> None:
    schema = body.json_schema
    parameters = body.args_json_schema if schema is None else schema.get("parameters")
    if parameters is not None:
        if not isinstance(parameters, dict):
            raise invalid(("body", "json_schema", "parameters"), "Input should be an object")
        fill(tool.parameters, parameters, ("body", "json_schema", "parameters"))
        paths.append("parameters")
    if schema is not None and isinstance(schema.get("name"), str):
        tool.name = schema["name"]
    if schema is not None and not tool.description and isinstance(schema.get("description"), str):
        tool.description = schema["description"]
        paths.append("description")


async def retrieve(exchange: Exchange[None, Empty]) -> Tool:
    """One tool."""
    request = tool_service_pb2.GetToolRequest(tool_id=exchange.path["tool_id"])
    return tool_object(await exchange.caller(exchange.backend.tools.GetTool, request))


async def update(exchange: Exchange[ToolFields, Empty]) -> Tool:
    """Change a tool."""
    tool, paths = _said(exchange.body)
    if not paths:
        return await retrieve(exchange)  # type: ignore[arg-type]  # it looks at the path only
    tool.id = exchange.path["tool_id"]
    tool.ClearField("name")
    request = tool_service_pb2.UpdateToolRequest(tool=tool, update_mask=FieldMask(paths=paths))
    return tool_object(await exchange.caller(exchange.backend.tools.UpdateTool, request))


async def delete(exchange: Exchange[None, Empty]) -> None:
    """Delete a tool; agents that have it lose it."""
    request = tool_service_pb2.DeleteToolRequest(tool_id=exchange.path["tool_id"])
    await exchange.caller(exchange.backend.tools.DeleteTool, request)


async def list_tools(exchange: Exchange[None, ListQuery]) -> list[Tool]:
    """Tools."""
    query = exchange.query
    names = [*(query.names or ()), *([query.name] if query.name else ())]
    request = tool_service_pb2.ListToolsRequest(names=names, query=query.search or "")
    found = pages(exchange, exchange.backend.tools.ListTools, request, "tools")
    return await window(_matching(found, query), _cursor(query), lambda tool: tool.id)


async def _matching(found: AsyncIterator[tool_pb2.Tool], query: ListQuery) -> AsyncIterator[Tool]:
    wanted = [tool_object(each) async for each in found]
    for tool in reversed(wanted) if query.order == "asc" else wanted:
        if (
            (query.tool_ids is None or tool.id in query.tool_ids)
            and (query.tool_types is None or tool.tool_type in query.tool_types)
            and tool.tool_type not in (query.exclude_tool_types or ())
            and (not query.return_only_letta_tools or tool.tool_type.startswith("letta_"))
        ):
            yield tool


def _cursor(query: ListQuery | OfAgentQuery) -> Cursor:
    return Cursor(query.limit, query.after, query.before)


async def count(exchange: Exchange[None, Empty]) -> int:
    """How many tools there are."""
    request = tool_service_pb2.ListToolsRequest()
    return len([1 async for _ in pages(exchange, exchange.backend.tools.ListTools, request, "tools")])


async def base_tools(exchange: Exchange[None, Empty]) -> list[Tool]:
    """The tools that agents have unless they are told otherwise. They are always there."""
    request = tool_service_pb2.ListToolsRequest(names=BASE_TOOLS)
    found = await exchange.caller(exchange.backend.tools.ListTools, request)
    return [tool_object(each) for each in found.tools]


async def of_agent(exchange: Exchange[None, OfAgentQuery]) -> list[Tool]:
    """The tools of an agent."""
    query = exchange.query
    request = tool_service_pb2.ListToolsRequest(agent_id=exchange.path["agent_id"])
    found = [tool_object(each) async for each in pages(exchange, exchange.backend.tools.ListTools, request, "tools")]
    if query.order == "asc":
        found.reverse()
    return await window(_each(found), _cursor(query), lambda tool: tool.id)


async def _each(tools: list[Tool]) -> AsyncIterator[Tool]:
    for tool in tools:
        yield tool


async def attach(exchange: Exchange[None, Empty]) -> None:
    """Give a tool to an agent."""
    request = tool_service_pb2.AttachToolRequest(agent_id=exchange.path["agent_id"], tool_id=exchange.path["tool_id"])
    await exchange.caller(exchange.backend.tools.AttachTool, request)


async def detach(exchange: Exchange[None, Empty]) -> None:
    """Take a tool from an agent."""
    request = tool_service_pb2.DetachToolRequest(agent_id=exchange.path["agent_id"], tool_id=exchange.path["tool_id"])
    await exchange.caller(exchange.backend.tools.DetachTool, request)


async def approval(exchange: Exchange[ApprovalBody, ApprovalQuery]) -> None:
    """Let the calls of a tool wait for a person, or not."""
    said = (
        exchange.body.requires_approval,
        exchange.body.body_requires_approval,
        exchange.query.requires_approval,
    )
    required = next((each for each in said if each is not None), None)
    if required is None:
        raise invalid(("body", "requires_approval"), "Field required", "missing")
    request = tool_service_pb2.SetToolApprovalRequest(
        agent_id=exchange.path["agent_id"], tool_name=exchange.path["tool_name"], requires_approval=required
    )
    await exchange.caller(exchange.backend.tools.SetToolApproval, request)


async def run(exchange: Exchange[RunBody, Empty]) -> RunResult:
    """Try a tool of an agent, with the agent's secrets as its environment."""
    agent = await get_agent(exchange, exchange.path["agent_id"])
    name = exchange.path["tool_name"]
    listing = tool_service_pb2.ListToolsRequest(agent_id=agent.id, names=[name])
    tools = (await exchange.caller(exchange.backend.tools.ListTools, listing)).tools
    if not tools:
        raise not_found(f"Agent {agent.id} has no tool {name[:100]}.")
    request = tool_service_pb2.RunToolRequest(tool_id=tools[0].id, agent_id=agent.id)
    fill(request.arguments, exchange.body.args, ("body", "args"))
    result = (await exchange.caller(exchange.backend.tools.RunTool, request, _RUN_SECONDS)).result
    return RunResult(
        status="success" if result.outcome == _SUCCEEDED else "error",
        func_return="\n".join(part.text.text for part in result.content if part.HasField("text")),
        stdout=list(result.stdout),
        stderr=list(result.stderr),
    )


_endpoint = partial(Endpoint, tag="tools")
_TOOLS: Final = "/v1/tools"
_ONE: Final = "/v1/tools/{tool_id}"
_OF_AGENT: Final = "/v1/agents/{agent_id}/tools"
ENDPOINTS: Final = (
    _endpoint(
        method="PUT", path=_TOOLS, summary="Register or change a tool", handler=upsert, body=UpsertBody, answer=Tool
    ),
    _endpoint(
        method="POST", path=_TOOLS, summary="Register or change a tool", handler=upsert, body=UpsertBody, answer=Tool
    ),
    _endpoint(method="GET", path=_TOOLS, summary="List tools", handler=list_tools, query=ListQuery, answer=list[Tool]),
    _endpoint(method="GET", path=f"{_TOOLS}/count", summary="Count tools", handler=count, answer=int),
    _endpoint(
        method="POST",
        path=f"{_TOOLS}/add-base-tools",
        summary="The tools that agents have by default",
        handler=base_tools,
        answer=list[Tool],
    ),
    _endpoint(method="GET", path=_ONE, summary="Retrieve a tool", handler=retrieve, answer=Tool),
    _endpoint(method="PATCH", path=_ONE, summary="Change a tool", handler=update, body=ToolFields, answer=Tool),
    _endpoint(method="DELETE", path=_ONE, summary="Delete a tool", handler=delete),
    _endpoint(
        method="GET",
        path=_OF_AGENT,
        summary="List the tools of an agent",
        handler=of_agent,
        query=OfAgentQuery,
        answer=list[Tool],
    ),
    _endpoint(
        method="PATCH", path=f"{_OF_AGENT}/attach/{{tool_id}}", summary="Give a tool to an agent", handler=attach
    ),
    _endpoint(
        method="PATCH", path=f"{_OF_AGENT}/detach/{{tool_id}}", summary="Take a tool from an agent", handler=detach
    ),
    _endpoint(
        method="PATCH",
        path=f"{_OF_AGENT}/approval/{{tool_name}}",
        summary="Let calls wait for a person",
        handler=approval,
        body=ApprovalBody,
        query=ApprovalQuery,
    ),
    _endpoint(
        method="POST",
        path=f"{_OF_AGENT}/{{tool_name}}/run",
        summary="Try a tool",
        handler=run,
        body=RunBody,
        answer=RunResult,
    ),
)
