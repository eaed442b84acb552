"""Python tools over gRPC: created by source, changed, listed, deleted, and refused with the field that is wrong."""

import asyncio
from typing import Any

import grpc
import pytest
from google.protobuf.json_format import MessageToDict
from google.protobuf.struct_pb2 import Struct

from common.ids import DEFAULT_ORGANIZATION, Prefix, new_id
from common.pb.bridle.v1 import tool_service_pb2 as api
from common.pb.bridle.v1.tool_pb2 import BuiltinTool, McpTool, PythonTool, RemoteTool, Tool
from services.tools import store
from services.tools.api import Mcp
from services.tools.builtin import BUILTIN_TOOLS
from services.tools.model import Tool as StoredTool
from services.tools.model import ToolSpec
from tests.helpers.inprocess import World, invalid, not_found, refused, return_text
from tests.rpc.tools.rig import Tools, approval_rule, source_of, struct

DICE = BUILTIN_TOOLS[0].definition
Kind = api.ListToolsRequest.Kind


async def test_a_tool_is_made_from_its_source(tools: Tools) -> None:
    tool = await tools.upsert(
        source_of("add_numbers"), tags=["math"], return_char_limit=99, parallel=True, metadata=struct(team="x")
    )
    assert tool.id.startswith("tool-")
    assert (tool.name, tool.description, tool.etag) == ("add_numbers", "Adds.", "v1")
    assert MessageToDict(tool.parameters) == {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "description": "One."},
            "b": {"type": "integer", "description": "The other.", "default": 1},
        },
        "required": ["a"],
    }
    assert (tool.return_char_limit, tool.parallel, list(tool.tags)) == (99, True, ["math"])
    assert tool.crash_policy == Tool.CRASH_POLICY_NEVER
    assert tool.create_time == tool.update_time
    assert await tools.get(tool.id) == tool


async def test_the_same_name_is_the_same_tool_and_what_is_not_set_stays(tools: Tools) -> None:
    first = await tools.upsert(
        source_of("same", "Old."), tags=["kept"], default_requires_approval=True, return_char_limit=7
    )
    second = await tools.upsert(source_of("same", "New."), parallel=True)
    assert (second.id, second.etag, second.description) == (first.id, "v2", "New.")
    assert (list(second.tags), second.default_requires_approval, second.return_char_limit) == (["kept"], True, 7)
    assert second.parallel
    assert second.create_time == first.create_time
    assert second.update_time.ToDatetime() > first.update_time.ToDatetime()
    assert await tools.upsert(source_of("same", "New.")) == second, "what changes nothing changes nothing"


async def test_many_at_once_make_one_tool(tools: Tools) -> None:
    made = await asyncio.gather(*(tools.upsert(source_of("crowded", f"No. {number}.")) for number in range(8)))
    assert len({tool.id for tool in made}) == 1
    assert (await tools.get(made[0].id)).etag == "v8"


async def test_a_request_id_makes_a_repeat_harmless(tools: Tools) -> None:
    request_id = new_id(Prefix.RUN)
    first = await tools.upsert(source_of("once"), request_id=request_id)
    await tools.upsert(source_of("once", "Changed meanwhile."))
    again = await tools.upsert(source_of("once"), request_id=request_id)
    assert (again.id, again.etag) == (first.id, "v2")
    other = tools.upsert(source_of("other"), request_id=request_id)
    await refused(other, grpc.StatusCode.ALREADY_EXISTS, "REQUEST_ID_REUSED")


async def test_what_the_caller_says_of_it_comes_first(tools: Tools) -> None:
    schema = struct(properties={"a": {"type": "integer"}}, required=["a"])
    bare = "def bare(a, b=2):\n    pass\n"
    tool = await tools.upsert(bare, description="Mine.", parameters=schema)
    assert tool.description == "Mine."
    assert MessageToDict(tool.parameters) == {"type": "object", **MessageToDict(schema)}
    again = await tools.upsert("def bare(a, c=3):\n    '''Theirs.'''\n")
    assert (again.description, again.parameters) == ("Mine.", tool.parameters), "it stays with another source"
    cleared = await tools.update(
        Tool(id=tool.id, python=PythonTool(source=source_of("bare", "Theirs."))),
        "python.source",
        "description",
        "parameters",
    )
    assert cleared.description == "Theirs."
    assert set(MessageToDict(cleared.parameters)["properties"]) == {"a", "b"}


