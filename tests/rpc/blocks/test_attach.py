"""Blocks of agents: given, shared, told apart, taken away."""

import asyncio
from typing import Any

import grpc
import grpc.aio

from common.db.tables import agent_blocks
from common.ids import Prefix, new_id
from common.pb.bridle.v1 import agent_service_pb2
from common.pb.bridle.v1.agent_pb2 import Agent
from tests.helpers.inprocess import World, invalid, not_found, refused
from tests.rpc.agents.rig import rows
from tests.rpc.blocks.rig import Block, Blocks


async def create_agent(world: World, memory: tuple[Block, ...] = (), **fields: Any) -> Agent:
    request = agent_service_pb2.CreateAgentRequest(agent=Agent(**fields), memory_blocks=memory)
    agent: Agent = await world.agents.CreateAgent(request, timeout=10)
    return agent


async def get_agent(world: World, agent_id: str) -> Agent:
    agent: Agent = await world.agents.GetAgent(agent_service_pb2.GetAgentRequest(agent_id=agent_id), timeout=10)
    return agent


async def update_agent(world: World, agent: Agent, *paths: str) -> Agent:
    request = agent_service_pb2.UpdateAgentRequest(agent=agent)
    request.update_mask.paths.extend(paths)
    changed: Agent = await world.agents.UpdateAgent(request, timeout=10)
    return changed


async def test_an_agent_is_made_with_shared_blocks_and_new_ones_in_order(world: World, blocks: Blocks) -> None:
    second, first = await blocks.create("b"), await blocks.create("a")
    new = (Block(label="z", value="1", tags=["t"]), Block(label="c", read_only=True))
    agent = await create_agent(world, new, block_ids=[first.id, second.id])
    assert list(agent.block_ids)[:2] == [first.id, second.id]
    listed, _ = await blocks.page(agent_id=agent.id)
    assert [block.id for block in listed] == list(agent.block_ids)
    assert [block.label for block in listed] == ["a", "b", "z", "c"]
    assert (listed[2].value, list(listed[2].tags), listed[3].read_only) == ("1", ["t"], True)
    assert await get_agent(world, agent.id) == agent
    assert await blocks.ids(agent_id=agent.id, label="z") == [listed[2].id]
    page, token = await blocks.page(agent_id=agent.id, page_size=3)
    assert [block.label for block in page + (await blocks.page(agent_id=agent.id, page_token=token))[0]] == [
        "a", "b", "z", "c",
    ]  # fmt: skip


async def test_a_repeated_creation_makes_its_blocks_once(world: World, blocks: Blocks) -> None:
    tag = new_id(Prefix.RUN)[:20]
    request = agent_service_pb2.CreateAgentRequest(
        agent=Agent(), memory_blocks=[Block(label="human", tags=[tag])], request_id=new_id(Prefix.RUN)
    )
    first, second = [await world.agents.CreateAgent(request, timeout=10) for _ in range(2)]
    assert first == second
    assert await blocks.ids(tags=[tag]) == list(first.block_ids)


async def test_an_agent_is_not_made_with_blocks_that_break_a_rule(world: World, blocks: Blocks) -> None:
    human, other = await blocks.create("human"), await blocks.create("human")
    nothing = new_id(Prefix.BLOCK)
    before = await blocks.ids(page_size=1000)
    twice = create_agent(world, block_ids=[human.id, "block-1", human.id])
    assert await invalid(twice) == ["agent.block_ids[1]", "agent.block_ids[2]"]
    many = [new_id(Prefix.BLOCK) for _ in range(65)]
    assert await invalid(create_agent(world, block_ids=many)) == ["agent.block_ids"]
    assert await not_found(create_agent(world, block_ids=[human.id, nothing])) == ("block", nothing)
    assert await invalid(create_agent(world, block_ids=[human.id, other.id])) == ["agent.block_ids"]
    new = (Block(label="a"), Block(label="human"))
    assert await invalid(create_agent(world, new, block_ids=[human.id])) == ["memory_blocks[1].label"]
    wrong = (Block(label="a"), Block(label="a"), Block(limit=-1))
    assert await invalid(create_agent(world, wrong)) == [
        "memory_blocks[2].label", "memory_blocks[2].limit", "memory_blocks[1].label",
    ]  # fmt: skip
    assert await blocks.ids(page_size=1000) == before


async def test_an_update_sets_the_blocks_and_their_order(world: World, blocks: Blocks) -> None:
    a, b, c = [await blocks.create(label) for label in "abc"]
    agent = await create_agent(world, block_ids=[a.id, b.id])
    changed = await update_agent(world, Agent(id=agent.id, block_ids=[c.id, a.id]))
    assert list(changed.block_ids) == [c.id, a.id]
    assert changed.etag != agent.etag
    assert await blocks.ids(agent_id=agent.id) == [c.id, a.id]
    assert await update_agent(world, changed, "block_ids") == changed
    again = await blocks.create("a")
    assert await invalid(update_agent(world, Agent(id=agent.id, block_ids=[a.id, again.id]))) == ["agent.block_ids"]
    nothing = new_id(Prefix.BLOCK)
    assert await not_found(update_agent(world, Agent(id=agent.id, block_ids=[nothing]))) == ("block", nothing)
    assert await get_agent(world, agent.id) == changed
    assert list((await update_agent(world, Agent(id=agent.id), "block_ids")).block_ids) == []


