"""A client of BlockService that says a lot in one line."""

from typing import Any

from google.protobuf.field_mask_pb2 import FieldMask

from common.pb.bridle.v1 import block_pb2
from common.pb.bridle.v1 import block_service_pb2 as api
from tests.helpers.inprocess import World

Block = block_pb2.Block


class Blocks:
    """Blocks of one server."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.stub: Any = world.blocks

    async def create(self, label: str = "human", request_id: str = "", **fields: Any) -> Block:
        request = api.CreateBlockRequest(block=Block(label=label, **fields), request_id=request_id)
        made: Block = await self.stub.CreateBlock(request, timeout=10)
        return made

    async def get(self, block_id: str) -> Block:
        found: Block = await self.stub.GetBlock(api.GetBlockRequest(block_id=block_id), timeout=10)
        return found

    async def page(self, **fields: Any) -> tuple[list[Block], str]:
        page = await self.stub.ListBlocks(api.ListBlocksRequest(**fields), timeout=10)
        return list(page.blocks), page.next_page_token

    async def ids(self, **fields: Any) -> list[str]:
        return [block.id for block in (await self.page(**fields))[0]]

    async def update(self, block: Block, *paths: str) -> Block:
        mask = FieldMask(paths=paths) if paths else None
        changed: Block = await self.stub.UpdateBlock(api.UpdateBlockRequest(block=block, update_mask=mask), timeout=10)
        return changed

    async def delete(self, block_id: str) -> None:
        await self.stub.DeleteBlock(api.DeleteBlockRequest(block_id=block_id), timeout=10)

    async def attach(self, agent_id: str, block_id: str) -> None:
        await self.stub.AttachBlock(api.AttachBlockRequest(agent_id=agent_id, block_id=block_id), timeout=10)

    async def detach(self, agent_id: str, block_id: str) -> None:
        await self.stub.DetachBlock(api.DetachBlockRequest(agent_id=agent_id, block_id=block_id), timeout=10)
