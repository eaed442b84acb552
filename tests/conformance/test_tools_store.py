"""The store and the catalog of tools do the same on SQLite and on Postgres."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import Connection, func, select

from common.db.engine import Database
from common.db.tables import tool_tags
from common.errors import InvalidArgument, NotFound
from common.ids import Prefix, new_id
from services.agents import store as agents_store
from services.agents.model import Agent, AgentSpec
from services.tools import store
from services.tools.api import CrashPolicy, Mcp, Python, ToolDefinition
from services.tools.builtin import BUILTIN_TOOLS
from services.tools.catalog import Catalog
from services.tools.model import Tool, ToolFilter, ToolSpec

NOW = datetime(2026, 11, 1, 12, 0, 0, 123456, tzinfo=UTC)
ORG = "org-1"
BUILTIN = [tool.definition for tool in BUILTIN_TOOLS]
CATALOG = Catalog(BUILTIN)
KIND = Python("def f(): ...", ("a==1",))


def make_tool(name: str, *, age: int = 0, tags: tuple[str, ...] = (), **spec: Any) -> Tool:
    moment = NOW - timedelta(microseconds=age)
    return Tool(
        id=new_id(Prefix.TOOL),
        organization_id=ORG,
        name=name,
        spec=ToolSpec(**{"kind": KIND, **spec}),
        tags=tags,
        version=1,
        created_at=moment,
        updated_at=moment,
    )


async def add(db: Database, *made: Tool) -> None:
    for tool in made:
        await db.write(store.insert, tool)


async def names(db: Database, size: int = 100, **conditions: Any) -> list[str]:
    """All names that match, page by page."""
    found: list[str] = []
    token = ""
    while True:
        page, token = await db.read(CATALOG.list_page, ORG, ToolFilter(**conditions), size=size, token=token)
        assert len(page) <= size
        found += [tool.name for tool in page]
        if not token:
            return found


async def test_what_goes_in_comes_out(db: Database) -> None:
    tool = make_tool(
        "full",
        tags=("a", "Ö"),
        description="ünïcode \0",
        parameters={"type": "object", "properties": {"x": {"default": [1, 0.5, None]}}},
        own_description=True,
        own_parameters=True,
        default_requires_approval=True,
        parallel=True,
        return_char_limit=7,
        timeout=0.5,
        crash_policy=CrashPolicy.ASK,
        metadata={"k": {"v": True}},
    )
    await add(db, tool)
    assert await db.read(store.get, ORG, tool.id) == tool


async def test_a_tool_is_found_only_in_its_organization(db: Database) -> None:
    tool = make_tool("mine", tags=("t",))
    await add(db, tool)
    for find in (store.get, store.lock):
        with pytest.raises(NotFound):
            await db.write(find, "org-2", tool.id)
    assert await db.write(store.lock_named, "org-2", "mine") is None
    assert await db.read(store.by_id, "org-2", [tool.id]) == {}
    assert await db.read(CATALOG.load, "org-2", [tool.id]) == []
    page, _ = await db.read(CATALOG.list_page, "org-2", ToolFilter(kinds=("python",)), size=10, token="")
    assert page == []


async def test_replacing_writes_everything_that_can_change(db: Database) -> None:
    tool = make_tool("old", tags=("a", "b"), description="before")
    await add(db, tool)
    changed = replace(
        tool,
        name="new",
        tags=("b", "c"),
        spec=ToolSpec(KIND, "after"),
        version=2,
        updated_at=NOW + timedelta(seconds=1),
    )
    await db.write(store.replace, tool, changed)
    assert await db.read(store.get, ORG, tool.id) == changed
    assert await names(db, tags=("a",)) == []
    assert await names(db, tags=("c", "x")) == ["new"]
    assert await names(db, query="AFTER") == ["new"]
    assert await names(db, query="before") == []


async def test_deleting_takes_the_tags_along(db: Database) -> None:
    tool = make_tool("gone", tags=("a",))
    await add(db, tool)
    await db.write(store.delete, tool.id)
    assert await db.read(lambda conn: conn.execute(select(func.count()).select_from(tool_tags)).scalar_one()) == 0


@pytest.mark.parametrize("size", [1, 2, 3, 100])
async def test_the_newest_come_first_and_the_builtin_last(db: Database, size: int) -> None:
    await add(db, *(make_tool(f"t{number}", age=number // 2) for number in range(6)))
    builtin = sorted(tool.name for tool in BUILTIN)
    found = await names(db, size)
    assert [found[:2], found[2:4], found[4:6]] == [
        [each for each in found if each in pair] for pair in ({"t0", "t1"}, {"t2", "t3"}, {"t4", "t5"})
    ]
    assert len(set(found)) == len(found)
    assert found[6:] == builtin


async def test_filters(db: Database) -> None:
    python, other = make_tool("straße", tags=("x",)), make_tool("remote_1", kind=Mcp("server"), description="100%")
    await add(db, python, other)
    assert await names(db, kinds=("python",)) == ["straße"]
    assert await names(db, kinds=("mcp",)) == ["remote_1"]
    assert await names(db, kinds=("builtin",)) == sorted(tool.name for tool in BUILTIN)
    assert await names(db, names=("straße", "wait", "nobody")) == ["straße", "wait"]
    assert await names(db, ids=(other.id, BUILTIN[0].id)) == ["remote_1", BUILTIN[0].name]
    assert await names(db, ids=()) == []
    assert await names(db, query="STRASSE") == ["straße"]
    assert await names(db, query="0%") == ["remote_1"]
    assert await names(db, query="1_0") == []
    assert await names(db, query="DIE") == ["roll_dice"]
    assert await names(db, tags=("x",)) == ["straße"]


async def test_a_token_belongs_to_its_list(db: Database) -> None:
    _, token = await db.read(CATALOG.list_page, ORG, ToolFilter(), size=1, token="")
    with pytest.raises(InvalidArgument):
        await db.read(CATALOG.list_page, ORG, ToolFilter(query="x"), size=1, token=token)


async def test_tools_are_found_by_id_and_by_name_in_the_order_asked(db: Database) -> None:
    one, two = make_tool("one"), make_tool("two")
    await add(db, one, two)

    async def find(ids: list[str], wanted: tuple[str, ...] = ()) -> list[str]:
        found: list[ToolDefinition] = await db.write(CATALOG.find, ORG, ids, wanted)
        return [tool.name for tool in found]

    assert await find([two.id, BUILTIN[0].id, one.id], ("wait", "one")) == ["two", "roll_dice", "one", "wait", "one"]
    with pytest.raises(NotFound, match="'nobody'"):
        await find([one.id], ("wait", "nobody"))
    gone = new_id(Prefix.TOOL)
    with pytest.raises(NotFound, match=gone):
        await find([one.id, gone])
    loaded = await db.read(CATALOG.load, ORG, [gone, two.id, BUILTIN[1].id])
    assert [tool.name for tool in loaded] == ["two", "get_time"]


async def test_the_agents_that_have_a_tool(db: Database) -> None:
    tool = make_tool("used")
    await add(db, tool)
    ids = sorted(new_id(Prefix.AGENT) for _ in range(3))
    for agent_id, tool_ids in zip(ids, [(tool.id,), (), (BUILTIN[0].id, tool.id)], strict=True):
        agent = Agent(agent_id, ORG, "a", AgentSpec(tool_ids=tool_ids), (), new_id(Prefix.CONVERSATION), 1, NOW, NOW)
        await db.write(agents_store.insert, agent)
    assert await db.read(store.agents_with, ORG, tool.id) == [ids[0], ids[2]]
    assert await db.read(store.agents_with, "org-2", tool.id) == []


async def test_a_name_that_is_reserved_is_given_once(db: Database) -> None:
    def make(conn: Connection) -> bool:
        store.reserve(conn, ORG, "wanted")
        if store.lock_named(conn, ORG, "wanted") is not None:
            return False
        store.insert(conn, make_tool("wanted"))
        return True

    assert sum(await asyncio.gather(*(db.write(make) for _ in range(10)))) == 1
