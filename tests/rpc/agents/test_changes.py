"""Updates change what they name, deletions leave nothing, and races have one winner."""

import asyncio
from typing import Any

import grpc
import grpc.aio
import pytest

from common.db.tables import agent_tags, agents, conversations, runs
from common.ids import Prefix, new_id
from common.pb.bridle.v1.agent_pb2 import CompactionSettings
from common.pb.bridle.v1.model_pb2 import ModelSettings
from tests.rpc.agents.rig import (
    APPROVE_DELETE,
    DELETE,
    SEARCH,
    Agent,
    Rig,
    invalid,
    not_found,
    refused,
    rows,
)


async def test_without_a_mask_the_populated_fields_change(rig: Rig) -> None:
    agent = await rig.create(
        name="Ada", description="d", tags=["x"], model_settings={"temperature": 1, "context_window": 9000}
    )
    changed = await rig.update(Agent(id=agent.id, name="Bea", model_settings=ModelSettings(temperature=0)))
    assert (changed.name, changed.description, list(changed.tags)) == ("Bea", "d", ["x"])
    assert (changed.model_settings.temperature, changed.model_settings.context_window) == (0, 9000)
    assert changed.etag != agent.etag
    assert changed.update_time.ToDatetime() >= agent.update_time.ToDatetime()
    assert changed.create_time == agent.create_time
    assert await rig.get(agent.id) == changed


async def test_a_mask_sets_and_clears_exactly_what_it_names(rig: Rig) -> None:
    agent = await rig.create(
        name="Ada", description="d", tags=["x"], metadata={"a": 1}, model="demo/tools",
        model_settings={"temperature": 1, "context_window": 9000}, compaction={"threshold": 0.5},
    )  # fmt: skip
    sent = Agent(id=agent.id, name="ignored", compaction=CompactionSettings(keep=0.2, threshold=0.1))
    paths = ("description", "tags", "metadata", "model", "model_settings.temperature", "compaction.keep")
    changed = await rig.update(sent, *paths)
    assert (changed.name, changed.description, list(changed.tags), changed.model) == ("Ada", "", [], "demo/echo")
    assert not changed.HasField("metadata")
    assert not changed.model_settings.HasField("temperature")
    assert changed.model_settings.context_window == 9000
    assert (changed.compaction.threshold, changed.compaction.keep) == (0.5, 0.2)


async def test_a_star_replaces_the_agent(rig: Rig) -> None:
    agent = await rig.create(name="Ada", description="d", tags=["x"], hidden=True, tool_ids=[SEARCH.id])
    changed = await rig.update(Agent(id=agent.id, name="Bea", timezone="UTC"), "*")
    assert (changed.name, changed.description, list(changed.tags), changed.hidden) == ("Bea", "", [], False)
    assert (list(changed.tool_ids), changed.timezone, changed.model) == ([], "UTC", "demo/echo")
    assert changed.default_conversation_id == agent.default_conversation_id
    assert await invalid(rig.update(Agent(id=agent.id), "*")) == ["agent.name"]


WRONG_PATHS = (
    "nothing id etag create_time secret_keys metadata.a tags.0 name.x . model_settings.nothing model_settings. "
    "create_time.seconds *,name name,last_stop_reason name,"
)


@pytest.mark.parametrize("paths", WRONG_PATHS.split())
async def test_a_mask_cannot_name_what_does_not_exist_or_cannot_be_set(rig: Rig, paths: str) -> None:
    agent = await rig.create(name="Ada")
    assert set(await invalid(rig.update(Agent(id=agent.id, name="Bea"), *paths.split(",")))) == {"update_mask"}
    assert await rig.get(agent.id) == agent


async def test_what_was_read_can_be_sent_back(rig: Rig) -> None:
    agent = await rig.create(
        name="Ada", tags=["x"], tool_ids=[DELETE.id], metadata={"n": 1.5}, approval_ttl={"seconds": 60}
    )
    assert await rig.update(agent) == agent, "an update that changes nothing is no change"
    agent.description = "new"
    assert (await rig.update(agent)).description == "new"


async def test_new_values_are_checked_and_only_those(rig: Rig) -> None:
    agent = await rig.create(name="Ada")
    wrong = Agent(id=agent.id, name="x" * 101, tags=["", "a"], compaction=CompactionSettings(threshold=0.2))
    assert await invalid(rig.update(wrong)) == ["agent.name", "agent.tags[0]"]
    assert await invalid(rig.update(wrong, "compaction.threshold")) == ["agent.compaction.keep"]
    assert await invalid(rig.update(Agent(id="x"), "name", "tags")) == ["agent.id", "agent.name"]
    assert await not_found(rig.update(Agent(id=agent.id, model="openai/x"))) == ("model", "openai/x")
    assert (await rig.update(wrong, "description")) == agent


