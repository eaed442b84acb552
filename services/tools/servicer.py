"""ToolService: what there is, and which agent has it. The rest of the contract answers UNIMPLEMENTED."""

from collections.abc import Callable
from typing import Any

from google.protobuf.empty_pb2 import Empty
from msgspec.structs import replace
from sqlalchemy import Connection

from common.clock import Clock
from common.db.engine import Database
from common.db.paging import decode_token, encode_token, list_scope, page_size
from common.errors import NotFound
from common.ids import Prefix
from common.pb.bridle.v1 import tool_pb2, tool_service_pb2, tool_service_pb2_grpc
from common.rpc.context import current_call
from services.agents import store as agents_store
from services.agents.attach import attach
from services.agents.model import AgentSpec
from services.tools.api import ToolDefinition
from services.tools.attach import detach, set_approval
from services.tools.functions import FunctionTools
from services.wire import checks
from services.wire.checks import Found, require
from services.wire.wellknown import enum_number, to_struct

_MAX_QUERY = 1_000

Change = Callable[[Connection, AgentSpec], AgentSpec]


class ToolServicer(tool_service_pb2_grpc.ToolServiceServicer):
    """The built-in tools, and what agents have of them."""

    def __init__(self, *, db: Database, clock: Clock, tools: FunctionTools) -> None:
        self._db = db
        self._clock = clock
        self._tools = tools

    async def GetTool(self, request: tool_service_pb2.GetToolRequest, context: Any) -> tool_pb2.Tool:
        """One tool."""
        require(checks.identifier("tool_id", Prefix.TOOL, request.tool_id))
        found = next((tool for tool in self._tools.all() if tool.id == request.tool_id), None)
        if found is None:
            raise NotFound("tool", request.tool_id)
        return _to_pb(found)

    async def ListTools(
        self, request: tool_service_pb2.ListToolsRequest, context: Any
    ) -> tool_service_pb2.ListToolsResponse:
        """A page of tools by name: those that are part of this program have no age."""
        require(_listing(request))
        size, scope = page_size(request.page_size), _scope(request)
        after = decode_token(scope, request.page_token)
        tools = self._tools.all()
        if request.agent_id:
            tools = await self._db.read(self._of_agent, _organization(), request.agent_id)
        found = [tool for tool in tools if _matches(tool, request) and (after is None or (tool.name,) > after)]
        more = encode_token(scope, (found[size - 1].name,)) if len(found) > size else ""
        return tool_service_pb2.ListToolsResponse(tools=map(_to_pb, found[:size]), next_page_token=more)

    async def AttachTool(self, request: tool_service_pb2.AttachToolRequest, context: Any) -> Empty:
        """Give a tool to an agent."""
        require(_pair(request))
        organization_id = _organization()

        def change(conn: Connection, spec: AgentSpec) -> AgentSpec:
            # A tool that is there already keeps the rules it has now.
            if request.tool_id in spec.tool_ids:
                return spec
            return attach(spec, self._tools.find(conn, organization_id, [request.tool_id]))

        await self._db.write(self._change_agent, organization_id, request.agent_id, change)
        return Empty()

    async def DetachTool(self, request: tool_service_pb2.DetachToolRequest, context: Any) -> Empty:
        """Take a tool from an agent."""
        require(_pair(request))
        organization_id = _organization()

        def change(conn: Connection, spec: AgentSpec) -> AgentSpec:
            # One that the agent has can be taken away even if it is gone itself.
            if request.tool_id not in spec.tool_ids:
                self._tools.find(conn, organization_id, [request.tool_id])
            return detach(spec, request.tool_id)

        await self._db.write(self._change_agent, organization_id, request.agent_id, change)
        return Empty()

    async def SetToolApproval(self, request: tool_service_pb2.SetToolApprovalRequest, context: Any) -> Empty:
        """Put the calls of a tool behind a person, or not. Any name will do: a client may bring the tool to a run."""
        require(_approval(request))

        def change(conn: Connection, spec: AgentSpec) -> AgentSpec:
            return set_approval(spec, request.tool_name, request.requires_approval)

        await self._db.write(self._change_agent, _organization(), request.agent_id, change)
        return Empty()

    def _change_agent(self, conn: Connection, organization_id: str, agent_id: str, change: Change) -> None:
        current = agents_store.lock(conn, organization_id, agent_id)
        spec = change(conn, current.spec)
        if spec != current.spec:
            changed = replace(current, spec=spec, version=current.version + 1, updated_at=self._clock.now())
            agents_store.replace(conn, current, changed)

    def _of_agent(self, conn: Connection, organization_id: str, agent_id: str) -> list[ToolDefinition]:
        spec = agents_store.get(conn, organization_id, agent_id).spec
        return sorted(self._tools.load(conn, organization_id, spec.tool_ids), key=lambda tool: tool.name)


def _organization() -> str:
    return current_call().organization_id


def _listing(request: tool_service_pb2.ListToolsRequest) -> Found:
    if request.agent_id:
        yield from checks.identifier("agent_id", Prefix.AGENT, request.agent_id)
    yield from checks.text("query", request.query, most=_MAX_QUERY)


def _pair(request: tool_service_pb2.AttachToolRequest | tool_service_pb2.DetachToolRequest) -> Found:
    yield from checks.identifier("agent_id", Prefix.AGENT, request.agent_id)
    yield from checks.identifier("tool_id", Prefix.TOOL, request.tool_id)


def _approval(request: tool_service_pb2.SetToolApprovalRequest) -> Found:
    yield from checks.identifier("agent_id", Prefix.AGENT, request.agent_id)
    yield from checks.tool_name("tool_name", request.tool_name)


def _scope(request: tool_service_pb2.ListToolsRequest) -> bytes:
    names = sorted(set(request.names))
    return list_scope("ListTools", _organization(), request.agent_id, names, request.query)


def _matches(tool: ToolDefinition, request: tool_service_pb2.ListToolsRequest) -> bool:
    named = not request.names or tool.name in request.names
    return named and request.query.casefold() in f"{tool.name}\n{tool.description}".casefold()


def _to_pb(tool: ToolDefinition) -> tool_pb2.Tool:
    return tool_pb2.Tool(
        id=tool.id,
        name=tool.name,
        description=tool.description,
        parameters=to_struct(tool.parameters),
        builtin=tool_pb2.BuiltinTool(),
        default_requires_approval=tool.default_requires_approval,
        parallel=tool.parallel,
        return_char_limit=tool.return_char_limit,
        crash_policy=enum_number(tool_pb2.Tool.CrashPolicy, "CRASH_POLICY_", tool.crash_policy),
    )
