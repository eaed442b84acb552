"""Memory blocks: those of the organization, and those of an agent."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import grpc
import grpc.aio
from google.protobuf.field_mask_pb2 import FieldMask
from msgspec import UNSET, Struct, UnsetType

from common.pb.bridle.v1 import agent_service_pb2, block_pb2, block_service_pb2
from gateway import errors
from gateway.agents import blocks
from gateway.agents.blocks import Block, BlockIn, BlockLimit, block_object
from gateway.agents.model import AgentState, Memory, agent_object
from gateway.agents.related import EVERYTHING, gather, get_agent, shown
from gateway.http.endpoint import Empty, Endpoint, Exchange
from gateway.http.problems import invalid, not_found
from gateway.messages.inputs import fill
from gateway.messages.listing import Limit, Order
from gateway.paging import Cursor, pages, window

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class UpdateBody(Struct, frozen=True, kw_only=True):
    """What changes about a block."""

    label: str | UnsetType = UNSET
    value: str | UnsetType = UNSET
    limit: BlockLimit | UnsetType = UNSET
    description: str | UnsetType | None = UNSET
    read_only: bool | UnsetType = UNSET
    metadata: dict[str, Any] | UnsetType | None = UNSET
    tags: list[str] | UnsetType | None = UNSET


class ListQuery(Struct, frozen=True, kw_only=True):
    """Which blocks."""

    label: str | None = None
    name: str | None = None
    label_search: str | None = None
    value_search: str | None = None
    description_search: str | None = None
    tags: list[str] | None = None
    before: str | None = None
    after: str | None = None
    limit: Limit = 50
    order: Order = "asc"


class OfAgentQuery(Struct, frozen=True, kw_only=True):
    """Which blocks of an agent."""

    before: str | None = None
    after: str | None = None
    limit: Limit = 100
    order: Order = "desc"


class AgentsQuery(Struct, frozen=True, kw_only=True):
    """Which agents of a block."""

    before: str | None = None
    after: str | None = None
    limit: Limit = 50
    order: Order = "desc"


async def create(exchange: Exchange[BlockIn, Empty]) -> Block:
    """Make a block that no agent has yet."""
    request = block_service_pb2.CreateBlockRequest(block=blocks.to_pb(exchange.body, ("body",)))
    return await _write(exchange, exchange.backend.blocks.CreateBlock, request)


async def retrieve(exchange: Exchange[None, Empty]) -> Block:
    """One block."""
    request = block_service_pb2.GetBlockRequest(block_id=exchange.path["block_id"])
    return block_object(await exchange.caller(exchange.backend.blocks.GetBlock, request))


async def update(exchange: Exchange[UpdateBody, Empty]) -> Block:
    """Change a block; every agent that has it sees that at its next step."""
    return await _update(exchange, exchange.path["block_id"])


async def _update(exchange: Exchange[UpdateBody, Any], block_id: str) -> Block:
    body, block, paths = exchange.body, block_pb2.Block(id=block_id), list[str]()
    for name in ("label", "value", "limit", "description", "read_only"):
        value = getattr(body, name)
        if value is not UNSET:
            paths.append(name)
            if value is not None:
                setattr(block, name, value)
    if body.tags is not UNSET:
        paths.append("tags")
        block.tags.extend(body.tags or ())
    if body.metadata is not UNSET:
        paths.append("metadata")
        fill(block.metadata, body.metadata or {}, ("body", "metadata"))
    if not paths:
        request = block_service_pb2.GetBlockRequest(block_id=block_id)
        return block_object(await exchange.caller(exchange.backend.blocks.GetBlock, request))
    change = block_service_pb2.UpdateBlockRequest(block=block, update_mask=FieldMask(paths=paths))
    return await _write(exchange, exchange.backend.blocks.UpdateBlock, change)


async def _write(exchange: Exchange[Any, Any], method: Any, request: Any) -> Block:
    """Make or change a block. What is wrong with it is 422 on the wire, a value over the limit above all."""
    try:
        return block_object(await exchange.caller(method, request))
    except grpc.aio.AioRpcError as error:
        failure = errors.read(error)
        if error.code() is not grpc.StatusCode.INVALID_ARGUMENT or not failure.fields:
            raise
        field, text = failure.fields[0]
        raise invalid(("body", field.removeprefix("block.")), f"Value error, {text}") from None


async def delete(exchange: Exchange[None, Empty]) -> None:
    """Delete a block; agents that have it lose it."""
    request = block_service_pb2.DeleteBlockRequest(block_id=exchange.path["block_id"])
    await exchange.caller(exchange.backend.blocks.DeleteBlock, request)


async def list_blocks(exchange: Exchange[None, ListQuery]) -> list[Block]:
    """Blocks."""
    query = exchange.query
    request = block_service_pb2.ListBlocksRequest(label=query.label or query.name or "", tags=query.tags or ())
    found = pages(exchange, exchange.backend.blocks.ListBlocks, request, "blocks")
    return await window(_matching(found, query), _cursor(query), lambda block: block.id)


async def _matching(found: AsyncIterator[block_pb2.Block], query: ListQuery) -> AsyncIterator[Block]:
    """gRPC looks for whole labels and tags; parts of texts are looked for here."""
    wanted = [block_object(each) async for each in found] if query.order == "desc" else None
    if wanted is not None:
        for block in reversed(wanted):
            if _matches(block, query):
                yield block
        return
    async for each in found:
        block = block_object(each)
        if _matches(block, query):
            yield block


def _matches(block: Block, query: ListQuery) -> bool:
    return (
        _contains(block.label, query.label_search)
        and _contains(block.value, query.value_search)
        and _contains(block.description or "", query.description_search)
    )


def _contains(text: str, part: str | None) -> bool:
    return part is None or part.casefold() in text.casefold()


def _cursor(query: ListQuery | OfAgentQuery | AgentsQuery) -> Cursor:
    return Cursor(query.limit, query.after, query.before)


async def count(exchange: Exchange[None, Empty]) -> int:
    """How many blocks there are."""
    request = block_service_pb2.ListBlocksRequest()
    return len([1 async for _ in pages(exchange, exchange.backend.blocks.ListBlocks, request, "blocks")])


async def agents_of(exchange: Exchange[None, AgentsQuery]) -> list[AgentState]:
    """The agents that have a block."""
    block = await retrieve(exchange)  # type: ignore[arg-type]  # it looks at the path only
    query = exchange.query
    request = agent_service_pb2.ListAgentsRequest(
        filter=agent_service_pb2.AgentFilter(include_hidden=True),
        order_by="create_time" if query.order == "asc" else "create_time desc",
    )
    everybody = pages(exchange, exchange.backend.agents.ListAgents, request, "agents")
    having = (each async for each in everybody if block.id in each.block_ids)
    agents = await window(having, _cursor(query), lambda agent: str(agent.id))
    return [agent_object(agent, await gather(exchange, agent, frozenset())) for agent in agents]


async def memory(exchange: Exchange[None, Empty]) -> Memory:
    """What an agent remembers in every context."""
    return Memory(blocks=[block async for block in _of_agent(exchange, "asc")])


async def _of_agent(exchange: Exchange[Any, Any], order: str) -> AsyncIterator[Block]:
    request = block_service_pb2.ListBlocksRequest(agent_id=exchange.path["agent_id"])
    found = [
        block_object(each) async for each in pages(exchange, exchange.backend.blocks.ListBlocks, request, "blocks")
    ]
    for block in reversed(found) if order == "desc" else found:
        yield block


async def of_agent(exchange: Exchange[None, OfAgentQuery]) -> list[Block]:
    """The blocks of an agent."""
    query = exchange.query
    return await window(_of_agent(exchange, query.order), _cursor(query), lambda block: block.id)


async def by_label(exchange: Exchange[None, Empty]) -> Block:
    """One block of an agent."""
    return await _by_label(exchange)


async def _by_label(exchange: Exchange[Any, Any]) -> Block:
    label = exchange.path["block_label"]
    async for block in _of_agent(exchange, "asc"):
        if block.label == label:
            return block
    raise not_found(f"Agent {exchange.path['agent_id']} has no block {label[:100]}.")


async def update_by_label(exchange: Exchange[UpdateBody, Empty]) -> Block:
    """Change a block of an agent."""
    return await _update(exchange, (await _by_label(exchange)).id)


async def attach(exchange: Exchange[None, Empty]) -> AgentState:
    """Give a block to an agent."""
    agent_id = exchange.path["agent_id"]
    request = block_service_pb2.AttachBlockRequest(agent_id=agent_id, block_id=exchange.path["block_id"])
    await exchange.caller(exchange.backend.blocks.AttachBlock, request)
    return await shown(exchange, await get_agent(exchange, agent_id), EVERYTHING)


async def detach(exchange: Exchange[None, Empty]) -> AgentState:
    """Take a block from an agent."""
    agent_id = exchange.path["agent_id"]
    request = block_service_pb2.DetachBlockRequest(agent_id=agent_id, block_id=exchange.path["block_id"])
    await exchange.caller(exchange.backend.blocks.DetachBlock, request)
    return await shown(exchange, await get_agent(exchange, agent_id), EVERYTHING)


_endpoint = partial(Endpoint, tag="blocks")
_BLOCKS: Final = "/v1/blocks"
_ONE: Final = "/v1/blocks/{block_id}"
_MEMORY: Final = "/v1/agents/{agent_id}/core-memory"
_LABEL: Final = f"{_MEMORY}/blocks/{{block_label}}"
ENDPOINTS: Final = (
    _endpoint(method="POST", path=_BLOCKS, summary="Create a block", handler=create, body=BlockIn, answer=Block),
    _endpoint(
        method="GET", path=_BLOCKS, summary="List blocks", handler=list_blocks, query=ListQuery, answer=list[Block]
    ),
    _endpoint(method="GET", path=f"{_BLOCKS}/count", summary="Count blocks", handler=count, answer=int),
    _endpoint(method="GET", path=_ONE, summary="Retrieve a block", handler=retrieve, answer=Block),
    _endpoint(method="PATCH", path=_ONE, summary="Change a block", handler=update, body=UpdateBody, answer=Block),
    _endpoint(method="DELETE", path=_ONE, summary="Delete a block", handler=delete),
    _endpoint(
        method="GET",
        path=f"{_ONE}/agents",
        summary="List the agents that have a block",
        handler=agents_of,
        query=AgentsQuery,
        answer=list[AgentState],
    ),
    _endpoint(method="GET", path=_MEMORY, summary="What an agent remembers", handler=memory, answer=Memory),
    _endpoint(
        method="GET",
        path=f"{_MEMORY}/blocks",
        summary="List the blocks of an agent",
        handler=of_agent,
        query=OfAgentQuery,
        answer=list[Block],
    ),
    _endpoint(method="GET", path=_LABEL, summary="Retrieve a block of an agent", handler=by_label, answer=Block),
    _endpoint(
        method="PATCH",
        path=_LABEL,
        summary="Change a block of an agent",
        handler=update_by_label,
        body=UpdateBody,
        answer=Block,
    ),
    _endpoint(
        method="PATCH",
        path=f"{_MEMORY}/blocks/attach/{{block_id}}",
        summary="Give a block to an agent",
        handler=attach,
        answer=AgentState,
    ),
    _endpoint(
        method="PATCH",
        path=f"{_MEMORY}/blocks/detach/{{block_id}}",
        summary="Take a block from an agent",
        handler=detach,
        answer=AgentState,
    ),
)