async def test_an_update_changes_what_the_mask_names(tools: Tools) -> None:
    tool = await tools.upsert(source_of("masked"), default_requires_approval=True, tags=["a"])
    wanted = Tool(id=tool.id, tags=["b"], return_char_limit=5, etag=tool.etag)
    wanted.timeout.FromSeconds(3)
    changed = await tools.update(wanted, "default_requires_approval", "tags", "timeout")
    assert (changed.default_requires_approval, list(changed.tags), changed.timeout.seconds) == (False, ["b"], 3)
    assert changed.return_char_limit == 50_000, "not in the mask"
    assert changed.etag == "v2"
    populated = await tools.update(Tool(id=tool.id, crash_policy=Tool.CRASH_POLICY_ASK))
    assert (populated.crash_policy, list(populated.tags)) == (Tool.CRASH_POLICY_ASK, ["b"])
    everything = await tools.update(Tool(id=tool.id, python=PythonTool(source=source_of("masked", "All new."))), "*")
    assert (everything.description, list(everything.tags), everything.crash_policy) == ("All new.", [], 1)
    assert not everything.HasField("timeout")
    stale = tools.update(Tool(id=tool.id, tags=["c"], etag="v1"))
    assert (await refused(stale, grpc.StatusCode.ABORTED, "ETAG_MISMATCH"))["etag"] == everything.etag


async def test_a_new_source_brings_a_new_schema_and_maybe_a_name(tools: Tools, world: World) -> None:
    tool = await tools.upsert(source_of("first_name"))
    renamed = await tools.update(Tool(id=tool.id, python=PythonTool(source=source_of("second_name", "Renamed."))))
    assert (renamed.id, renamed.name, renamed.description) == (tool.id, "second_name", "Renamed.")
    await tools.upsert(source_of("taken_name"))
    clash = tools.update(Tool(id=tool.id, python=PythonTool(source=source_of("taken_name"))))
    assert (await refused(clash, grpc.StatusCode.ALREADY_EXISTS, "ALREADY_EXISTS"))["id"] == "taken_name"
    agent = await world.make_agent(["second_name"])
    used = tools.update(Tool(id=tool.id, python=PythonTool(source=source_of("third_name"))))
    found = await refused(used, grpc.StatusCode.FAILED_PRECONDITION, "RESOURCE_IN_USE")
    assert found["used_by"] == f"agent '{agent.id}'"
    assert (await tools.get(tool.id)).name == "second_name"


async def test_a_deleted_tool_is_gone_from_every_agent(tools: Tools, world: World) -> None:
    tool = await tools.upsert(source_of("short_lived"), default_requires_approval=True)
    one, two = await world.make_agent(["short_lived", "roll_dice"]), await world.make_agent()
    await tools.attach(two.id, tool.id)
    before = await two.get()
    assert list(before.tool_rules) == [approval_rule("short_lived")]
    await tools.delete(tool.id)
    assert list((await one.get()).tool_ids) == [DICE.id]
    after = await two.get()
    assert (list(after.tool_ids), list(after.tool_rules)) == ([], [approval_rule("short_lived")])
    assert after.etag != before.etag
    for gone in (tools.get(tool.id), tools.delete(tool.id), tools.attach(one.id, tool.id), tools.run(tool.id)):
        assert await not_found(gone) == ("tool", tool.id)
    assert (await tools.upsert(source_of("short_lived"))).id != tool.id, "the name is free again"
    await one.send("still there?")


async def test_deleting_and_attaching_at_once_leave_no_agent_with_it(tools: Tools, world: World) -> None:
    for _ in range(5):
        tool = await tools.upsert(source_of("raced"))
        agents = [await world.make_agent() for _ in range(3)]
        attaches = [tools.attach(agent.id, tool.id) for agent in agents]
        await asyncio.gather(*attaches[:2], tools.delete(tool.id), attaches[2], return_exceptions=True)
        assert [list((await agent.get()).tool_ids) for agent in agents] == [[], [], []]


