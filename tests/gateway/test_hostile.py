"""Requests that are wrong, or meant to hurt: always a 4xx in JSON, never a 500 (WIRE 4)."""

import asyncio
import json
from typing import Any

import pytest

from common.ids import Prefix, new_id
from gateway.endpoints import ENDPOINTS, LATER
from tests.gateway.client import Gateway
from tests.gateway.conftest import MakeGateway

AGENT = new_id(Prefix.AGENT)
SEND = f"/v1/agents/{AGENT}/messages"
HI = {"messages": [{"role": "user", "content": "hi"}]}


async def test_both_spellings_of_a_slash_and_the_alias_are_answered_directly(gateway: Gateway) -> None:
    for path in ("/v1/health", "/v1/health/", "/latest/health", "/v1/runs", "/v1/runs/", "/latest/runs/"):
        answer = await gateway.http.get(path, follow_redirects=False)
        assert answer.status_code == 200, path
    assert (await gateway.get("/v1/health")).keys() == {"version", "status"}


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/nothing", "/v1/health/x", "/v2/agents", "/v1/runs//steps"])
async def test_an_unknown_path_is_a_json_404(gateway: Gateway, path: str) -> None:
    assert "detail" in await gateway.call("GET", path, expect=404)


async def test_a_wrong_method_is_a_json_405_that_says_what_is_allowed(gateway: Gateway) -> None:
    answer = await gateway.http.delete("/v1/health")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET")
    assert "GET" in answer.json()["detail"]


async def test_what_is_not_served_is_a_json_501_at_any_depth(gateway: Gateway) -> None:
    for path in LATER:
        real = path.replace("{agent_id}", AGENT).replace("{", "").replace("}", "")
        for below in ("", "/", "/x/y"):
            answer = await gateway.http.post(real + below, json={})
            assert answer.status_code == 501, path
            assert answer.headers["x-should-retry"] == "false"
            assert "detail" in answer.json()


BODIES: dict[str, tuple[Any, str]] = {
    "nothing said": ({}, "messages or input"),
    "said twice": ({**HI, "input": "hi"}, "messages or input"),
    "empty list": ({"messages": []}, "must not be empty"),
    "not a list": ({"messages": "hi"}, "'messages'"),
    "not a message": ({"messages": [7]}, "'messages', 0"),
    "no role": ({"messages": [{"content": "hi"}]}, "'messages', 0, 'role'"),
    "odd role": ({"messages": [{"role": "tool", "content": "hi"}]}, "'messages', 0, 'role'"),
    "assistant role": ({"messages": [{"role": "assistant", "content": "hi"}]}, "'messages', 0, 'role'"),
    "no content": ({"messages": [{"role": "user"}]}, "'messages', 0, 'content'"),
    "no parts": ({"messages": [{"role": "user", "content": []}]}, "'messages', 0, 'content'"),
    "odd part": ({"messages": [{"role": "user", "content": [{"type": "smell"}]}]}, "'content', 0, 'type'"),
    "not base64": (
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "?"}}
                    ],
                }
            ]
        },
        "'source', 'data'",
    ),
    "too few steps": ({**HI, "max_steps": 0}, "'max_steps'"),
    "steps as text": ({**HI, "max_steps": "many"}, "'max_steps'"),
    "tokens without a stream": ({**HI, "stream_tokens": True}, "'stream_tokens'"),
    "background without a stream": ({**HI, "background": True}, "'background'"),
    "pings without a stream": ({**HI, "include_pings": False}, "'include_pings'"),
    "no id of a call": ({"messages": [{"type": "approval", "approvals": [{"approve": True}]}]}, "'tool_call_id'"),
    "no verdict": (
        {"messages": [{"type": "approval", "approvals": [{"type": "approval", "tool_call_id": "a"}]}]},
        "'approve'",
    ),
    "no return": (
        {"messages": [{"type": "approval", "approvals": [{"type": "tool", "tool_call_id": "a"}]}]},
        "'tool_return'",
    ),
    "no status": (
        {"messages": [{"type": "approval", "approvals": [{"type": "tool", "tool_call_id": "a", "tool_return": "x"}]}]},
        "'status'",
    ),
    "nameless tool": ({**HI, "client_tools": [{"description": "x"}]}, "'client_tools', 0, 'name'"),
}


@pytest.mark.parametrize("name", BODIES)
async def test_a_wrong_body_is_a_422_that_names_the_place(gateway: Gateway, name: str) -> None:
    body, place = BODIES[name]
    found = await gateway.call("POST", SEND, body, expect=422)
    assert isinstance(found["detail"], str)
    assert place in found["detail"]
    assert found["trace_id"] == ""


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"{", 422),
        (b"nonsense", 422),
        (b'{"input": "\xff\xfe"}', 422),
        (b'{"input": "\\ud800"}', 422),
        (b"[" * 100_000, 422),
        (b'{"input": ' + b'{"a":' * 50_000, 422),
        (b'"text"', 422),
        (b"null", 422),
        (b'{"max_steps": 1' + b"0" * 400 + b"}", 422),
        (b'{"input": "hi", "max_steps": 1e400}', 422),
        (b"\x00", 422),
    ],
)
async def test_what_is_no_json_is_a_422(gateway: Gateway, raw: bytes, status: int) -> None:
    answer = await gateway.http.post(SEND, content=raw, headers={"content-type": "application/json"})
    assert answer.status_code == status, answer.text
    assert "detail" in answer.json()


