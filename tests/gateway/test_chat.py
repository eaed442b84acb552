"""Chat completions through the real `openai` SDK, with an agent as the model."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionChunk

from common.ids import Prefix, new_id
from common.pb.bridle.v1 import message_pb2
from services.models.api import Finish, Finished, TextChunk
from services.models.errors import ModelErrorType
from tests.gateway.client import Gateway
from tests.gateway.conftest import MakeGateway
from tests.helpers.inprocess import AgentClient, Run
from tests.helpers.models import USAGE, Gate, ProbeTool, call, calls, fail, say
from tests.helpers.wait import eventually

PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tells the weather.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


@pytest.fixture
async def client(gateway: Gateway) -> AsyncIterator[openai.AsyncOpenAI]:
    base_url = f"http://{gateway.world.http_address}/v1"
    async with openai.AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0) as made:
        yield made


@pytest.fixture
async def agent(gateway: Gateway) -> AgentClient:
    return await gateway.world.make_agent()


def user(text: Any) -> Any:
    return {"role": "user", "content": text}


def result(call_id: str, text: str) -> Any:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


async def said_to(agent: AgentClient) -> list[str]:
    return [each.parts[0].text.text for each in await agent.log() if each.role == message_pb2.Message.ROLE_USER]


async def chunks(client: openai.AsyncOpenAI, agent: AgentClient, *messages: Any, **more: Any) -> list[Any]:
    stream: Any = await client.chat.completions.create(model=agent.id, messages=messages, stream=True, **more)
    found = [chunk async for chunk in stream]
    assert all(isinstance(chunk, ChatCompletionChunk) for chunk in found)
    return found


def text_of(found: list[Any]) -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in found if chunk.choices)


async def test_a_whole_answer(client: openai.AsyncOpenAI, agent: AgentClient) -> None:
    agent.model.will(say("Good ", "day"))
    answer = await client.chat.completions.create(model=agent.id, messages=[user("hi")])
    assert (answer.object, answer.model, answer.id[:9]) == ("chat.completion", agent.id, "chatcmpl-")
    (choice,) = answer.choices
    assert (choice.message.role, choice.message.content, choice.finish_reason) == ("assistant", "Good day", "stop")
    assert choice.message.tool_calls is None
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (10, 5, 15)
    assert answer.created > 1_700_000_000
    (run,) = [await agent.world.run(f"run-{answer.id.removeprefix('chatcmpl-')}")]
    assert run.metadata["run_type"] == "openai_chat_completions"


async def test_a_streamed_answer(client: openai.AsyncOpenAI, agent: AgentClient) -> None:
    agent.model.will(say("Good ", "day"))
    found = await chunks(client, agent, user("hi"))
    assert found[0].choices[0].delta.role == "assistant"
    assert [each.choices[0].delta.content for each in found[1:-1]] == ["Good ", "day"]
    assert [each.choices[0].finish_reason for each in found] == [None] * 3 + ["stop"]
    assert len({(each.id, each.created, each.model) for each in found}) == 1
    assert all(each.usage is None for each in found)


async def test_a_streamed_answer_with_usage(client: openai.AsyncOpenAI, agent: AgentClient) -> None:
    found = await chunks(client, agent, user("hi"), stream_options={"include_usage": True})
    assert found[-2].choices[0].finish_reason == "stop"
    assert found[-1].choices == []
    assert found[-1].usage.total_tokens == 15
    assert all(each.usage is None for each in found[:-1])


async def test_a_stream_ends_with_the_marker(gateway: Gateway, agent: AgentClient) -> None:
    body = {"model": agent.id, "messages": [user("hi")], "stream": True}
    answer = await gateway.http.post("/v1/chat/completions", json=body)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.text.endswith("data: [DONE]\n\n")


async def test_only_what_is_new_is_said(client: openai.AsyncOpenAI, agent: AgentClient) -> None:
    history: list[Any] = [
        {"role": "system", "content": "You are a pirate."},
        user("old"),
        {"role": "assistant", "content": "older answer"},
        {"role": "developer", "content": "Be brief."},
        user("new"),
        user([{"type": "text", "text": "newer"}]),
    ]
    await client.chat.completions.create(model=agent.id, messages=history)
    assert await said_to(agent) == ["new", "newer"]


async def test_texts_around_a_tool_are_one_answer(client: openai.AsyncOpenAI, gateway: Gateway) -> None:
    agent = await gateway.world.make_agent(["dice"])
    for stream in (False, True):
        agent.model.will(call("dice", before=(TextChunk("I roll."),)), say("A ", "six."))
        if stream:
            assert text_of(await chunks(client, agent, user("roll"))) == "I roll.\n\nA six."
        else:
            answer = await client.chat.completions.create(model=agent.id, messages=[user("roll")])
            assert answer.choices[0].message.content == "I roll.\n\nA six."
            assert answer.usage is not None
            assert answer.usage.total_tokens == 30


async def test_images_are_passed_on(client: openai.AsyncOpenAI, agent: AgentClient) -> None:
    parts = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}", "detail": "low"}},
        {"type": "image_url", "image_url": {"url": "https://example.com/cat.png"}},
    ]
    await client.chat.completions.create(model=agent.id, messages=[user(parts)])
    stored = (await agent.log())[0].parts
    assert stored[1].image.data == base64.b64decode(PIXEL)
    assert (stored[1].image.media_type, stored[1].image.detail) == ("image/png", "low")
    assert stored[2].image.url == "https://example.com/cat.png"


async def test_a_tool_of_the_client(client: openai.AsyncOpenAI, agent: AgentClient) -> None:
    agent.model.will(call("weather", "call_1", city="Oslo"), say("It snows."))
    first = await client.chat.completions.create(model=agent.id, messages=[user("weather?")], tools=[WEATHER])
    (choice,) = first.choices
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
    assert choice.message.tool_calls is not None
    (asked,) = choice.message.tool_calls
    assert asked.type == "function"
    assert (asked.id, asked.function.name, json.loads(asked.function.arguments)) == (
        "call_1",
        "weather",
        {"city": "Oslo"},
    )
    messages: list[Any] = [user("weather?"), choice.message.model_dump(), result("call_1", "snow")]
    second = await client.chat.completions.create(model=agent.id, messages=messages, tools=[WEATHER])
    assert (second.choices[0].message.content, second.choices[0].finish_reason) == ("It snows.", "stop")
    assert second.id == first.id
    assert second.usage is not None
    # Only what was spent since the answer.
    assert second.usage.total_tokens == 15
    assert await said_to(agent) == ["weather?"]


async def test_a_tool_of_the_client_in_a_stream(client: openai.AsyncOpenAI, agent: AgentClient) -> None:
    agent.model.will(
        calls(("weather", "call_1", {"city": "Oslo"}), ("weather", "call_2", {"city": "Rome"})), say("Snow, and sun.")
    )
    found = await chunks(client, agent, user("weather?"), tools=[WEATHER])
    asked = [each for chunk in found for each in chunk.choices[0].delta.tool_calls or ()]
    assert [(each.index, each.id, each.function.name) for each in asked] == [
        (0, "call_1", "weather"),
        (1, "call_2", "weather"),
    ]
    assert json.loads(asked[1].function.arguments) == {"city": "Rome"}
    assert found[-1].choices[0].finish_reason == "tool_calls"
    turn: Any = {"role": "assistant", "content": None, "tool_calls": []}
    answers = [result("call_1", "snow"), result("call_2", "sun"), user("and be brief")]
    rest = await chunks(client, agent, user("weather?"), turn, *answers, tools=[WEATHER])
    assert text_of(rest) == "Snow, and sun."
    assert await said_to(agent) == ["weather?", "and be brief"]


async def test_a_call_that_waits_for_a_person_can_be_answered_too(
    client: openai.AsyncOpenAI, gateway: Gateway, secret: ProbeTool
) -> None:
    agent = await gateway.world.make_agent(["secret"], approval=["secret"])
    agent.model.will(call("secret", "call_1"), say("done"))
    first = await client.chat.completions.create(model=agent.id, messages=[user("go")])
    assert first.choices[0].finish_reason == "tool_calls"
    with pytest.raises(openai.ConflictError) as caught:
        await client.chat.completions.create(model=agent.id, messages=[user("hello?")])
    assert caught.value.code == "PENDING_APPROVAL"
    answer = await client.chat.completions.create(model=agent.id, messages=[user("go"), result("call_1", "no")])
    assert answer.choices[0].message.content == "done"
    assert secret.started == []


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_was_cut(client: openai.AsyncOpenAI, agent: AgentClient, stream: bool) -> None:
    agent.model.will((TextChunk("Once upon"), Finished(Finish.LENGTH, USAGE)))
    if stream:
        found = await chunks(client, agent, user("tell"))
        assert (text_of(found), found[-1].choices[0].finish_reason) == ("Once upon", "length")
    else:
        answer = await client.chat.completions.create(model=agent.id, messages=[user("tell")])
        assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("Once upon", "length")


async def test_a_model_that_fails(client: openai.AsyncOpenAI, agent: AgentClient) -> None:
    agent.model.will(fail(ModelErrorType.RATE_LIMIT, message="slow down"), fail(ModelErrorType.RATE_LIMIT))
    with pytest.raises(openai.RateLimitError, match="slow down") as caught:
        await client.chat.completions.create(model=agent.id, messages=[user("hi")])
    assert (caught.value.code, caught.value.type) == ("llm_rate_limit", "rate_limit_error")
    assert caught.value.response.headers["x-should-retry"] == "false"
    with pytest.raises(openai.APIError, match="made to fail") as failed:
        await chunks(client, agent, user("hi"))
    assert failed.value.code == "llm_rate_limit"


async def test_a_client_that_hangs_up_stops_nothing(gateway: Gateway, agent: AgentClient) -> None:
    for stream in (False, True):
        gate = Gate()
        agent.model.will(say("one ", gate, "two"))
        body = {"model": agent.id, "messages": [user("hi")], "stream": stream}
        asking = asyncio.ensure_future(gateway.http.post("/v1/chat/completions", json=body))
        await gate.reached()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        gate.open()

        async def newest() -> Run:
            return await gateway.world.run((await agent.log())[-1].run_id)

        await eventually(newest, until=lambda run: run.state == Run.STATE_COMPLETED)
        assert (await agent.log())[-1].parts[0].text.text == "one two"


BAD: dict[str, tuple[Any, str]] = {
    "no model": ({"messages": [user("hi")]}, "model"),
    "no messages": ({"model": "m"}, "messages"),
    "an odd role": ({"model": "m", "messages": [{"role": "cat"}]}, "messages[0].role"),
    "nothing new": ({"messages": [user("hi"), {"role": "assistant", "content": "ho"}]}, "messages"),
    "no content": ({"messages": [{"role": "user"}]}, "messages[0].content"),
    "empty content": ({"messages": [user([])]}, "messages[0].content"),
    "a part of another kind": ({"messages": [user([{"type": "input_audio"}])]}, "messages[0].content[0].type"),
    "a part without its text": ({"messages": [user([{"type": "text"}])]}, "messages[0].content[0].text"),
    "an answer to no call": ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
    "a tool of another kind": ({"messages": [user("hi")], "tools": [{"type": "custom"}]}, "tools[0].type"),
    "a tool without a function": ({"messages": [user("hi")], "tools": [{"type": "function"}]}, "tools[0].function"),
}


@pytest.mark.parametrize("name", BAD)
async def test_a_wrong_request_is_a_400_that_names_the_place(gateway: Gateway, agent: AgentClient, name: str) -> None:
    body, param = BAD[name]
    if name != "no model":
        body = {**body, "model": agent.id}
    found = await gateway.call("POST", "/v1/chat/completions", body, expect=400)
    assert found["error"]["param"] == param
    assert found["error"]["type"] == "invalid_request_error"


async def test_refusals_have_the_status_and_the_shape_that_the_sdk_knows(
    client: openai.AsyncOpenAI, agent: AgentClient
) -> None:
    for model in ("gpt-4o", new_id(Prefix.AGENT)):
        with pytest.raises(openai.NotFoundError) as missing:
            await client.chat.completions.create(model=model, messages=[user("hi")])
        assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as refused:
        await client.chat.completions.create(model=agent.id, messages=[result("call_9", "x")])
    assert refused.value.code == "NO_PENDING_APPROVAL"
    with pytest.raises(openai.BadRequestError) as unstorable:
        await client.chat.completions.create(model=agent.id, messages=[user("a\0b")])
    assert unstorable.value.param == "messages[0].parts[0].text"


async def test_what_is_refused_before_the_body_is_read_has_the_same_shape(make_gateway: MakeGateway) -> None:
    gateway = await make_gateway(settings={"BRIDLE_MAX_BODY_BYTES": "64KiB"})
    unreadable = {b"authorization": b"Bearer \xff", b"content-type": b"application/json"}
    body = {"model": new_id(Prefix.AGENT), "messages": [user("hi")]}
    answer = await gateway.http.post("/v1/chat/completions", json=body, headers=unreadable)
    assert (answer.status_code, answer.json()["error"]["type"]) == (401, "authentication_error")
    found = await gateway.call("POST", "/v1/chat/completions", {"model": "x" * 70_000}, expect=413)
    assert found["error"]["type"] == "invalid_request_error"


async def test_what_an_agent_has_no_use_for_is_ignored(client: openai.AsyncOpenAI, agent: AgentClient) -> None:
    answer = await client.chat.completions.create(
        model=agent.id,
        messages=[user("hi")],
        temperature=0.1,
        n=1,
        max_completion_tokens=10,
        response_format={"type": "text"},
        extra_body={"something": {"new": True}},
    )
    assert answer.choices[0].finish_reason == "stop"