async def test_a_newly_added_tool_brings_its_approval_rule_once(rig: Rig) -> None:
    agent = await rig.create(tool_ids=[SEARCH.id])
    agent = await rig.update(Agent(id=agent.id, tool_ids=[SEARCH.id, DELETE.id]))
    assert list(agent.tool_rules) == [APPROVE_DELETE]
    agent = await rig.update(Agent(id=agent.id), "tool_rules")
    assert list(agent.tool_rules) == [], "a rule can be taken away on purpose"
    agent = await rig.update(Agent(id=agent.id, tool_ids=[DELETE.id, DELETE.id]))
    assert (list(agent.tool_ids), list(agent.tool_rules)) == ([DELETE.id], [])
    missing = new_id(Prefix.TOOL)
    assert await not_found(rig.update(Agent(id=agent.id, tool_ids=[missing]))) == ("tool", missing)


async def test_of_two_updates_with_one_etag_one_wins(rig: Rig) -> None:
    agent = await rig.create(name="Ada")
    updates = (rig.update(Agent(id=agent.id, name=name, etag=agent.etag)) for name in ("Bea", "Cyd"))
    results = await asyncio.gather(*updates, return_exceptions=True)
    won = [each for each in results if isinstance(each, Agent)]
    lost = [each for each in results if isinstance(each, grpc.aio.AioRpcError)]
    assert [each.code() for each in lost] == [grpc.StatusCode.ABORTED]
    assert await rig.get(agent.id) == won[0]


async def test_a_stale_etag_is_refused_with_the_current_one(rig: Rig) -> None:
    agent = await rig.create()
    changed = await rig.update(Agent(id=agent.id, name="Bea"))
    for call in (
        rig.update(Agent(id=agent.id, name="Cyd", etag=agent.etag)),
        rig.delete(agent.id, etag=agent.etag),
        rig.delete(agent.id, etag="nonsense", force=True),
    ):
        metadata = await refused(call, grpc.StatusCode.ABORTED, "ETAG_MISMATCH")
        assert metadata == {"resource": "agent", "id": agent.id, "etag": changed.etag}
    assert rig.cancelled == []
    assert await rig.get(agent.id) == changed


async def test_concurrent_updates_of_different_fields_all_count(rig: Rig) -> None:
    agent = await rig.create(name="Ada")
    changes: list[dict[str, Any]] = [
        {"name": "Bea"},
        {"description": "d"},
        {"tags": ["x"]},
        {"system": "s"},
        {"hidden": True},
    ]
    await asyncio.gather(*(rig.update(Agent(id=agent.id, **change)) for change in changes))
    final = await rig.get(agent.id)
    assert (final.name, final.description, list(final.tags), final.system, final.hidden) == (
        "Bea",
        "d",
        ["x"],
        "s",
        True,
    )
    assert final.etag == "v6"


async def test_a_deleted_agent_is_gone_with_what_belongs_to_it(rig: Rig) -> None:
    agent = await rig.create(tags=["x"])
    kept = await rig.create(tags=["y"])
    await rig.add_run(agent, "completed")
    await rig.delete(agent.id, etag=agent.etag)
    assert await not_found(rig.get(agent.id)) == ("agent", agent.id)
    assert await not_found(rig.delete(agent.id)) == ("agent", agent.id)
    assert await rig.get(kept.id) == kept
    assert [await rows(rig.db, table) for table in (agents, agent_tags, conversations, runs)] == [1, 1, 1, 0]


@pytest.mark.parametrize("state", ["queued", "running", "awaiting_approval"])
async def test_an_agent_with_a_live_run_is_deleted_only_by_force(rig: Rig, state: str) -> None:
    agent = await rig.create()
    run_id = await rig.add_run(agent, state)
    metadata = await refused(rig.delete(agent.id), grpc.StatusCode.FAILED_PRECONDITION, "RESOURCE_IN_USE")
    assert metadata == {"resource": "agent", "id": agent.id, "used_by": f"run '{run_id}'"}
    assert rig.cancelled == []
    await rig.delete(agent.id, force=True)
    assert rig.cancelled == [agent.id]
    assert [await rows(rig.db, table) for table in (agents, conversations, runs)] == [0, 0, 0]


async def test_of_many_deletions_at_once_one_succeeds(rig: Rig) -> None:
    agent = await rig.create()
    results = await asyncio.gather(*(rig.delete(agent.id) for _ in range(8)), return_exceptions=True)
    assert sum(each is None for each in results) == 1
    codes = {each.code() for each in results if isinstance(each, grpc.aio.AioRpcError)}
    assert codes == {grpc.StatusCode.NOT_FOUND}