async def test_lists_filter_and_page(tools: Tools, world: World) -> None:
    made = [await tools.upsert(source_of(f"listed_{number}", "Filed under ÖL."), tags=["filed"]) for number in range(3)]
    newest = [tool.name for tool in reversed(made)]
    assert await tools.names(tags=["filed", "other"]) == newest
    assert await tools.names(query="under öl") == newest
    assert await tools.names(names=["listed_1", "roll_dice"]) == ["listed_1", "roll_dice"]
    assert await tools.names(tool_ids=[made[0].id, DICE.id]) == ["listed_0", "roll_dice"]
    assert await tools.names(kinds=[Kind.KIND_PYTHON], tags=["filed"]) == newest
    assert await tools.names(kinds=[Kind.KIND_BUILTIN], names=["roll_dice", "listed_1"]) == ["roll_dice"]
    assert await tools.names(kinds=[Kind.KIND_MCP], tags=["filed"]) == []
    agent = await world.make_agent(["roll_dice", "listed_2", "listed_0"])
    assert await tools.names(agent_id=agent.id) == ["listed_2", "listed_0", "roll_dice"]
    assert await tools.names(agent_id=agent.id, tool_ids=[made[0].id, made[1].id]) == ["listed_0"]
    assert await tools.names(agent_id=(await world.make_agent()).id) == []
    first, token = await tools.page(agent_id=agent.id, page_size=2)
    assert (first, bool(token)) == (["listed_2", "listed_0"], True)
    assert await tools.page(agent_id=agent.id, page_size=2, page_token=token) == (["roll_dice"], "")
    assert await invalid(tools.page(page_size=2, page_token=token)) == ["page_token"]
    bad = tools.page(agent_id="x", tool_ids=["y"], tags=[""], kinds=[0, 9])
    assert await invalid(bad) == ["agent_id", "tool_ids[0]", "tags[0]", "kinds[0]", "kinds[1]"]


async def test_builtin_tools_are_not_for_callers(tools: Tools) -> None:
    for change in (tools.update(Tool(id=DICE.id, tags=["x"])), tools.delete(DICE.id)):
        found = await refused(change, grpc.StatusCode.PERMISSION_DENIED, "PERMISSION_DENIED")
        assert found["action"] == "change or delete the built-in tool 'roll_dice'"
    shown = await tools.get(DICE.id)
    assert (shown.WhichOneof("kind"), shown.etag) == ("builtin", "")


async def test_a_tool_of_ones_own_goes_before_a_builtin_one_of_its_name(tools: Tools, world: World) -> None:
    own = await tools.upsert(source_of("roll_dice"))
    agent = await world.make_agent(["roll_dice"])
    assert list((await agent.get()).tool_ids) == [own.id]
    both = await world.make_agent(["roll_dice"], tool_ids=[DICE.id])
    await both.send("hello")
    assert [tool.description for tool in both.model.calls[0].request.tools] == [own.description]


async def test_of_a_servers_tool_only_our_part_can_be_changed(tools: Tools, world: World) -> None:
    now = world.node.clock.now()
    spec = ToolSpec(Mcp("files"), "Reads.", {"type": "object"}, default_requires_approval=True)
    stored = StoredTool(new_id(Prefix.TOOL), DEFAULT_ORGANIZATION, "read_file", spec, (), 1, now, now)
    await world.node.db.write(store.insert, stored)
    changed = await tools.update(Tool(id=stored.id, tags=["x"]), "default_requires_approval", "tags")
    assert (changed.default_requires_approval, list(changed.tags), changed.mcp.server) == (False, ["x"], "files")
    for wrong, field in (
        (Tool(id=stored.id, name="other"), "tool.name"),
        (Tool(id=stored.id, description="Other."), "tool.description"),
        (Tool(id=stored.id, parameters=struct(properties={})), "tool.parameters"),
        (Tool(id=stored.id, python=PythonTool(source=source_of("read_file"))), "tool.python"),
    ):
        assert await invalid(tools.update(wrong)) == [field]
    clash = tools.upsert(source_of("read_file"))
    await refused(clash, grpc.StatusCode.ALREADY_EXISTS, "ALREADY_EXISTS")
    assert "the tool server 'files' is not registered" in return_text(await tools.run(stored.id))
    await tools.delete(stored.id)


