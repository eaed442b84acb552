"""ToolService: what there is, which agent has it, and trying it. Validate, convert, one transaction, convert back."""

import asyncio
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
from google.protobuf.empty_pb2 import Empty
from msgspec.structs import replace
from sqlalchemy import Connection

from common.clock import Clock
from common.db import idempotency
from common.db.engine import Database
from common.db.paging import page_size
from common.errors import PermissionDenied
from common.ids import IdSource, new_id
from common.pb.bridle.v1 import tool_pb2, tool_service_pb2, tool_service_pb2_grpc
from common.rpc.context import current_call
from services.agents import store as agents_store
from services.agents.attach import attach
from services.agents.model import AgentSpec
from services.messages.convert import return_to_pb
from services.messages.model import ToolCall
from services.tools import convert, store, validate
from services.tools.api import ToolContext, ToolDefinition, ToolRunner
from services.tools.attach import detach, set_approval
from services.tools.catalog import Catalog
from services.tools.change import Changes
from services.tools.model import Tool
from services.tools.remove import remove
from services.tools.schema.source import function_of
from services.toolservers.servicer import ToolServers
from services.wire.repeats import fingerprint
from services.wire.wellknown import to_dict

Change = Callable[[Connection, AgentSpec], AgentSpec]


class ToolServicer(tool_service_pb2_grpc.ToolServiceServicer):
    """Tools, and what agents have of them."""

    def __init__(
        self,
        *,
        db: Database,
        clock: Clock,
        catalog: Catalog,
        runner: ToolRunner,
        servers: ToolServers,
        allow_pip: bool,
        ids: IdSource = new_id,
    ) -> None:
        self._db = db
        self._clock = clock
        self._catalog = catalog
        self._runner = runner
        self._servers = servers
        self._allow_pip = allow_pip
        self._changes = Changes(catalog, clock, ids)

    async def UpsertTool(self, request: tool_service_pb2.UpsertToolRequest, context: Any) -> tool_pb2.Tool:
        """Create a Python tool, or change the one of that name."""
        paths = validate.upsert(request, self._allow_pip)
        # A long source takes a while to read; what was read is remembered for the transaction.
        function = await asyncio.to_thread(function_of, request.tool.python.source)
        upsert = partial(self._changes.upsert, function.name, request.tool, paths)
        tool = await self._db.write(self._once, _organization(), request, upsert)
        return convert.to_pb(tool)

    async def GetTool(self, request: tool_service_pb2.GetToolRequest, context: Any) -> tool_pb2.Tool:
        """One tool."""
        validate.tool_id(request.tool_id)
        return convert.to_pb(await self._db.lookup(self._catalog.get, _organization(), request.tool_id))

    async def ListTools(
        self, request: tool_service_pb2.ListToolsRequest, context: Any
    ) -> tool_service_pb2.ListToolsResponse:
        """A page of tools."""
        validate.listing(request)
        size = page_size(request.page_size)
        found, token = await self._db.read(self._page, _organization(), request, size)
        return tool_service_pb2.ListToolsResponse(tools=map(convert.to_pb, found), next_page_token=token)

    async def UpdateTool(self, request: tool_service_pb2.UpdateToolRequest, context: Any) -> tool_pb2.Tool:
        """Change some fields of a tool."""
        paths = validate.update(request, self._allow_pip)
        self._refuse_builtin(request.tool.id)
        if {"python", "python.source"} & set(paths) and request.tool.python.source:
            await asyncio.to_thread(function_of, request.tool.python.source)
        tool = await self._db.write(self._changes.update, _organization(), request.tool, paths)
        return convert.to_pb(tool)

    async def DeleteTool(self, request: tool_service_pb2.DeleteToolRequest, context: Any) -> Empty:
        """Delete a tool and take it from every agent."""
        validate.tool_id(request.tool_id)
        self._refuse_builtin(request.tool_id)
        await self._db.write(remove, _organization(), request.tool_id, self._clock.now())
        return Empty()

    async def RunTool(self, request: tool_service_pb2.RunToolRequest, context: Any) -> tool_service_pb2.RunToolResponse:
        """Try a tool. It stops when the caller hangs up."""
        validate.run(request)
        organization_id = _organization()
        tool = await self._db.lookup(self._runnable, organization_id, request)
        arguments = msgspec.json.encode(to_dict(request.arguments)).decode()
        call = ToolCall(f"call_{uuid.uuid4().hex}", tool.name, arguments)
        made_for = ToolContext(organization_id, request.agent_id, "", call.id, lambda text: None)
        result = await self._runner.run(tool, call, made_for)
        return tool_service_pb2.RunToolResponse(result=return_to_pb(result))

    async def AttachTool(self, request: tool_service_pb2.AttachToolRequest, context: Any) -> Empty:
        """Give a tool to an agent."""
        validate.pair(request)
        organization_id = _organization()

        def change(conn: Connection, spec: AgentSpec) -> AgentSpec:
            # A tool that is there already keeps the rules it has now.
            if request.tool_id in spec.tool_ids:
                return spec
            return attach(spec, self._catalog.find(conn, organization_id, [request.tool_id]))

        await self._db.write(self._change_agent, organization_id, request.agent_id, change)
        return Empty()

    async def DetachTool(self, request: tool_service_pb2.DetachToolRequest, context: Any) -> Empty:
        """Take a tool from an agent."""
        validate.pair(request)
        organization_id = _organization()

        def change(conn: Connection, spec: AgentSpec) -> AgentSpec:
            # One that the agent has can be taken away even if it is gone itself.
            if request.tool_id not in spec.tool_ids:
                self._catalog.get(conn, organization_id, request.tool_id)
            return detach(spec, request.tool_id)

        await self._db.write(self._change_agent, organization_id, request.agent_id, change)
        return Empty()

    async def SetToolApproval(self, request: tool_service_pb2.SetToolApprovalRequest, context: Any) -> Empty:
        """Put the calls of a tool behind a person, or not. Any name will do: a client may bring the tool to a run."""
        validate.approval(request)

        def change(conn: Connection, spec: AgentSpec) -> AgentSpec:
            return set_approval(spec, request.tool_name, request.requires_approval)

        await self._db.write(self._change_agent, _organization(), request.agent_id, change)
        return Empty()

    async def PutToolServer(self, request: tool_service_pb2.PutToolServerRequest, context: Any) -> tool_pb2.ToolServer:
        """Register a tool server, or change it."""
        return await self._servers.put(request)

    async def ListToolServers(
        self, request: tool_service_pb2.ListToolServersRequest, context: Any
    ) -> tool_service_pb2.ListToolServersResponse:
        """A page of tool servers."""
        return await self._servers.page(request)

    async def SyncToolServer(
        self, request: tool_service_pb2.SyncToolServerRequest, context: Any
    ) -> tool_service_pb2.SyncToolServerResponse:
        """Ask a tool server for its tools."""
        return await self._servers.sync(request)

    async def DeleteToolServer(self, request: tool_service_pb2.DeleteToolServerRequest, context: Any) -> Empty:
        """Forget a tool server."""
        return await self._servers.delete(request)

    def _once(
        self,
        conn: Connection,
        organization_id: str,
        request: tool_service_pb2.UpsertToolRequest,
        effect: Callable[[Connection, str], Tool],
    ) -> Tool:
        """The effect, or for a repeated request the tool as it is now."""
        if not request.request_id:
            return effect(conn, organization_id)
        key = (organization_id, "UpsertTool", request.request_id, fingerprint(request))
        known = idempotency.replay(conn, *key)
        if known is not None:
            return store.get(conn, organization_id, known)
        tool = effect(conn, organization_id)
        idempotency.remember(conn, *key, tool.id, self._clock.now())
        return tool

    def _page(
        self, conn: Connection, organization_id: str, request: tool_service_pb2.ListToolsRequest, size: int
    ) -> tuple[list[Tool | ToolDefinition], str]:
        ids = None
        if request.agent_id:
            ids = agents_store.get(conn, organization_id, request.agent_id).spec.tool_ids
        wanted = convert.filter_from_pb(request, ids)
        return self._catalog.list_page(conn, organization_id, wanted, size=size, token=request.page_token)

    def _runnable(
        self, conn: Connection, organization_id: str, request: tool_service_pb2.RunToolRequest
    ) -> ToolDefinition:
        if request.agent_id:
            agents_store.get(conn, organization_id, request.agent_id)
        tool = self._catalog.get(conn, organization_id, request.tool_id)
        return tool.definition if isinstance(tool, Tool) else tool

    def _change_agent(self, conn: Connection, organization_id: str, agent_id: str, change: Change) -> None:
        current = agents_store.lock(conn, organization_id, agent_id)
        spec = change(conn, current.spec)
        if spec != current.spec:
            changed = replace(current, spec=spec, version=current.version + 1, updated_at=self._clock.now())
            agents_store.replace(conn, current, changed)

    def _refuse_builtin(self, tool_id: str) -> None:
        tool = self._catalog.builtin(tool_id=tool_id)
        if tool is not None:
            raise PermissionDenied(f"change or delete the built-in tool '{tool.name}'")


def _organization() -> str:
    return current_call().organization_id
