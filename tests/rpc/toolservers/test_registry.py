"""Registering, listing and forgetting tool servers."""

import sys
from typing import Any

import pytest

from common.db.tables import tool_servers
from common.pb.bridle.v1 import tool_service_pb2 as api
from common.pb.bridle.v1.tool_pb2 import ToolServer
from services.toolservers import store
from tests.helpers.executor import Authority
from tests.helpers.inprocess import World, invalid, not_found
from tests.rpc.toolservers.conftest import PROGRAM
from tests.rpc.toolservers.rig import ORGANIZATION, Servers

AUTHORITY = Authority("ours")
CERTIFICATE, KEY = AUTHORITY.issue("bridle")
STDIO = [sys.executable, str(PROGRAM), "x"]


async def test_secrets_are_stored_sealed_and_never_returned(servers: Servers, world: World) -> None:
    given = {
        "with-key": ToolServer(
            grpc=ToolServer.Grpc(target="a:1", ca_pem=AUTHORITY.pem, certificate_pem=CERTIFICATE, key_pem=KEY)
        ),
        "with-env": ToolServer(mcp_stdio=ToolServer.McpStdio(command=STDIO, env={"TOKEN": "very-secret"})),
        "with-headers": ToolServer(
            mcp_http=ToolServer.McpHttp(url="https://example.com/mcp", headers={"X-Key": "very-secret"})
        ),
    }
    for name, wanted in given.items():
        fields = {field.name: value for field, value in wanted.ListFields()}
        stored = await servers.put(name, **fields)
        wanted.name = name
        wanted.grpc.ClearField("key_pem") if wanted.HasField("grpc") else None
        wanted.mcp_stdio.ClearField("env") if wanted.HasField("mcp_stdio") else None
        wanted.mcp_http.ClearField("headers") if wanted.HasField("mcp_http") else None
        assert stored == wanted
    listed, token = await servers.page()
    assert (listed, token) == ([given["with-env"], given["with-headers"], given["with-key"]], "")
    rows = await world.node.db.read(lambda conn: str(conn.execute(tool_servers.select()).all()))
    assert "very-secret" not in rows
    assert "PRIVATE KEY" not in rows


async def sealed(world: World, name: str) -> bytes | None:
    return (await world.node.db.read(store.get, ORGANIZATION, name)).sealed


async def test_secrets_stay_while_the_place_does(servers: Servers, world: World) -> None:
    name = await servers.http("https://example.com/mcp", Authorization="secret")
    before = await sealed(world, name)
    await servers.http("https://example.com/mcp", name)
    assert await sealed(world, name) == before
    await servers.http("https://example.com/mcp", name, Authorization="another")
    assert await sealed(world, name) not in (None, before)
    await servers.http("https://elsewhere.example.com/mcp", name)
    assert await sealed(world, name) is None, "nobody gets a secret by changing the address"


async def test_a_key_stays_with_its_certificate(servers: Servers) -> None:
    name = await servers.grpc("a:1", ca_pem=AUTHORITY.pem, certificate_pem=CERTIFICATE, key_pem=KEY)
    await servers.grpc("a:1", name, ca_pem=Authority("new").pem, certificate_pem=CERTIFICATE)
    other, _ = AUTHORITY.issue("bridle")
    again = servers.grpc("a:1", name, ca_pem=AUTHORITY.pem, certificate_pem=other)
    assert await invalid(again) == ["server.grpc.key_pem"]


async def test_a_server_stays_of_its_kind(servers: Servers) -> None:
    name = await servers.grpc("a:1")
    assert await invalid(servers.http("https://example.com/mcp", name)) == ["server.connection"]


async def test_pages(servers: Servers) -> None:
    for name in ("c", "a", "b"):
        await servers.grpc("a:1", name)
    first, token = await servers.page(page_size=2)
    rest, end = await servers.page(page_size=2, page_token=token)
    assert [server.name for server in first + rest] == ["a", "b", "c"]
    assert end == ""
    assert await invalid(servers.page(page_size=-1)) == ["page_size"]
    assert await invalid(servers.page(page_token="x")) == ["page_token"]


