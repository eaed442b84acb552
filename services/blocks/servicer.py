"""BlockService: validate, convert, one transaction, convert back."""

from typing import Any

from google.protobuf.empty_pb2 import Empty
from msgspec.structs import replace
from sqlalchemy import Connection

from common.clock import Clock
from common.db import idempotency
from common.db.engine import Database
from common.db.paging import page_size
from common.errors import EtagMismatch, InvalidArgument, ResourceInUse
from common.ids import IdSource, Prefix, new_id
from common.pb.bridle.v1 import block_pb2, block_service_pb2, block_service_pb2_grpc
from common.rpc.context import current_call
from services.agents import store as agents_store
from services.agents.convert import etag
from services.agents.model import Agent
from services.blocks import convert, store, validate
from services.blocks.model import MAX_BLOCKS, Block, BlockFilter
from services.wire import masks
from services.wire.repeats import fingerprint


class BlockServicer(block_service_pb2_grpc.BlockServiceServicer):
    """What agents remember. The block is locked before its agents; who does it otherwise is tried again."""

    def __init__(self, *, db: Database, clock: Clock, ids: IdSource = new_id) -> None:
        self._db = db
        self._clock = clock
        self._ids = ids

    async def CreateBlock(self, request: block_service_pb2.CreateBlockRequest, context: Any) -> block_pb2.Block:
        """Create a block that is attached to nothing."""
        validate.create(request)
        return convert.block_to_pb(await self._db.write(self._create, _organization(), request))

    async def GetBlock(self, request: block_service_pb2.GetBlockRequest, context: Any) -> block_pb2.Block:
        """One block."""
        validate.block_id(request.block_id)
        return convert.block_to_pb(await self._db.lookup(store.get, _organization(), request.block_id))

    async def ListBlocks(
        self, request: block_service_pb2.ListBlocksRequest, context: Any
    ) -> block_service_pb2.ListBlocksResponse:
        """A page of blocks."""
        validate.listing(request)
        found, token = await self._db.read(
            _list_page,
            _organization(),
            convert.filter_from_pb(request),
            size=page_size(request.page_size),
            token=request.page_token,
        )
        return block_service_pb2.ListBlocksResponse(blocks=map(convert.block_to_pb, found), next_page_token=token)

    async def UpdateBlock(self, request: block_service_pb2.UpdateBlockRequest, context: Any) -> block_pb2.Block:
        """Change some fields of a block."""
        paths = validate.update(request)
        return convert.block_to_pb(await self._db.write(self._update, _organization(), request.block, paths))

    async def DeleteBlock(self, request: block_service_pb2.DeleteBlockRequest, context: Any) -> Empty:
        """Delete a block and detach it everywhere."""
        validate.block_id(request.block_id)
        await self._db.write(self._delete, _organization(), request.block_id)
        return Empty()

    async def AttachBlock(self, request: block_service_pb2.AttachBlockRequest, context: Any) -> Empty:
        """Give a block to an agent."""
        validate.pair(request)
        await self._db.write(self._attach, _organization(), request.agent_id, request.block_id)
        return Empty()

    async def DetachBlock(self, request: block_service_pb2.DetachBlockRequest, context: Any) -> Empty:
        """Take a block from an agent."""
        validate.pair(request)
        await self._db.write(self._detach, _organization(), request.agent_id, request.block_id)
        return Empty()

    def _create(self, conn: Connection, organization_id: str, request: block_service_pb2.CreateBlockRequest) -> Block:
        key = (organization_id, "CreateBlock", request.request_id, fingerprint(request))
        known = idempotency.replay(conn, *key)
        if known is not None:
            return store.get(conn, organization_id, known)
        now = self._clock.now()
        block = convert.new_block(request.block, self._ids(Prefix.BLOCK), organization_id, now)
        store.insert(conn, block)
        idempotency.remember(conn, *key, block.id, now)
        return block

    def _update(self, conn: Connection, organization_id: str, wanted: block_pb2.Block, paths: tuple[str, ...]) -> Block:
        current = store.lock(conn, organization_id, wanted.id)
        if wanted.etag and wanted.etag != etag(current.version):
            raise EtagMismatch("block", current.id, etag(current.version))
        merged = masks.copy(wanted, convert.block_to_pb(current), paths)
        validate.merged(merged)
        block = convert.changed_block(current, merged)
        if block == current:
            return current
        if block.label != current.label:
            _require_free(conn, store.lock_agents(conn, block.id), block)
        changed = replace(block, version=current.version + 1, updated_at=self._clock.now())
        store.replace(conn, current, changed)
        return changed

    def _delete(self, conn: Connection, organization_id: str, block_id: str) -> None:
        store.lock(conn, organization_id, block_id)
        store.delete(conn, block_id, self._clock.now())

    def _attach(self, conn: Connection, organization_id: str, agent_id: str, block_id: str) -> None:
        block = store.lock(conn, organization_id, block_id)
        agent = agents_store.lock(conn, organization_id, agent_id)
        if block_id in agent.block_ids:
            return
        if len(agent.block_ids) >= MAX_BLOCKS:
            raise InvalidArgument.of("agent.block_ids", f"must have at most {MAX_BLOCKS} elements, with this one")
        _require_free(conn, [agent_id], block)
        self._change_agent(conn, agent, (*agent.block_ids, block_id))

    def _detach(self, conn: Connection, organization_id: str, agent_id: str, block_id: str) -> None:
        store.get(conn, organization_id, block_id)
        agent = agents_store.lock(conn, organization_id, agent_id)
        if block_id in agent.block_ids:
            self._change_agent(conn, agent, tuple(each for each in agent.block_ids if each != block_id))

    def _change_agent(self, conn: Connection, agent: Agent, block_ids: tuple[str, ...]) -> None:
        changed = replace(agent, block_ids=block_ids, version=agent.version + 1, updated_at=self._clock.now())
        agents_store.replace(conn, agent, changed)


def _organization() -> str:
    return current_call().organization_id


def _require_free(conn: Connection, agent_ids: list[str], block: Block) -> None:
    """Refuse a label that another block of one of these agents has."""
    taken = store.namesake(conn, agent_ids, block.label, but=block.id)
    if taken is not None:
        agent_id, block_id = taken
        raise ResourceInUse("block label", block.label, f"block '{block_id}' of agent '{agent_id}'")


def _list_page(
    conn: Connection, organization_id: str, wanted: BlockFilter, *, size: int, token: str
) -> tuple[list[Block], str]:
    if wanted.agent_id:
        agents_store.get(conn, organization_id, wanted.agent_id)
    return store.list_page(conn, organization_id, wanted, size=size, token=token)
