"""A client of AgentService, and what it stands on."""

from collections.abc import Awaitable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from sqlalchemy import BigInteger, Connection, func, select

from common.db.engine import Database
from common.db.tables import runs
from common.errors import NotFound
from common.ids import DEFAULT_ORGANIZATION, OrganizationId, Prefix, new_id
from common.pb.bridle.v1 import agent_pb2
from common.pb.bridle.v1 import agent_service_pb2 as api
from common.pb.bridle.v1.agent_service_pb2_grpc import AgentServiceStub
from common.pb.bridle.v1.tool_rule_pb2 import ToolRule
from common.rpc.auth import Identity
from services.tools.api import ToolDefinition

Agent = agent_pb2.Agent
OTHER = OrganizationId("org-00000000-0000-4000-8000-000000000001")
SEARCH = ToolDefinition(new_id(Prefix.TOOL), "search", "", {})
DELETE = ToolDefinition(new_id(Prefix.TOOL), "delete_files", "", {}, default_requires_approval=True)
APPROVE_DELETE = ToolRule(tool_name="delete_files", requires_approval=ToolRule.RequiresApproval())


class ListedTools:
    """A catalog of two tools."""

    def find(
        self, conn: Connection, organization_id: str, ids: Sequence[str], names: Sequence[str] = ()
    ) -> list[ToolDefinition]:
        known = {key: tool for tool in (SEARCH, DELETE) for key in (tool.id, tool.name)}
        for each in (*ids, *names):
            if each not in known:
                raise NotFound("tool", each)
        return [known[each] for each in (*ids, *names)]

    def load(self, conn: Connection, organization_id: str, ids: Sequence[str]) -> list[ToolDefinition]:
        return [tool for tool in (SEARCH, DELETE) if tool.id in ids]


class ByMetadata:
    """Takes the caller's word for its organization."""

    async def authenticate(self, method: str, metadata: Mapping[str, str | bytes]) -> Identity:
        return Identity(OrganizationId(str(metadata.get("org", DEFAULT_ORGANIZATION))), "tester")


class Rig:
    """A running AgentService and a client of it."""

    def __init__(self, db: Database, channel: grpc.aio.Channel) -> None:
        self.db = db
        self.stub: Any = AgentServiceStub(channel)
        self.cancelled: list[str] = []

    async def create(self, **fields: Any) -> Agent:
        agent: Agent = await self.stub.CreateAgent(api.CreateAgentRequest(agent=Agent(**fields)), timeout=10)
        return agent

    async def get(self, agent_id: str) -> Agent:
        agent: Agent = await self.stub.GetAgent(api.GetAgentRequest(agent_id=agent_id), timeout=10)
        return agent

    async def update(self, agent: Agent, *paths: str, request_id: str = "") -> Agent:
        mask = FieldMask(paths=paths) if paths else None
        request = api.UpdateAgentRequest(agent=agent, update_mask=mask, request_id=request_id)
        changed: Agent = await self.stub.UpdateAgent(request, timeout=10)
        return changed

    async def delete(self, agent_id: str, **fields: Any) -> None:
        await self.stub.DeleteAgent(api.DeleteAgentRequest(agent_id=agent_id, **fields), timeout=10)

    async def names(self, **conditions: Any) -> list[str]:
        wanted = api.AgentFilter(**conditions)
        found = await self.stub.ListAgents(api.ListAgentsRequest(filter=wanted), timeout=10)
        counted = await self.stub.CountAgents(api.CountAgentsRequest(filter=wanted), timeout=10)
        assert counted.count == len(found.agents)
        return sorted(agent.name for agent in found.agents)

    async def cancel_runs(self, agent_id: str) -> None:
        self.cancelled.append(agent_id)

    async def add_run(self, agent: Agent, state: str) -> str:
        return await self.db.write(insert_run, agent, state)


def insert_run(conn: Connection, agent: Agent, state: str) -> str:
    now = datetime.now(UTC)
    counters = {column.name: 0 for column in runs.c if isinstance(column.type, BigInteger) and not column.nullable}
    run_id = new_id(Prefix.RUN)
    conn.execute(
        runs.insert().values(
            **counters,
            id=run_id,
            organization_id=DEFAULT_ORGANIZATION,
            agent_id=agent.id,
            conversation_id=agent.default_conversation_id,
            state=state,
            request="{}",
            background=False,
            outcome="{}",
            created_at=now,
            updated_at=now,
        )
    )
    return run_id


async def refused(call: Awaitable[Any], code: grpc.StatusCode, reason: str) -> dict[str, str]:
    """The metadata of the ErrorInfo that a call is refused with."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    assert caught.value.code() is code, caught.value.details()
    status = rpc_status.from_call(caught.value)  # type: ignore[arg-type]  # reads only what both have
    assert status is not None
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    assert info.reason == reason
    return dict(info.metadata)


async def invalid(call: Awaitable[Any]) -> list[str]:
    """The fields that a call is refused for."""
    metadata = await refused(call, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_ARGUMENT")
    return metadata["fields"].split(",")


async def not_found(call: Awaitable[Any]) -> tuple[str, str]:
    """What a call did not find."""
    metadata = await refused(call, grpc.StatusCode.NOT_FOUND, "RESOURCE_NOT_FOUND")
    return metadata["resource"], metadata["id"]


async def rows(db: Database, table: Any) -> int:
    return await db.read(lambda conn: conn.execute(select(func.count()).select_from(table)).scalar_one())
