"""Blocks by themselves: made, found, changed, deleted."""

import asyncio
from typing import Any

import grpc
import grpc.aio
import pytest

from common.ids import Prefix, is_id, new_id
from common.pb.bridle.v1 import block_service_pb2 as api
from tests.helpers.inprocess import invalid, not_found, refused
from tests.rpc.blocks.rig import Block, Blocks


async def test_a_block_made_with_a_label_gets_its_defaults(blocks: Blocks) -> None:
    block = await blocks.create("human")
    assert is_id(Prefix.BLOCK, block.id)
    assert (block.label, block.value, block.limit, block.etag) == ("human", "", 100_000, "v1")
    assert not block.read_only
    assert not block.HasField("metadata")
    assert block.create_time == block.update_time
    assert await blocks.get(block.id) == block


async def test_everything_that_was_set_comes_back(blocks: Blocks) -> None:
    fields: dict[str, Any] = {
        "value": "Likes tea. ☕", "limit": 12, "description": "Who they are.", "read_only": True, "tags": ["b", "a"],
    }  # fmt: skip
    wanted = Block(label="human", **fields)
    wanted.metadata.update({"n": 1, "deep": {"list": [1, None]}})
    made = await blocks.stub.CreateBlock(api.CreateBlockRequest(block=wanted))
    block = await blocks.get(made.id)
    assert block == made
    for name in ("id", "etag", "create_time", "update_time"):
        block.ClearField(name)
    wanted.tags[:] = ["a", "b"]
    assert block == wanted


WRONG: list[tuple[dict[str, Any], list[str]]] = [
    ({"label": ""}, ["block.label"]),
    ({"label": "x" * 101}, ["block.label"]),
    ({"label": "two\nlines"}, ["block.label"]),
    ({"value": "x" * 11, "limit": 10}, ["block.value"]),
    ({"value": "x" * 100_001}, ["block.value"]),
    ({"value": "\0"}, ["block.value"]),
    ({"limit": -1}, ["block.limit"]),
    ({"limit": 500_001}, ["block.limit"]),
    ({"description": "x" * 10_001}, ["block.description"]),
    ({"metadata": {"x": "y" * 16 * 1024}}, ["block.metadata"]),
    ({"metadata": {"x": float("nan")}}, ["block.metadata"]),
    ({"tags": ["", "x" * 101, "a", "a"]}, ["block.tags[0]", "block.tags[1]", "block.tags[3]"]),
    ({"tags": [str(n) for n in range(65)]}, ["block.tags"]),
    ({"label": "", "limit": -1}, ["block.label", "block.limit"]),
]


@pytest.mark.parametrize(("fields", "named"), WRONG)
async def test_a_block_that_breaks_a_rule_is_not_made(blocks: Blocks, fields: dict[str, Any], named: list[str]) -> None:
    before = await blocks.ids(page_size=1000)
    assert await invalid(blocks.create(**fields)) == named
    assert await blocks.ids(page_size=1000) == before


async def test_a_creation_needs_a_block_and_a_short_request_id(blocks: Blocks) -> None:
    assert await invalid(blocks.stub.CreateBlock(api.CreateBlockRequest(request_id="r" * 129))) == [
        "block",
        "request_id",
    ]


async def test_a_repeated_creation_gives_the_block_as_it_is_now(blocks: Blocks) -> None:
    request_id = new_id(Prefix.RUN)
    first, twin = await asyncio.gather(*(blocks.create("human", request_id) for _ in range(2)))
    assert first == twin
    changed = await blocks.update(Block(id=first.id, value="new"))
    assert await blocks.create("human", request_id) == changed
    other = blocks.create("persona", request_id)
    await refused(other, grpc.StatusCode.ALREADY_EXISTS, "REQUEST_ID_REUSED")


async def test_without_a_mask_the_populated_fields_change(blocks: Blocks) -> None:
    block = await blocks.create("human", value="a", description="d", tags=["x"])
    changed = await blocks.update(Block(id=block.id, value="b", tags=["y", "z"]))
    assert (changed.label, changed.value, changed.description, list(changed.tags)) == ("human", "b", "d", ["y", "z"])
    assert changed.etag != block.etag
    assert changed.create_time == block.create_time
    assert await blocks.get(block.id) == changed
    assert await blocks.update(changed) == changed, "an update that changes nothing is no change"


async def test_a_mask_sets_and_clears_exactly_what_it_names(blocks: Blocks) -> None:
    block = await blocks.create("human", value="a", limit=50, description="d", read_only=True, tags=["x"])
    changed = await blocks.update(Block(id=block.id, label="ignored"), "value", "read_only", "tags", "limit")
    assert (changed.label, changed.value, changed.limit, changed.read_only) == ("human", "", 100_000, False)
    assert (list(changed.tags), changed.description) == ([], "d")
    everything = await blocks.update(Block(id=block.id, label="persona"), "*")
    assert (everything.label, everything.description) == ("persona", "")


