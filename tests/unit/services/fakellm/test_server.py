"""The server around the scripts: records, other paths, HTTP, requests that the vendors refuse."""

import asyncio
import json
from typing import Any

import pytest

from services.fakellm.record import Ended
from services.fakellm.scripts import Api, say
from tests.helpers import eventually
from tests.helpers.fakellm import FakeLlm, anthropic_client, fake_llm, openai_client
from tests.unit.services.fakellm.clients import Ask
from tests.unit.services.fakellm.raw import body, encoded, exchange, post


def request(method: str, path: str, *headers: str) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "host: fake", "connection: close", *headers, "", ""]).encode()


async def test_a_request_is_written_down(fake: FakeLlm, api: Api, ask: Ask) -> None:
    await ask("remember me", stream=True, model="some-model")
    [seen] = fake.requests
    assert (seen.number, seen.api, seen.status, seen.ended) == (1, api, 200, Ended.COMPLETED)
    assert seen.body["model"] == "some-model"
    assert "1234" in seen.headers["authorization"]
    assert seen.ended_at is not None
    assert seen.received_at <= seen.ended_at
    assert seen.tokens_sent == 4
    assert seen.bytes_sent > 0


async def test_a_client_that_hangs_up_is_seen_at_once(fake: FakeLlm) -> None:
    fake.will(say(tokens=1000, token_delay=0.02))
    async with openai_client(fake) as client:
        messages: Any = [{"role": "user", "content": "hi"}]
        stream = await client.chat.completions.create(model="m", messages=messages, stream=True)
        await anext(stream.__aiter__())
        [seen] = await fake.wait_for_requests(1)
        assert seen.ended is None
        await stream.close()
        assert await seen.wait_end(1.0) is Ended.CLIENT_CLOSED
    assert seen.bytes_sent > 0
    assert seen.tokens_sent < 1000


async def test_waiting_for_requests(fake: FakeLlm, ask: Ask) -> None:
    waiting = asyncio.ensure_future(fake.wait_for_requests(2))
    await ask("one", stream=False)
    await asyncio.sleep(0)
    assert not waiting.done()
    await ask("two", stream=False)
    assert len(await waiting) == 2


async def test_only_the_last_requests_are_kept(api: Api) -> None:
    async with fake_llm(keep=2) as fake:
        for _ in range(3):
            await post(fake, api, body(api))
        assert [seen.number for seen in fake.requests] == [2, 3]


async def test_the_records_over_http_show_no_keys(fake: FakeLlm, ask: Ask) -> None:
    await ask("remember me", stream=False)
    answer = await exchange(fake, request("GET", "/requests"))
    [shown] = json.loads(answer.partition(b"\r\n\r\n")[2])
    assert shown["headers"]["authorization"] == "...1234"
    assert (shown["status"], shown["ended"]) == (200, "completed")
    assert "remember me" in json.dumps(shown["body"])
    await exchange(fake, request("DELETE", "/requests"))
    assert fake.requests == []


async def test_the_models_of_both_vendors(fake: FakeLlm) -> None:
    async with openai_client(fake) as openai, anthropic_client(fake) as anthropic:
        listed = [model.id async for model in openai.models.list()]
        assert listed == [model.id async for model in anthropic.models.list()]
    assert "gpt-4o-mini" in listed


async def test_another_path(fake: FakeLlm) -> None:
    answer = await exchange(fake, request("GET", "/v1/poems"))
    assert answer.startswith(b"HTTP/1.1 404")
    assert b"/v1/messages" in answer


async def test_a_stop_ends_what_is_open(api: Api) -> None:
    async with fake_llm() as fake:
        fake.will(say(tokens=1000, token_delay=0.05))
        asking = asyncio.ensure_future(post(fake, api, body(api, stream=True)))
        [seen] = await fake.wait_for_requests(1)
        await eventually(lambda: seen.tokens_sent)
    assert seen.ended is Ended.STOPPED
    await asyncio.wait([asking])


async def test_requests_one_after_the_other_in_any_pieces(fake: FakeLlm, api: Api) -> None:
    host, _, port = fake.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    data = encoded(api, body(api, "first")) + encoded(api, body(api, "second"), "connection: close")
    for start in range(0, len(data), 50):
        writer.write(data[start : start + 50])
        await asyncio.sleep(0)
    answers = await reader.read()
    assert answers.index(b"You said: first") < answers.index(b"You said: second")
    writer.close()
    await writer.wait_closed()


async def test_a_client_that_asks_before_it_sends(fake: FakeLlm) -> None:
    host, _, port = fake.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head, _, rest = encoded(Api.CHAT, body(Api.CHAT), "expect: 100-continue", "connection: close").partition(
        b"\r\n\r\n"
    )
    writer.write(head + b"\r\n\r\n")
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(rest)
    assert (await reader.read()).startswith(b"HTTP/1.1 200")
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"hello\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\ncontent-length: -1\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n", 411),
        (b"x" * 70_000, 431),
    ],
)
async def test_what_is_not_http(fake: FakeLlm, sent: bytes, status: int) -> None:
    assert (await exchange(fake, sent)).startswith(f"HTTP/1.1 {status} ".encode())


CALL: dict[Api, Any] = {
    Api.CHAT: {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "a", "arguments": "{}"}}],
    },
    Api.RESPONSES: {"type": "function_call", "call_id": "c1", "name": "a", "arguments": "{}"},
    Api.MESSAGES: {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "a", "input": {}}]},
}
RETURN: dict[Api, Any] = {
    Api.CHAT: {"role": "tool", "tool_call_id": "c1", "content": "ok"},
    Api.RESPONSES: {"type": "function_call_output", "call_id": "c1", "output": "ok"},
    Api.MESSAGES: {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "ok"}]},
}


def history(api: Api, *middle: Any) -> dict[str, Any]:
    given = body(api)
    key = "input" if api is Api.RESPONSES else "messages"
    return {**given, key: [*given[key], *middle]}


async def test_a_call_with_its_return_is_taken(fake: FakeLlm, api: Api) -> None:
    assert (await post(fake, api, history(api, CALL[api], RETURN[api])))[0] == 200


async def test_a_call_that_is_split_from_its_return_is_refused(fake: FakeLlm, api: Api) -> None:
    user = {"role": "user", "content": "and?"}
    for middle in ([CALL[api]], [CALL[api], user], [RETURN[api]], [CALL[api], user, RETURN[api]]):
        status, answer = await post(fake, api, history(api, *middle))
        assert status == 400, middle
        assert "c1" in json.loads(answer)["error"]["message"]


async def test_a_body_that_is_not_understood_is_refused(fake: FakeLlm, api: Api) -> None:
    status, answer = await post(fake, api, {"messages": []})
    assert status == 400
    assert json.loads(answer)["error"]["type"] == "invalid_request_error"


async def test_sampling_parameters_depend_on_anthropics_version(fake: FakeLlm) -> None:
    given = body(Api.MESSAGES, temperature=1.0)
    status, answer = await post(fake, Api.MESSAGES, given, "anthropic-version: 2026-10-21")
    assert (status, b"temperature" in answer) == (400, True)
    assert (await post(fake, Api.MESSAGES, given, "anthropic-version: 2023-06-01"))[0] == 200
