"""AgentService: validate, convert, one transaction, convert back."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from google.protobuf.empty_pb2 import Empty
from msgspec.structs import replace
from sqlalchemy import Connection

from common.clock import Clock
from common.db import idempotency
from common.db.engine import Database
from common.db.paging import page_size
from common.errors import EtagMismatch, NotFound, ResourceInUse
from common.ids import IdSource, Prefix, new_id
from common.pb.bridle.v1 import agent_pb2, agent_service_pb2, agent_service_pb2_grpc
from common.rpc.context import current_call
from common.seal import Seal
from services.agents import convert, secrets, store, validate
from services.agents.attach import attach
from services.agents.memory import attach_blocks
from services.agents.model import Agent
from services.blocks.convert import new_block
from services.tools.catalog import ToolCatalog
from services.wire import masks
from services.wire.repeats import fingerprint

Writing = agent_service_pb2.CreateAgentRequest | agent_service_pb2.UpdateAgentRequest


class AgentServicer(agent_service_pb2_grpc.AgentServiceServicer):
    """What agents are. What they do is other services' business, apart from ending it before a forced delete."""

    def __init__(
        self,
        *,
        db: Database,
        clock: Clock,
        catalog: ToolCatalog,
        seal: Seal,
        knows_model: Callable[[str, str], Awaitable[bool]],
        default_model: str,
        cancel_runs: Callable[[str], Awaitable[None]],
        ids: IdSource = new_id,
    ) -> None:
        self._db = db
        self._clock = clock
        self._catalog = catalog
        self._seal = seal
        self._knows_model = knows_model
        self._default_model = default_model
        self._cancel_runs = cancel_runs
        self._ids = ids

    async def CreateAgent(self, request: agent_service_pb2.CreateAgentRequest, context: Any) -> agent_pb2.Agent:
        """Create an agent with an empty default conversation."""
        validate.create(request)
        await self._require_models(request.agent)
        create = partial(self._create, request)
        agent = await self._db.write(self._once, _organization(), "CreateAgent", request, create)
        return convert.agent_to_pb(agent)

    async def GetAgent(self, request: agent_service_pb2.GetAgentRequest, context: Any) -> agent_pb2.Agent:
        """One agent."""
        validate.agent_id(request.agent_id)
        return convert.agent_to_pb(await self._db.lookup(store.get, _organization(), request.agent_id))

    async def ListAgents(
        self, request: agent_service_pb2.ListAgentsRequest, context: Any
    ) -> agent_service_pb2.ListAgentsResponse:
        """A page of agents."""
        validate.agent_filter(request.filter)
        found, token = await self._db.read(
            store.list_page,
            _organization(),
            convert.filter_from_pb(request.filter),
            newest_first=validate.newest_first(request.order_by),
            size=page_size(request.page_size),
            token=request.page_token,
        )
        agents = [convert.agent_to_pb(agent) for agent in found]
        return agent_service_pb2.ListAgentsResponse(agents=agents, next_page_token=token)

    async def CountAgents(
        self, request: agent_service_pb2.CountAgentsRequest, context: Any
    ) -> agent_service_pb2.CountAgentsResponse:
        """How many agents match."""
        validate.agent_filter(request.filter)
        number = await self._db.read(store.count, _organization(), convert.filter_from_pb(request.filter))
        return agent_service_pb2.CountAgentsResponse(count=number)

    async def UpdateAgent(self, request: agent_service_pb2.UpdateAgentRequest, context: Any) -> agent_pb2.Agent:
        """Change some fields of an agent."""
        paths = validate.update(request)
        await self._require_models(masks.copy(request.agent, agent_pb2.Agent(), paths))
        update = partial(self._update, request, paths)
        agent = await self._db.write(self._once, _organization(), "UpdateAgent", request, update)
        return convert.agent_to_pb(agent)

    async def DeleteAgent(self, request: agent_service_pb2.DeleteAgentRequest, context: Any) -> Empty:
        """Delete an agent and everything that belongs to it."""
        validate.agent_id(request.agent_id)
        organization_id = _organization()
        if request.force:
            # Runs are ended only for somebody who may delete the agent, and would.
            current = await self._db.lookup(store.get, organization_id, request.agent_id)
            _require_etag(current, request.etag)
            await self._cancel_runs(request.agent_id)
        await self._db.write(_delete, organization_id, request)
        return Empty()

    async def ListTags(
        self, request: agent_service_pb2.ListTagsRequest, context: Any
    ) -> agent_service_pb2.ListTagsResponse:
        """A page of the tags in use."""
        validate.tag_query(request.query)
        size = page_size(request.page_size)
        tags, token = await self._db.read(
            store.tags_page, _organization(), request.query, size=size, token=request.page_token
        )
        return agent_service_pb2.ListTagsResponse(tags=tags, next_page_token=token)

    async def _require_models(self, agent: agent_pb2.Agent) -> None:
        for handle in (agent.model, agent.compaction.model):
            if handle and not await self._knows_model(_organization(), handle):
                raise NotFound("model", handle)

    def _once(
        self,
        conn: Connection,
        organization_id: str,
        method: str,
        request: Writing,
        effect: Callable[[Connection, str], Agent],
    ) -> Agent:
        """The effect, or for a repeated request the agent as it is now."""
        if not request.request_id:
            return effect(conn, organization_id)
        key = (organization_id, method, request.request_id, fingerprint(request))
        known = idempotency.replay(conn, *key)
        if known is not None:
            return store.get(conn, organization_id, known)
        agent = effect(conn, organization_id)
        idempotency.remember(conn, *key, agent.id, self._clock.now())
        return agent

    def _create(self, request: agent_service_pb2.CreateAgentRequest, conn: Connection, organization_id: str) -> Agent:
        draft = convert.new_agent(
            request.agent,
            agent_id=self._ids(Prefix.AGENT),
            conversation_id=self._ids(Prefix.CONVERSATION),
            organization_id=organization_id,
            default_model=self._default_model,
            now=self._clock.now(),
        )
        tools = self._catalog.find(conn, organization_id, draft.spec.tool_ids, request.tool_names)
        made = [
            new_block(block, self._ids(Prefix.BLOCK), organization_id, draft.created_at)
            for block in request.memory_blocks
        ]
        block_ids = (*draft.block_ids, *(block.id for block in made))
        agent = replace(draft, spec=attach(draft.spec, tools), block_ids=block_ids)
        attach_blocks(conn, agent, made)
        store.insert(conn, agent)
        if request.agent.secrets:
            secrets.replace(conn, self._seal, agent.id, request.agent.secrets)
        return agent

    def _update(
        self,
        request: agent_service_pb2.UpdateAgentRequest,
        paths: tuple[str, ...],
        conn: Connection,
        organization_id: str,
    ) -> Agent:
        current = store.lock(conn, organization_id, request.agent.id)
        _require_etag(current, request.agent.etag)
        merged = masks.copy(request.agent, convert.agent_to_pb(current), paths)
        validate.merged(merged)
        wanted = convert.changed_agent(current, merged, self._default_model, secrets="secrets" in paths)
        new_ids = [each for each in wanted.spec.tool_ids if each not in current.spec.tool_ids]
        wanted = replace(wanted, spec=attach(wanted.spec, self._catalog.find(conn, organization_id, new_ids)))
        if "secrets" in paths:
            secrets.replace(conn, self._seal, current.id, request.agent.secrets)
        elif wanted == current:
            return current
        if wanted.block_ids != current.block_ids:
            attach_blocks(conn, wanted)
        changed = replace(wanted, version=current.version + 1, updated_at=self._clock.now())
        store.replace(conn, current, changed)
        return changed


def _organization() -> str:
    return current_call().organization_id


def _require_etag(agent: Agent, etag: str) -> None:
    current = convert.etag(agent.version)
    if etag and etag != current:
        raise EtagMismatch("agent", agent.id, current)


def _delete(conn: Connection, organization_id: str, request: agent_service_pb2.DeleteAgentRequest) -> None:
    current = store.lock(conn, organization_id, request.agent_id)
    _require_etag(current, request.etag)
    live = None if request.force else store.live_run(conn, request.agent_id)
    if live is not None:
        raise ResourceInUse("agent", request.agent_id, f"run '{live}'")
    store.delete(conn, request.agent_id)