@pytest.mark.parametrize("path", ["nothing", "id", "etag", "create_time", "metadata.a", "*,value"])
async def test_a_mask_cannot_name_what_cannot_be_set(blocks: Blocks, path: str) -> None:
    block = await blocks.create()
    assert set(await invalid(blocks.update(Block(id=block.id, value="b"), *path.split(",")))) == {"update_mask"}
    assert await blocks.get(block.id) == block


async def test_new_values_must_fit_those_that_stay(blocks: Blocks) -> None:
    block = await blocks.create("human", value="x" * 20, limit=20)
    assert await invalid(blocks.update(Block(id=block.id, value="x" * 21))) == ["block.value"]
    assert await invalid(blocks.update(Block(id=block.id, limit=19))) == ["block.value"]
    assert await invalid(blocks.update(Block(id=block.id, limit=-1), "label", "limit")) == [
        "block.label",
        "block.limit",
    ]
    assert await invalid(blocks.update(Block(id="x"), "nothing")) == ["block.id", "update_mask"]
    assert await blocks.get(block.id) == block
    assert (await blocks.update(Block(id=block.id, value="x", limit=1))).limit == 1


async def test_of_many_updates_with_one_etag_one_wins(blocks: Blocks) -> None:
    block = await blocks.create()
    updates = [blocks.update(Block(id=block.id, value=str(n), etag=block.etag)) for n in range(5)]
    results = await asyncio.gather(*updates, return_exceptions=True)
    won = [each for each in results if isinstance(each, Block)]
    assert len(won) == 1
    assert await blocks.get(block.id) == won[0]
    late = blocks.update(Block(id=block.id, value="late", etag=block.etag))
    metadata = await refused(late, grpc.StatusCode.ABORTED, "ETAG_MISMATCH")
    assert metadata == {"resource": "block", "id": block.id, "etag": won[0].etag}


async def test_what_is_not_there_is_not_found(blocks: Blocks) -> None:
    nothing = new_id(Prefix.BLOCK)
    for call in (blocks.get(nothing), blocks.delete(nothing), blocks.update(Block(id=nothing, value="x"))):
        assert await not_found(call) == ("block", nothing)
    for wrong in ("", "block-1", new_id(Prefix.AGENT)):
        assert await invalid(blocks.get(wrong)) == ["block_id"]
        assert await invalid(blocks.delete(wrong)) == ["block_id"]
    block = await blocks.create()
    await blocks.delete(block.id)
    assert await not_found(blocks.get(block.id)) == ("block", block.id)


async def test_blocks_are_listed_oldest_first_by_label_and_all_tags(blocks: Blocks) -> None:
    mark = new_id(Prefix.RUN)[:20]
    made = [
        await blocks.create(label, tags=[mark, *tags])
        for label, tags in (("human", ["x"]), ("persona", ["x", "y"]), ("human", []))
    ]
    ids = [block.id for block in made]
    assert await blocks.ids(tags=[mark]) == ids
    assert await blocks.ids(tags=[mark, "x", "x"]) == ids[:2]
    assert await blocks.ids(tags=[mark, "x", "y"]) == ids[1:2]
    assert await blocks.ids(tags=[mark], label="human") == [ids[0], ids[2]]
    assert await blocks.ids(tags=[mark, "nothing"]) == []


async def test_lists_come_in_pages(blocks: Blocks) -> None:
    mark = new_id(Prefix.RUN)[:20]
    ids = [(await blocks.create(tags=[mark])).id for _ in range(5)]
    first, token = await blocks.page(tags=[mark], page_size=2)
    second, token2 = await blocks.page(tags=[mark], page_size=2, page_token=token)
    third, end = await blocks.page(tags=[mark], page_size=2, page_token=token2)
    assert [block.id for block in (*first, *second, *third)] == ids
    assert end == ""
    assert await invalid(blocks.page(tags=["other"], page_token=token)) == ["page_token"]


async def test_a_list_is_refused_what_it_cannot_mean(blocks: Blocks) -> None:
    assert await invalid(blocks.page(agent_id="x", label="l" * 101, tags=[""])) == ["agent_id", "label", "tags[0]"]
    assert await invalid(blocks.page(tags=["x"] * 65)) == ["tags"]
    assert await invalid(blocks.page(page_size=-1)) == ["page_size"]
    assert await invalid(blocks.page(page_token="x")) == ["page_token"]
    nobody = new_id(Prefix.AGENT)
    assert await not_found(blocks.page(agent_id=nobody)) == ("agent", nobody)
