"""The readers on what compatible servers really send."""

from typing import Any

import msgspec
import pytest

from services.messages.model import Reasoning, Text, ToolCall
from services.models.anthropic_stream import AnthropicReader
from services.models.api import Finish, Finished, ModelEvent, ReasoningChunk
from services.models.errors import ModelError, ModelErrorType
from services.models.fold import TurnFold, TurnPart
from services.models.http import Reader
from services.models.openai_chat_stream import ChatReader
from services.models.openai_responses_stream import ResponsesReader
from services.models.sse import SseDecoder, SseError

NAMES = frozenset({"add", "add_all"})


def play(reader: Reader, *events: dict[str, Any]) -> tuple[tuple[TurnPart, ...], Finished]:
    fold, found = TurnFold("message-1"), list[ModelEvent]()
    for event in events:
        found += reader.read(msgspec.json.encode(event))
    found += reader.end()
    for each in found:
        fold.add(each)
    assert isinstance(found[-1], Finished)
    return fold.parts(), found[-1]


def delta(finish_reason: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish_reason}]}


def piece(name: str = "", arguments: Any = "", **fields: Any) -> dict[str, Any]:
    return delta(tool_calls=[{**fields, "function": {"name": name, "arguments": arguments}}])


ONE, TWO = ToolCall("c1", "add", '{"a":1}'), ToolCall("c2", "add_all", "{}")

ODD_SERVERS = {
    "no index": [piece("add", '{"a"', id="c1"), piece("", ":1}"), piece("add_all", "{}", id="c2")],
    "always index 0": [
        piece("add", '{"a"', index=0, id="c1"),
        piece("", ":1}", index=0),
        piece("add_all", "{}", index=0, id="c2"),
    ],
    "from 1": [piece("add", '{"a":1}', index=1, id="c1"), piece("add_all", "{}", index=2, id="c2")],
    "everything repeated": [
        piece("add", '{"a"', index=0, id="c1"),
        piece("add", ":1}", index=0, id="c1"),
        piece("add_all", "{", index=1, id="c2"),
        piece("add_all", "}", index=1, id="c2"),
    ],
    "a name that begins like another": [
        piece("add", '{"a":1}', index=0, id="c1"),
        piece("add", "", index=1, id="c2"),
        piece("_all", "{}", index=1),
    ],
    "arguments as an object": [
        piece("add", {"a": 1}, index=0, id="c1"),
        piece("add_all", {}, index=1, id="c2"),
    ],
    "no arguments": [piece("add", '{"a":1}', index=0, id="c1"), piece("add_all", None, index=1, id="c2")],
    "the last call first": [piece("add_all", "{}", index=1, id="c2"), piece("add", '{"a":1}', index=0, id="c1")],
}


@pytest.mark.parametrize("chunks", ODD_SERVERS.values(), ids=ODD_SERVERS)
@pytest.mark.parametrize("reason", ["tool_calls", "stop"])
def test_calls_of_odd_servers(chunks: list[dict[str, Any]], reason: str) -> None:
    parts, finished = play(ChatReader(NAMES), *chunks, delta(reason))
    assert parts == (ONE, TWO)
    assert finished.finish is Finish.TOOL_CALLS


def test_a_tool_that_does_not_exist_and_a_call_without_an_id_get_through() -> None:
    parts, _ = play(ChatReader(NAMES), piece("in", "", index=0, id="c1"), piece("vented", "{}", index=0), delta("stop"))
    assert parts == (ToolCall("c1", "invented", "{}"),)
    parts, _ = play(ChatReader(NAMES), piece("add", "{}", index=0), delta("stop"))
    assert parts == (ToolCall("call_1_0", "add", "{}"),)


def test_calls_that_wait_for_the_end_keep_their_order() -> None:
    late = [piece("add_all", "{}", index=2), piece("add", '{"a":1}', index=1)]
    parts, _ = play(ChatReader(NAMES), *late, delta("tool_calls"))
    assert parts == (ToolCall("call_1_0", "add", '{"a":1}'), ToolCall("call_1_1", "add_all", "{}"))


def test_reasoning_by_either_name_and_usage_in_any_chunk() -> None:
    usage = {"usage": {"prompt_tokens": 3, "completion_tokens": 2}}
    parts, finished = play(
        ChatReader(NAMES), delta(reasoning="hm"), {**delta(content="yes"), **usage}, {**delta("stop"), "error": None}
    )
    assert parts == (Reasoning("hm", signature="chat:reasoning"), Text("yes"))
    assert finished.usage is not None
    assert (finished.usage.input_tokens, finished.usage.output_tokens) == (3, 2)


