"""What is on the wire: the vendors' events in the vendors' order, each valid by the types of the vendors' SDKs."""

from typing import Any

import pytest
from anthropic.types import Message, RawMessageStreamEvent
from anthropic.types.shared import ErrorResponse
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from services.fakellm.scripts import (
    Answer,
    Api,
    Call,
    CallStyle,
    Failure,
    Fault,
    FaultKind,
    Finish,
    Refuse,
    Say,
    Think,
    Usage,
    call,
    say,
)
from tests.helpers.fakellm import FakeLlm
from tests.unit.services.fakellm.raw import body, events, post

EVENTS: dict[Api, TypeAdapter[Any]] = {
    Api.CHAT: TypeAdapter(ChatCompletionChunk),
    Api.RESPONSES: TypeAdapter(ResponseStreamEvent),
    Api.MESSAGES: TypeAdapter(RawMessageStreamEvent),
}
WHOLE: dict[Api, TypeAdapter[Any]] = {
    Api.CHAT: TypeAdapter(ChatCompletion),
    Api.RESPONSES: TypeAdapter(Response),
    Api.MESSAGES: TypeAdapter(Message),
}
EVERYTHING = (Think("hm hm", signature="s"), Think(redacted="r"), Say("one two"), Call("a", {"x": 1}), Call("b"))


async def stream(fake: FakeLlm, api: Api, answer: Answer, **fields: Any) -> list[tuple[str, Any]]:
    fake.will(answer)
    status, data = await post(fake, api, body(api, stream=True, **fields))
    assert status == 200
    return events(data)


@pytest.mark.parametrize("style", list(CallStyle))
@pytest.mark.parametrize("finish", [None, *Finish])
async def test_every_event_has_the_sdks_type(fake: FakeLlm, api: Api, style: CallStyle, finish: Finish | None) -> None:
    answer = Answer(parts=(*EVERYTHING, Refuse("no no")), calls=style, finish=finish)
    for name, data in await stream(fake, api, answer):
        if name not in ("", "ping"):
            assert data["type"] == name
        if name != "ping" and data != "[DONE]":
            EVENTS[api].validate_python(data)


@pytest.mark.parametrize("finish", [None, *Finish])
async def test_every_whole_answer_has_the_sdks_type(fake: FakeLlm, api: Api, finish: Finish | None) -> None:
    fake.will(Answer(parts=(*EVERYTHING, Refuse("no no")), finish=finish))
    status, data = await post(fake, api, body(api))
    assert status == 200
    WHOLE[api].validate_json(data)


