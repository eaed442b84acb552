"""services/toolservers/store.py and sync.py on both databases."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from common.db.engine import Database
from common.errors import AlreadyExists, InvalidArgument, NotFound
from common.ids import Prefix, new_id
from services.agents import store as agents_store
from services.agents.model import Agent, AgentSpec
from services.tools import store as tools_store
from services.tools.api import CrashPolicy, Mcp, Remote
from services.tools.model import Tool, ToolSpec
from services.toolservers import store, sync
from services.toolservers.model import Grpc, McpHttp, McpStdio, OfferedTool, Reach, ToolServer

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)
ORG, OTHER = "org-1", "org-2"
GRPC = Grpc("tools:443", ca_pem="ca", certificate_pem="certificate")


def server(name: str = "maps", reach: Reach = GRPC, organization_id: str = ORG) -> ToolServer:
    return ToolServer(organization_id, name, reach, b"\x00sealed\xff", None, 1, NOW, NOW)


def offer(name: str, description: str = "", **fields: Any) -> OfferedTool:
    return OfferedTool(name, description, {"type": "object", "properties": {}}, **{"parallel": False, **fields})


async def insert(db: Database, made: ToolServer) -> ToolServer:
    await db.write(store.insert, made)
    return made


async def synced(db: Database, made: ToolServer, *offered: OfferedTool, now: datetime = NOW) -> dict[str, Tool]:
    return {tool.name: tool for tool in await db.write(sync.sync, made, offered, {"roll_dice"}, now)}


@pytest.mark.parametrize("reach", [GRPC, McpStdio(("uvx", "server")), McpHttp("https://example.com/mcp")])
async def test_what_is_stored_is_what_is_read(db: Database, reach: Reach) -> None:
    made = await insert(db, server(reach=reach))
    assert await db.read(store.get, ORG, "maps") == made
    assert await db.read(store.find, ORG, "other") is None
    with pytest.raises(NotFound, match="maps"):
        await db.read(store.get, OTHER, "maps")


async def test_a_change_and_a_sync(db: Database) -> None:
    made = await insert(db, server())
    changed = replace(made, reach=Grpc("other:443"), sealed=None, version=2, updated_at=LATER)
    await db.write(store.update, changed)
    assert await db.read(store.get, ORG, "maps") == changed
    listed = await db.write(store.synced, changed, LATER + timedelta(hours=1))
    assert await db.read(store.get, ORG, "maps") == listed
    assert (listed.revision, listed.synced_at) == (changed.revision, LATER + timedelta(hours=1))


async def test_lists_are_by_name_and_by_organization(db: Database) -> None:
    for name in ("b-2", "a", "b-10", "c"):
        await insert(db, server(name))
    await insert(db, server("a", organization_id=OTHER))
    first, token = await db.read(store.list_page, ORG, size=3, token="")
    rest, end = await db.read(store.list_page, ORG, size=3, token=token)
    assert [each.name for each in first + rest] == ["a", "b-10", "b-2", "c"]
    assert end == ""
    with pytest.raises(InvalidArgument):
        await db.read(store.list_page, OTHER, size=3, token=token)


async def test_twins_wait_for_each_other(db: Database) -> None:
    def put(conn: Any) -> int:
        current = store.claim(conn, ORG, "maps")
        if current is None:
            store.insert(conn, server())
            return 1
        store.update(conn, replace(current, version=current.version + 1))
        return current.version + 1

    assert sorted(await asyncio.gather(*(db.write(put) for _ in range(8)))) == list(range(1, 9))


async def test_a_sync_adds_changes_and_deletes(db: Database) -> None:
    made = await insert(db, server())
    first = await synced(db, made, offer("find", idempotent=True), offer("route", parallel=True, idempotent=False))
    assert first["find"].spec == ToolSpec(
        kind=Remote("maps"), parameters={"type": "object", "properties": {}}, crash_policy=CrashPolicy.RETRY
    )
    assert first["route"].spec.parallel
    second = await synced(db, made, offer("find", "Finds.", idempotent=False), offer("new"), now=LATER)
    assert sorted(second) == ["find", "new"]
    find = second["find"]
    assert (find.id, find.version, find.updated_at) == (first["find"].id, 2, LATER)
    assert (find.spec.description, find.spec.crash_policy) == ("Finds.", CrashPolicy.NEVER)
    assert await db.read(tools_store.by_name, ORG, ["find", "route", "new"]) == second
    assert await synced(db, made, offer("find", "Finds.", idempotent=False), offer("new")) == second


async def test_what_we_decided_about_a_tool_stays(db: Database) -> None:
    made = await insert(db, server(reach=McpHttp("https://example.com/mcp")))
    before = (await synced(db, made, offer("find")))["find"]
    assert before.spec.default_requires_approval
    assert before.spec.kind == Mcp("maps")
    ours = replace(
        before.spec, default_requires_approval=False, crash_policy=CrashPolicy.RETRY, parallel=True, timeout=5.0
    )
    await db.write(tools_store.replace, before, replace(before, spec=ours, tags=("geo",)))
    after = (await synced(db, made, offer("find", "Finds.")))["find"]
    assert after.spec == replace(ours, description="Finds.")
    assert after.tags == ("geo",)


async def test_a_name_that_is_taken_is_made_another(db: Database) -> None:
    maps, other = await insert(db, server()), await insert(db, server("other"))
    await synced(db, maps, offer("find"))
    found = await synced(db, other, offer("find"), offer("roll_dice"))
    assert sorted(found) == ["other_find", "other_roll_dice"]
    assert found["other_find"].spec.kind == Remote("other", "find")
    again = await synced(db, other, offer("find", "Now with words."), offer("roll_dice"))
    assert again["other_find"].id == found["other_find"].id
    third = await insert(db, server("third"))
    await synced(db, third, offer("third_find"))
    with pytest.raises(AlreadyExists, match="third_find"):
        await synced(db, third, offer("third_find"), offer("find"))


async def test_a_name_that_models_do_not_accept_is_made_another(db: Database) -> None:
    made = await insert(db, server(reach=McpStdio(("x",))))
    found = await synced(db, made, offer("a.b/c d"), offer("x" * 60))
    assert sorted(len(name) for name in found) == [7, 48]
    assert found["a_b_c_d"].spec.kind == Mcp("maps", "a.b/c d")


async def test_tools_that_are_gone_are_taken_from_agents(db: Database) -> None:
    made = await insert(db, server())
    tools = await synced(db, made, offer("find"), offer("route"))
    ids = tuple(tool.id for tool in tools.values())
    agent = Agent(new_id(Prefix.AGENT), ORG, "a", AgentSpec(tool_ids=ids), (), new_id(Prefix.CONVERSATION), 1, NOW, NOW)
    await db.write(agents_store.insert, agent)
    await synced(db, made, offer("route"))
    assert (await db.read(agents_store.get, ORG, agent.id)).spec.tool_ids == (tools["route"].id,)
    await db.write(sync.delete, made, LATER)
    assert (await db.read(agents_store.get, ORG, agent.id)).spec.tool_ids == ()
    assert await db.read(tools_store.by_id, ORG, ids) == {}


async def test_servers_do_not_touch_each_others_tools(db: Database) -> None:
    maps, other = await insert(db, server()), await insert(db, server("other"))
    kept = await synced(db, maps, offer("find"))
    await synced(db, other, offer("route"))
    await synced(db, other)
    await db.write(sync.delete, other, LATER)
    assert await db.read(tools_store.by_name, ORG, ["find", "route"]) == kept