@pytest.mark.parametrize("reader", [ChatReader(NAMES), ResponsesReader(), AnthropicReader()])
def test_a_stream_that_just_ends_is_an_error(reader: Reader) -> None:
    with pytest.raises(ModelError, match="broke off"):
        reader.end()


def test_an_error_in_a_chunk() -> None:
    said = {"error": {"code": 502, "message": "Upstream is down"}, "choices": []}
    with pytest.raises(ModelError) as caught:
        ChatReader(NAMES).read(msgspec.json.encode(said))
    assert (caught.value.kind, caught.value.detail) == (ModelErrorType.ERROR, "502: Upstream is down")


def call_item(**fields: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": "c1", "name": "add", "arguments": "", **fields}


DONE = {"type": "response.completed", "response": {}}
ITEM_DONE = {"type": "response.output_item.done", "output_index": 4, "item": call_item(arguments='{"a":1}')}
ARGUMENTS = {"type": "response.function_call_arguments.delta", "output_index": 4}


@pytest.mark.parametrize(
    "events",
    [
        [ITEM_DONE],
        [{"type": "response.output_item.added", "output_index": 4, "item": call_item()}, ITEM_DONE],
        [{**ARGUMENTS, "delta": '{"a"'}, {**ARGUMENTS, "delta": ":1}"}, ITEM_DONE],
        [{"type": "response.function_call_arguments.done", "output_index": 4, "arguments": '{"a":1}'}, ITEM_DONE],
    ],
    ids=["whole", "no deltas", "arguments first", "all arguments first"],
)
def test_responses_in_other_orders(events: list[dict[str, Any]]) -> None:
    parts, finished = play(ResponsesReader(), *events, DONE)
    assert parts == (ONE,)
    assert finished.finish is Finish.TOOL_CALLS


def test_responses_events_that_are_not_known_are_passed_over() -> None:
    text = {"type": "response.output_text.delta", "delta": "hi"}
    parts, _ = play(ResponsesReader(), {"type": "response.new", "delta": {"x": 1}, "item": 7}, text, DONE)
    assert parts == (Text("hi"),)
    with pytest.raises(msgspec.ValidationError):
        ResponsesReader().read(b'{"type": "response.output_text.delta", "delta": 7}')


def test_paragraphs_of_a_summary_are_kept_apart() -> None:
    thought = {"type": "response.reasoning_summary_text.delta", "delta": "a"}
    paragraph = {"type": "response.reasoning_summary_part.added", "summary_index": 1}
    parts, _ = play(ResponsesReader(), thought, paragraph, thought, DONE)
    assert parts == (Reasoning("a\n\na"),)


def test_anthropic_blocks_that_come_whole() -> None:
    def start(index: int, **block: Any) -> dict[str, Any]:
        return {"type": "content_block_start", "index": index, "content_block": block}

    end = {"type": "message_delta", "delta": {"stop_reason": "tool_use"}}
    parts, _ = play(
        AnthropicReader(),
        start(0, type="thinking", thinking="hm", signature="s1"),
        {"type": "content_block_stop", "index": 0},
        start(1, type="thinking", thinking="", signature="s2"),
        {"type": "content_block_stop", "index": 1},
        start(2, type="text", text="so"),
        start(3, type="tool_use", id="c1", name="add", input={"a": 1}),
        {"type": "something_new", "index": 4},
        end,
    )
    assert parts == (Reasoning("hm", "s1"), Reasoning("", "s2"), Text("so"), ONE)


def test_sealed_reasoning_is_not_mixed_with_what_follows() -> None:
    fold = TurnFold("message-1")
    for chunk in (
        ReasoningChunk("a"),
        ReasoningChunk(signature="s"),
        ReasoningChunk(redacted="r"),
        ReasoningChunk("b"),
    ):
        fold.add(chunk)
    assert fold.parts() == (Reasoning("a", "s"), Reasoning(redacted="r"), Reasoning("b"))


def test_events_of_several_lines_comments_and_a_cut_tail() -> None:
    decoder = SseDecoder()
    assert decoder.feed(b": hello\n\nid: 1\nevent: x\ndata: {\ndata:}\n\ndata: un") == [b"{\n}"]
    assert decoder.feed(b"finished") == []
    assert decoder.feed(b"!\r\n\r\n") == [b"unfinished!"]


@pytest.mark.parametrize("chunk", [b"x" * 10, b"data: xxx\n"])
def test_an_endless_event_is_refused(chunk: bytes) -> None:
    decoder = SseDecoder(most_bytes=100)
    for _ in range(10):
        decoder.feed(chunk)
    with pytest.raises(SseError):
        decoder.feed(chunk)


def test_many_events_are_not_a_large_one() -> None:
    decoder = SseDecoder(most_bytes=100)
    for _ in range(100):
        assert decoder.feed(b": ping\n\ndata: xxx\n\n") == [b"xxx"]