async def test_attaching_and_detaching(world: World, blocks: Blocks) -> None:
    agent, (a, b) = await create_agent(world), [await blocks.create(label) for label in "ab"]
    await blocks.attach(agent.id, b.id)
    await blocks.attach(agent.id, a.id)
    attached = await get_agent(world, agent.id)
    assert (list(attached.block_ids), attached.etag) == ([b.id, a.id], "v3")
    await blocks.attach(agent.id, b.id)
    assert await get_agent(world, agent.id) == attached, "attaching again changes nothing"
    await blocks.detach(agent.id, b.id)
    detached = await get_agent(world, agent.id)
    assert list(detached.block_ids) == [a.id]
    await blocks.detach(agent.id, b.id)
    assert await get_agent(world, agent.id) == detached, "detaching what is not attached changes nothing"
    assert (await blocks.get(b.id)) == b


async def test_attaching_needs_an_agent_and_a_block(world: World, blocks: Blocks) -> None:
    agent, block = await create_agent(world), await blocks.create()
    nobody, nothing = new_id(Prefix.AGENT), new_id(Prefix.BLOCK)
    for act in (blocks.attach, blocks.detach):
        assert await invalid(act("", "block-1")) == ["agent_id", "block_id"]
        assert await not_found(act(nobody, block.id)) == ("agent", nobody)
        assert await not_found(act(agent.id, nothing)) == ("block", nothing)


async def test_an_agent_has_at_most_64_blocks(world: World, blocks: Blocks) -> None:
    agent = await create_agent(world, tuple(Block(label=str(n)) for n in range(64)))
    one_more = await blocks.create("one more")
    assert await invalid(blocks.attach(agent.id, one_more.id)) == ["agent.block_ids"]
    assert await invalid(
        create_agent(world, tuple(Block(label=str(n)) for n in range(64)), block_ids=[one_more.id])
    ) == ["memory_blocks"]


async def test_labels_are_unique_within_an_agent_and_nowhere_else(world: World, blocks: Blocks) -> None:
    agent, (mine, other) = await create_agent(world), [await blocks.create("human") for _ in range(2)]
    await blocks.attach(agent.id, mine.id)
    metadata = await refused(blocks.attach(agent.id, other.id), grpc.StatusCode.FAILED_PRECONDITION, "RESOURCE_IN_USE")
    assert metadata == {
        "resource": "block label", "id": "human", "used_by": f"block '{mine.id}' of agent '{agent.id}'",
    }  # fmt: skip
    renamed = await blocks.update(Block(id=other.id, label="persona"))
    await blocks.attach(agent.id, other.id)
    back = blocks.update(Block(id=other.id, label="human"))
    await refused(back, grpc.StatusCode.FAILED_PRECONDITION, "RESOURCE_IN_USE")
    assert await blocks.get(other.id) == renamed


async def test_of_two_blocks_that_get_one_label_at_once_one_wins(world: World, blocks: Blocks) -> None:
    for _ in range(5):
        agent = await create_agent(world, (Block(label="a"), Block(label="b")))
        loose = await blocks.create("same")
        results = await asyncio.gather(
            *(blocks.update(Block(id=each, label="same")) for each in agent.block_ids),
            blocks.attach(agent.id, loose.id),
            return_exceptions=True,
        )
        failed = [each for each in results if isinstance(each, grpc.aio.AioRpcError)]
        assert {each.code() for each in failed} == {grpc.StatusCode.FAILED_PRECONDITION}
        assert len(failed) == 2
        labels = [block.label for block in (await blocks.page(agent_id=agent.id))[0]]
        assert labels.count("same") == 1


async def test_a_deleted_block_leaves_every_agent_and_a_deleted_agent_leaves_its_blocks(
    world: World, blocks: Blocks
) -> None:
    shared, own = await blocks.create("shared"), await blocks.create("own")
    one, two = [await create_agent(world, block_ids=[own.id, shared.id]) for _ in range(2)]
    count = await rows(world.node.db, agent_blocks)
    await blocks.delete(shared.id)
    for agent in (one, two):
        left = await get_agent(world, agent.id)
        assert list(left.block_ids) == [own.id]
        assert left.etag != agent.etag
    await world.agents.DeleteAgent(agent_service_pb2.DeleteAgentRequest(agent_id=one.id), timeout=10)
    assert await blocks.get(own.id) == own
    assert await blocks.ids(agent_id=two.id) == [own.id]
    assert await rows(world.node.db, agent_blocks) == count - 3