async def test_a_server_that_is_not_there(servers: Servers) -> None:
    assert await not_found(servers.sync("nobody")) == ("tool server", "nobody")
    assert await not_found(servers.delete("nobody")) == ("tool server", "nobody")
    assert await invalid(servers.sync("No Body")) == ["name"]
    assert await invalid(servers.delete("")) == ["name"]


def grpc(**fields: Any) -> ToolServer:
    return ToolServer(name="a", grpc=ToolServer.Grpc(**{"target": "a:1", **fields}))


def stdio(command: list[str] = STDIO, /, **env: str) -> ToolServer:
    return ToolServer(name="a", mcp_stdio=ToolServer.McpStdio(command=command, env=env))


def http(url: str = "https://example.com/mcp", /, **headers: str) -> ToolServer:
    return ToolServer(name="a", mcp_http=ToolServer.McpHttp(url=url, headers=headers))


BAD: dict[str, tuple[ToolServer, list[str]]] = {
    "nothing": (ToolServer(), ["server.name", "server.connection"]),
    "a name in capitals": (ToolServer(name="Maps", grpc=ToolServer.Grpc(target="a:1")), ["server.name"]),
    "a name too long": (ToolServer(name="a" * 65, grpc=ToolServer.Grpc(target="a:1")), ["server.name"]),
    "no target": (grpc(target=""), ["server.grpc.target"]),
    "a target with a space": (grpc(target="a b:1"), ["server.grpc.target"]),
    "plaintext with an authority": (grpc(plaintext=True, ca_pem=AUTHORITY.pem), ["server.grpc.ca_pem"]),
    "an authority that is none": (grpc(ca_pem="x"), ["server.grpc.ca_pem"]),
    "too much PEM": (grpc(ca_pem=AUTHORITY.pem * 200), ["server.grpc.ca_pem"]),
    "a key without a certificate": (grpc(key_pem=KEY), ["server.grpc.certificate_pem"]),
    "a certificate without a key": (grpc(certificate_pem=CERTIFICATE), ["server.grpc.key_pem"]),
    "a certificate that is none": (grpc(certificate_pem="x", key_pem=KEY), ["server.grpc.certificate_pem"]),
    "a key that is none": (grpc(certificate_pem=CERTIFICATE, key_pem="x"), ["server.grpc.key_pem"]),
    "a key of another certificate": (
        grpc(certificate_pem=CERTIFICATE, key_pem=AUTHORITY.issue("x")[1]),
        ["server.grpc.key_pem"],
    ),
    "no command": (stdio([]), ["server.mcp_stdio.command"]),
    "a command that is not allowed": (stdio(["/bin/sh"]), ["server.mcp_stdio.command"]),
    "an allowed program with another script": (stdio([sys.executable, "x"]), ["server.mcp_stdio.command"]),
    "too many words": (stdio([*STDIO, *"x" * 64]), ["server.mcp_stdio.command"]),
    "a word with a NUL": (stdio([*STDIO, "a\0b"]), ["server.mcp_stdio.command[3]"]),
    "a variable with an equals sign": (stdio(**{"A=B": "c"}), ["server.mcp_stdio.env"]),
    "too much environment": (stdio(A="x" * 70_000), ["server.mcp_stdio.env", "server.mcp_stdio.env[A]"]),
    "no url": (http(""), ["server.mcp_http.url"]),
    "a url of a file": (http("file:///etc/passwd"), ["server.mcp_http.url"]),
    "a url with a password": (http("https://a:b@example.com"), ["server.mcp_http.url"]),
    "a url with a fragment": (http("https://example.com/#a"), ["server.mcp_http.url"]),
    "a header that is none": (http(**{"a b": "c"}), ["server.mcp_http.headers"]),
    "a header that we set": (http(Host="example.org"), ["server.mcp_http.headers"]),
    "a header twice": (http(**{"X-A": "1", "x-a": "2"}), ["server.mcp_http.headers"]),
    "a header with a line break": (http(a="b\r\nc: d"), ["server.mcp_http.headers[a]"]),
}


@pytest.mark.parametrize("case", BAD)
async def test_bad_input_is_refused_by_field(servers: Servers, case: str) -> None:
    server, fields = BAD[case]
    assert await invalid(servers.stub.PutToolServer(api.PutToolServerRequest(server=server), timeout=10)) == fields
    assert await servers.page() == ([], "")