async def test_deep_and_odd_schemas_are_refused(gateway: Gateway) -> None:
    agent = await gateway.world.make_agent()
    deep: Any = {}
    for _ in range(200):
        deep = {"a": deep}
    path = f"/v1/agents/{agent.id}/messages"
    answer = await gateway.http.post(path, json={**HI, "client_tools": [{"name": "x", "parameters": deep}]})
    assert 400 <= answer.status_code < 500, answer.text


async def test_unknown_fields_are_ignored_and_a_wrong_type_is_refused(gateway: Gateway) -> None:
    agent = await gateway.world.make_agent()
    path = f"/v1/agents/{agent.id}/messages"
    await gateway.call("POST", path, {**HI, "enable_thinking": "yes", "new_thing": {"x": [1]}})
    for media in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        answer = await gateway.http.post(path, content=b"{}", headers={"content-type": media})
        assert answer.status_code == 415
    answer = await gateway.http.post(path, content=json.dumps(HI), headers={"content-type": "application/vnd.x+json"})
    assert answer.status_code == 200


async def test_a_body_over_the_limit_is_a_413(make_gateway: MakeGateway) -> None:
    gateway = await make_gateway(settings={"BRIDLE_MAX_BODY_BYTES": "64KiB"})
    agent = await gateway.world.make_agent()
    path = f"/v1/agents/{agent.id}/messages"
    await gateway.call("POST", path, {"input": "x" * 70_000}, expect=413)

    async def pieces() -> Any:
        for _ in range(100):
            yield b" " * 1000

    answer = await gateway.http.post(path, content=pieces(), headers={"content-type": "application/json"})
    assert answer.status_code == 413
    await gateway.say(agent, "still there?")


async def test_ids_of_a_wrong_form_are_named(gateway: Gateway) -> None:
    found = await gateway.get("/v1/agents/odd/messages", expect=422)
    assert "String should match pattern 'agent-{uuid4}'" in found["detail"]
    assert found["examples"]
    assert "not found" in (await gateway.get(f"/v1/agents/{AGENT}/messages", expect=404))["detail"]
    assert (await gateway.get("/v1/runs/odd", expect=400))["fields"][0]["field"] == "run_id"
    missing = await gateway.get(f"/v1/runs/{new_id(Prefix.RUN)}", expect=404)
    assert missing["reason"] == "RESOURCE_NOT_FOUND"
    assert missing["metadata"]["resource"] == "run"


async def test_wrong_queries_are_named(gateway: Gateway) -> None:
    for query, place in (
        ({"limit": 0}, "limit"),
        ({"limit": "x"}, "limit"),
        ({"limit": 100_000}, "limit"),
        ({"order": "up"}, "order"),
        ({"active": "maybe"}, "active"),
    ):
        found = await gateway.get("/v1/runs/", expect=422, **query)
        assert f"('query', '{place}')" in found["detail"]
    await gateway.call("GET", "/v1/runs/?limit=%ff&agent_id=%00", expect=422)
    await gateway.call("GET", "/v1/runs/?agent_id=%00", expect=400)


async def test_texts_that_the_store_cannot_hold_are_a_400(gateway: Gateway) -> None:
    agent = await gateway.world.make_agent()
    found = await gateway.say(agent, "a\0b", expect=400)
    assert found["fields"][0]["field"] == "messages[0].parts[0].text"


async def test_headers_are_bounded_and_checked(gateway: Gateway) -> None:
    answer = await gateway.http.get("/v1/health", headers={"x-request-id": "mine"})
    assert answer.headers["x-request-id"] == "mine"
    odd = await gateway.http.get("/v1/health", headers={"x-request-id": "with space"})
    assert odd.headers["x-request-id"] != "with space"
    assert (await gateway.http.get("/v1/runs/", headers={"user_id": "me"})).status_code == 400
    unreadable = {b"authorization": b"Bearer \xff"}
    assert (await gateway.http.get("/v1/runs/", headers=unreadable)).status_code == 401
    host, _, port = gateway.world.http_address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET /v1/health HTTP/1.1\r\nhost: x\r\nx-long: " + b"x" * 1_000_000 + b"\r\n\r\n")
    head = await reader.readline()
    assert b" 4" in head
    writer.close()


async def test_every_endpoint_survives_an_empty_and_a_senseless_request(gateway: Gateway) -> None:
    for endpoint in ENDPOINTS:
        path = endpoint.path.replace("{agent_id}", AGENT)
        for name, value in (("run_id", new_id(Prefix.RUN)), ("message_id", "odd"), ("conversation_id", "odd")):
            path = path.replace(f"{{{name}}}", value)
        for content in (b"", b"{}", b'{"query": 7, "messages": [[]]}'):
            answer = await gateway.http.request(
                endpoint.method, path, content=content, headers={"content-type": "application/json"}
            )
            assert answer.status_code < 500, (endpoint.method, path, answer.text)


@pytest.mark.parametrize("number", [2**31, -(2**31) - 1, 2**63, 2**64, -(2**63) - 1, 10**40])
async def test_numbers_that_no_field_can_hold_are_a_422(gateway: Gateway, number: int) -> None:
    for body in (
        {"max_reasoning_tokens": number},
        {"max_tokens": number},
        {"context_window_limit": number},
        {"model_settings": {"max_output_tokens": number}},
        {"model_settings": {"thinking": {"budget_tokens": number}}},
        {"llm_config": {"model": "echo", "max_tokens": number}},
    ):
        await gateway.call("POST", "/v1/agents", {"model": "demo/echo", **body}, expect=422)
    if abs(number) > 2**62:
        path = f"/v1/runs/{new_id(Prefix.RUN)}/stream"
        await gateway.call("POST", path, {"starting_after": number}, expect=422)