@pytest.mark.parametrize(
    ("tool", "fields"),
    [
        (None, ["tool"]),
        (Tool(), ["tool.python"]),
        (Tool(builtin=BuiltinTool()), ["tool.builtin"]),
        (Tool(remote=RemoteTool(server="s")), ["tool.remote"]),
        (Tool(mcp=McpTool(server="s")), ["tool.mcp"]),
        (Tool(python=PythonTool()), ["tool.python.source"]),
        (Tool(python=PythonTool(source=" \n")), ["tool.python.source"]),
        (Tool(python=PythonTool(source="def f(:")), ["tool.python.source"]),
        (Tool(python=PythonTool(source="#" * (256 * 1024 + 1))), ["tool.python.source"]),
        (Tool(python=PythonTool(source="def f(x):\n    '''Does.'''")), ["tool.python.source"]),
        (Tool(python=PythonTool(source=source_of("ok")), name="another"), ["tool.name"]),
        (Tool(python=PythonTool(source=source_of("ok")), name="not ok"), ["tool.name"]),
        (Tool(python=PythonTool(source=source_of("ok")), description="x" * 10_001), ["tool.description"]),
        (Tool(python=PythonTool(source=source_of("ok", "x" * 10_001))), ["tool.description"]),
        (Tool(python=PythonTool(source="def f(): 0"), parameters=struct(type="object")), ["tool.description"]),
        (Tool(python=PythonTool(source=source_of("ok")), parameters=struct(type="string")), ["tool.parameters"]),
        (
            Tool(python=PythonTool(source=source_of("ok")), parameters=struct(properties={"z": {}})),
            ["tool.parameters", "tool.parameters"],
        ),
        (Tool(python=PythonTool(source=source_of("ok")), return_char_limit=-1), ["tool.return_char_limit"]),
        (Tool(python=PythonTool(source=source_of("ok")), return_char_limit=1_000_001), ["tool.return_char_limit"]),
        (Tool(python=PythonTool(source=source_of("ok")), tags=["", "a", "a"]), ["tool.tags[0]", "tool.tags[2]"]),
        (Tool(python=PythonTool(source=source_of("ok")), metadata=struct(x="y" * 20_000)), ["tool.metadata"]),
        (
            Tool(python=PythonTool(source=source_of("ok"), pip_requirements=["requests"])),
            ["tool.python.pip_requirements[0]", "tool.python.pip_requirements"],
        ),
        (Tool(python=PythonTool(source=source_of("ok"), pip_requirements=["a==1"])), ["tool.python.pip_requirements"]),
    ],
)
async def test_a_bad_tool_names_what_is_wrong(tools: Tools, tool: Tool | None, fields: list[str]) -> None:
    request = api.UpsertToolRequest() if tool is None else api.UpsertToolRequest(tool=tool)
    assert await invalid(tools.stub.UpsertTool(request, timeout=10)) == fields
    assert "ok" not in await tools.names(names=["ok"])


async def test_enums_and_times_are_checked(tools: Tools) -> None:
    tool = Tool(python=PythonTool(source=source_of("ok")), crash_policy=9)  # type: ignore[arg-type]  # open enum
    tool.timeout.FromSeconds(0)
    request = api.UpsertToolRequest(tool=tool, request_id="x" * 129)
    fields = await invalid(tools.stub.UpsertTool(request, timeout=10))
    assert fields == ["request_id", "tool.timeout", "tool.crash_policy"]


async def test_a_bad_update_changes_nothing(tools: Tools) -> None:
    tool = await tools.upsert(source_of("steady"))
    bad: list[tuple[Any, list[str]]] = [
        (tools.update(Tool(id="x")), ["tool.id"]),
        (tools.update(Tool(id=tool.id), "nothing"), ["update_mask"]),
        (tools.update(Tool(id=tool.id), "create_time"), ["update_mask"]),
        (tools.update(Tool(id=tool.id), "python"), ["tool.python"]),
        (tools.update(Tool(id=tool.id), "*"), ["tool.python"]),
        (tools.update(Tool(id=tool.id), "python.source"), ["tool.python.source"]),
        (tools.update(Tool(id=tool.id, mcp=McpTool(server="s"))), ["tool.mcp"]),
        (tools.update(Tool(id=tool.id, name="other")), ["tool.name"]),
        (tools.update(Tool(id=tool.id, parameters=Struct()), "parameters"), ["tool.parameters"]),
        (
            tools.update(Tool(id=tool.id, python=PythonTool(pip_requirements=["a==1"]))),
            ["tool.python.pip_requirements"],
        ),
    ]
    for call, fields in bad:
        assert await invalid(call) == fields
    assert await tools.get(tool.id) == tool
    nothing = new_id(Prefix.TOOL)
    assert await not_found(tools.update(Tool(id=nothing, tags=["x"]))) == ("tool", nothing)
    assert await invalid(tools.get("x")) == await invalid(tools.delete("")) == ["tool_id"]
