"""Tools of MCP servers: real ones, as a child process and over HTTP."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.messages.model import Image, Outcome, Text
from services.wire.wellknown import to_dict
from tests.helpers.inprocess import World
from tests.helpers.mcp_http import HttpServer, mcp_over_http
from tests.helpers.mcp_server import PIXEL, Record
from tests.helpers.wait import eventually
from tests.rpc.toolservers.rig import Calling, Servers, failure

TOOLS = ["big", "die", "echo", "environment", "fails", "picture", "pid", "slow", "who"]
WAYS = ("stdio", "http", "legacy")


@pytest.fixture(params=WAYS)
async def name(
    request: pytest.FixtureRequest, servers: Servers, stdio: list[str], record: Record
) -> AsyncIterator[str]:
    """A server, reached in each way in turn."""
    if request.param == "stdio":
        yield await servers.stdio(stdio)
        return
    async with mcp_over_http(record, legacy=request.param == "legacy") as server:
        yield await servers.http(server.url)
        # Before the server: it waits for who is connected.
        await servers.forget()


def exists(path: str) -> bool:
    return Path(path).exists()


def alive(pid: int) -> bool:
    return exists(f"/proc/{pid}")


async def test_a_sync_brings_its_tools_behind_a_person(servers: Servers, name: str) -> None:
    tools = await servers.sync(name)
    (odd,) = set(tools) - set(TOOLS)
    assert len(odd) <= 48
    assert tools[odd].mcp.tool.startswith("a.name/that models")
    assert all(tool.default_requires_approval for tool in tools.values())
    assert all(tool.mcp.server == name for tool in tools.values())
    echo = tools["echo"]
    assert (echo.description, echo.mcp.tool, echo.parallel) == ("Says it again.", "", True)
    assert not tools["slow"].parallel
    assert "text" in to_dict(echo.parameters)["properties"]
    assert {tool.id for tool in (await servers.sync(name)).values()} == {tool.id for tool in tools.values()}


async def test_a_call_returns_text(servers: Servers, name: str) -> None:
    result = await servers.call(name, "echo", text="hi")
    assert (result.outcome, result.content) == (Outcome.SUCCEEDED, (Text("hi"),))
    assert (await servers.call(name, "who", call_id="call-7")).text == "call-7"


async def test_a_call_returns_images(servers: Servers, name: str) -> None:
    result = await servers.call(name, "picture")
    assert result.content == (Image(data=PIXEL, media_type="image/png"), Text("a pixel"))


async def test_a_failing_tool_is_an_error_return(servers: Servers, name: str) -> None:
    assert "as told" in failure(await servers.call(name, "fails"))
    assert "Unknown tool" in failure(await servers.call(name, "nothing"))
    assert failure(await servers.call(name, "echo")), "an argument is missing"
    assert (await servers.call(name, "echo", text="still here")).text == "still here"


async def test_cancelling_a_call_cancels_it_there(servers: Servers, name: str, record: Record) -> None:
    calling = Calling(servers.world, name, "slow")
    await eventually(lambda: record.lines() == ["started"])
    await eventually(lambda: calling.progress == ["half way", "2 of 2"])
    await calling.cancel()
    await eventually(lambda: record.lines() == ["started", "cancelled"])
    assert (await servers.call(name, "echo", text="still here")).text == "still here"


async def test_the_time_out_ends_a_call_on_both_sides(servers: Servers, name: str, record: Record) -> None:
    assert (await servers.call(name, "echo", text="first")).text == "first"
    expected = f"Error: the tool server '{name}' did not answer within 0.5 s."
    assert failure(await servers.call(name, "slow", timeout=0.5)) == expected
    await eventually(lambda: record.lines() == ["started", "cancelled"])
    assert (await servers.call(name, "echo", text="still here")).text == "still here"


async def test_a_huge_result_is_refused(servers: Servers, name: str) -> None:
    assert failure(await servers.call(name, "big", size=9 * 1024 * 1024))
    assert (await servers.call(name, "big", size=1024 * 1024)).text == "x" * 1024 * 1024


async def test_calls_share_a_session(servers: Servers, name: str, record: Record) -> None:
    slow = [Calling(servers.world, name, "slow", seconds=0.3) for _ in range(3)]
    await eventually(lambda: record.lines() == ["started"] * 3)
    assert (await servers.call(name, "echo", text="meanwhile")).text == "meanwhile"
    assert [(await each.result()).text for each in slow] == ["waited"] * 3


async def test_a_program_gets_its_environment_and_nothing_of_ours(
    servers: Servers, stdio: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "ours")
    name = await servers.stdio(stdio, SECRET="theirs")
    said = (await servers.call(name, "environment")).text
    listed, _, rest = said.partition("] ")
    # The first is set by the interpreter itself.
    assert set(json.loads(listed.replace("'", '"') + "]")) - {"LC_CTYPE"} == {"PATH", "SECRET"}
    secret, folder = rest.split()
    assert secret == "theirs"
    assert folder != os.getcwd()
    await servers.delete(name)
    assert not exists(folder)


async def test_a_program_ends_with_its_server(servers: Servers, stdio: list[str], record: Record) -> None:
    name = await servers.stdio(stdio)
    pid = int((await servers.call(name, "pid")).text)
    assert int((await servers.call(name, "pid")).text) == pid, "the process is kept"
    calling = Calling(servers.world, name, "slow")
    await eventually(lambda: record.lines() == ["started"])
    await servers.delete(name)
    assert failure(await calling.result()) == f"Error: the tool server '{name}' was closed."
    assert not alive(pid)


async def test_a_program_that_dies_is_started_again(servers: Servers, stdio: list[str]) -> None:
    name = await servers.stdio(stdio)
    pid = int((await servers.call(name, "pid")).text)
    assert failure(await servers.call(name, "die")) == f"Error: the tool server '{name}' has ended."
    assert int((await servers.call(name, "pid")).text) != pid


async def test_a_program_that_is_killed_is_started_again(servers: Servers, stdio: list[str]) -> None:
    name = await servers.stdio(stdio)
    pid = int((await servers.call(name, "pid")).text)
    os.kill(pid, 9)

    async def another() -> bool:
        result = await servers.call(name, "pid")
        return result.outcome is Outcome.SUCCEEDED and int(result.text) != pid

    await eventually(another)


async def test_a_changed_program_replaces_the_old_one(servers: Servers, stdio: list[str]) -> None:
    name = await servers.stdio(stdio)
    pid = int((await servers.call(name, "pid")).text)
    await servers.stdio(stdio, name, SECRET="new")
    assert "new" in (await servers.call(name, "environment")).text
    await eventually(lambda: not alive(pid))


async def test_a_program_that_is_not_there_is_an_error_return(servers: Servers) -> None:
    name = await servers.stdio(["/does/not/exist"])
    expected = "could not be started: /does/not/exist: No such file or directory"
    assert failure(await servers.call(name, "echo")) == f"Error: the tool server '{name}' {expected}."
    assert await servers.refused_sync(name) == expected
    assert servers.connections("mcp_stdio")["unhealthy"] == 1.0


@pytest.mark.parametrize("legacy", [False, True])
async def test_a_server_that_answers_without_a_stream(servers: Servers, record: Record, legacy: bool) -> None:
    async with mcp_over_http(record, legacy=legacy, json_response=True) as http:
        name = await servers.http(http.url)
        assert "echo" in await servers.sync(name)
        assert (await servers.call(name, "echo", text="hi")).text == "hi"
        assert "did not answer" in failure(await servers.call(name, "slow", timeout=0.3))
        assert "more than is allowed" in failure(await servers.call(name, "big", size=9 * 1024 * 1024))
        assert (await servers.call(name, "echo", text="still here")).text == "still here"
        await servers.forget()


async def test_a_program_that_does_not_speak_is_an_error_return(servers: Servers) -> None:
    name = await servers.stdio(["sleep", "3600"])
    expected = f"Error: the tool server '{name}' did not open a session in time."
    assert failure(await servers.call(name, "echo", timeout=0.3)) == expected
    await servers.delete(name)
    talker = await servers.stdio(["echo", "hello"])
    assert failure(await servers.call(talker, "echo")) == f"Error: the tool server '{talker}' has ended."


async def test_headers_are_sent(servers: Servers, http: HttpServer) -> None:
    name = await servers.http(http.url, Authorization="Bearer secret")
    assert (await servers.call(name, "echo", text="hi")).text == "hi"
    assert {headers.get("authorization") for headers in http.requests} == {"Bearer secret"}
    assert {headers.get("host") for headers in http.requests} == {f"127.0.0.1:{http.port}"}
    await servers.forget()


async def test_a_host_name_stays_the_name(servers: Servers, http: HttpServer) -> None:
    name = await servers.http(f"http://localhost:{http.port}/mcp")
    assert (await servers.call(name, "echo", text="hi")).text == "hi"
    assert {headers.get("host") for headers in http.requests} == {f"localhost:{http.port}"}
    await servers.forget()


async def test_a_server_that_is_not_there_is_an_error_return(servers: Servers, http: HttpServer) -> None:
    name = await servers.http(http.url)
    await http.stop()
    assert "cannot be reached (ConnectError" in failure(await servers.call(name, "echo", text="hi"))
    assert "cannot be reached" in await servers.refused_sync(name)


@pytest.mark.parametrize("legacy", [False, True])
async def test_a_restarted_server_is_found_again(servers: Servers, record: Record, legacy: bool) -> None:
    async with mcp_over_http(record, legacy=legacy) as http:
        name = await servers.http(http.url)
        assert (await servers.call(name, "echo", text="one")).text == "one"
        await http.stop()
        assert "cannot be reached" in failure(await servers.call(name, "echo", text="two"))
        await http.start()
        assert (await servers.call(name, "echo", text="three")).text == "three"
        await servers.forget()


async def test_a_server_that_goes_away_ends_its_calls(servers: Servers, http: HttpServer, record: Record) -> None:
    name = await servers.http(http.url)
    calling = Calling(servers.world, name, "slow")
    await eventually(lambda: record.lines() == ["started"])
    await http.stop()
    assert failure(await calling.result()).startswith(f"Error: the tool server '{name}' broke the answer off")


async def test_calls_are_counted(servers: Servers, http: HttpServer, world: World) -> None:
    name = await servers.http(http.url)
    before = [servers.counted("mcp_http", outcome) for outcome in ("succeeded", "failed", "cancelled")]
    await servers.call(name, "echo", text="hi")
    await servers.call(name, "fails")
    calling = Calling(world, name, "slow")
    await asyncio.sleep(0)
    await calling.cancel()
    after = [servers.counted("mcp_http", outcome) for outcome in ("succeeded", "failed", "cancelled")]
    assert after[:2] == [before[0] + 1, before[1] + 1]
    await servers.forget()