async def test_chat_in_order(fake: FakeLlm) -> None:
    answer = Answer(parts=(Say("one two"), Call("a", {"x": 1}, "id")))
    seen = await stream(fake, Api.CHAT, answer, stream_options={"include_usage": True})
    assert seen[-1] == ("", "[DONE]")
    chunks = [data for _, data in seen[:-1]]
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert [chunk["choices"][0]["delta"] for chunk in chunks[:-1]] == [
        {"role": "assistant", "content": "", "refusal": None},
        {"content": "one "},
        {"content": "two"},
        {"tool_calls": [{"index": 0, "id": "id", "type": "function", "function": {"name": "a", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"x'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '":1}'}}]},
        {},
    ]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks[:-1]] == [None] * 6 + ["tool_calls"]
    assert [chunk["usage"] for chunk in chunks[:-1]] == [None] * 7
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == 4


async def test_chat_tells_usage_only_if_asked(fake: FakeLlm) -> None:
    seen = await stream(fake, Api.CHAT, say("hello"))
    assert all("usage" not in data for _, data in seen[:-1])


@pytest.mark.parametrize(
    ("style", "expected"),
    [
        (CallStyle.WHOLE, ["0 id1 ab {}", "1 id2 cd []"]),
        (CallStyle.INTERLEAVED, ["0 id1 ab ", "1 id2 cd ", "0   {", "1   [", "0   }", "1   ]"]),
        (CallStyle.REVERSED, ["0 id1 ab ", "1 id2 cd ", "1   [", "1   ]", "0   {", "0   }"]),
        (CallStyle.LATE_ID, ["0   {", "0 id1 ab ", "0   }", "1   [", "1 id2 cd ", "1   ]"]),
        (CallStyle.SPLIT_NAME, ["0 id1 a ", "0  b ", "0   {", "0   }", "1 id2 c ", "1  d ", "1   [", "1   ]"]),
    ],
)
async def test_chat_calls_in_odd_pieces(fake: FakeLlm, style: CallStyle, expected: list[str]) -> None:
    answer = Answer(parts=(Call("ab", "{}", "id1"), Call("cd", "[]", "id2")), calls=style)
    pieces = []
    for _, data in (await stream(fake, Api.CHAT, answer))[:-1]:
        for piece in data["choices"][0]["delta"].get("tool_calls", ()):
            function = piece["function"]
            given = (piece["index"], piece.get("id", ""), function.get("name", ""), function.get("arguments", ""))
            pieces.append("{} {} {} {}".format(*given))
    assert pieces == expected


async def test_responses_in_order(fake: FakeLlm) -> None:
    answer = Answer(parts=(Think("hm", signature="sealed"), Say("one two"), Call("a", {"x": 1}), Refuse("no")))
    names = [name.removeprefix("response.") for name, _ in await stream(fake, Api.RESPONSES, answer)]
    assert names == [
        "created",
        "in_progress",
        "output_item.added",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "refusal.delta",
        "refusal.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]


async def test_messages_in_order(fake: FakeLlm) -> None:
    seen = await stream(fake, Api.MESSAGES, Answer(parts=EVERYTHING[:4]))
    shown = [
        data["delta"]["type"] if name == "content_block_delta" else name.removeprefix("content_block_")
        for name, data in seen
    ]
    thinking = ["start", "ping", "thinking_delta", "thinking_delta", "signature_delta", "stop"]
    redacted = ["start", "stop"]
    text = ["start", "text_delta", "text_delta", "stop"]
    tool = ["start", "input_json_delta", "input_json_delta", "stop"]
    assert shown == ["message_start", *thinking, *redacted, *text, *tool, "message_delta", "message_stop"]


async def test_messages_count_the_prompt_without_the_cache(fake: FakeLlm) -> None:
    usage = Usage(input_tokens=100, cached_input_tokens=30, cache_write_tokens=20, output_tokens=7)
    answer = say("hi", usage=usage)
    seen = dict(await stream(fake, Api.MESSAGES, answer))
    start = seen["message_start"]["message"]["usage"]
    assert start["input_tokens"] == 50
    assert (start["cache_read_input_tokens"], start["cache_creation_input_tokens"]) == (30, 20)
    assert seen["message_delta"]["usage"]["output_tokens"] == 7


async def test_broken_arguments_and_no_usage_of_messages(fake: FakeLlm) -> None:
    seen = await stream(fake, Api.MESSAGES, call("a", '{"x": ', no_usage=True))
    pieces = [data["delta"]["partial_json"] for name, data in seen if name == "content_block_delta"]
    assert "".join(pieces) == '{"x": '
    assert "usage" not in seen[0][1]["message"]
    assert "usage" not in dict(seen)["message_delta"]


@pytest.mark.parametrize("kind", [FaultKind.ERROR, FaultKind.FAILED])
async def test_the_error_event(fake: FakeLlm, api: Api, kind: FaultKind) -> None:
    broken = say("one two three", fault=Fault(kind, after=2, failure=Failure(529, message="too much")))
    name, data = (await stream(fake, api, broken))[-1]
    if api is Api.CHAT:
        assert data["error"]["message"] == "too much"
    elif api is Api.MESSAGES:
        assert name == "error"
        assert ErrorResponse.model_validate(data).error.type == "overloaded_error"
    else:
        EVENTS[api].validate_python(data)
        assert name == ("error" if kind is FaultKind.ERROR else "response.failed")
        said = data if kind is FaultKind.ERROR else data["response"]["error"]
        assert (said["message"], said["code"]) == ("too much", "server_error")
