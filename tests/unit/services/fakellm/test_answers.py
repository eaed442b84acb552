"""One scenario, three APIs, streamed and not: the vendors' own clients understand the same."""

import json

import pytest

from services.fakellm.scripts import Answer, Api, Call, CallStyle, Finish, Refuse, Say, Script, Think, Usage, call, say
from tests.helpers.fakellm import FakeLlm
from tests.unit.services.fakellm.clients import Ask, Turn

USAGE = Usage(input_tokens=100, output_tokens=50, cached_input_tokens=30, cache_write_tokens=20, reasoning_tokens=10)
streamed = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])


def arguments(turn: Turn) -> list[tuple[str, object]]:
    """Names and arguments of the calls, whether they came as text or as an object."""
    return [(name, json.loads(given) if isinstance(given, str) else given) for _, name, given in turn.calls]


@streamed
@pytest.mark.parametrize(
    "text", ["hello big world", "  two  spaces\nand a line ", "grüße 你好 \U0001f600", 'quotes " and \\ and \u2028']
)
async def test_text(fake: FakeLlm, ask: Ask, stream: bool, text: str) -> None:
    fake.will(say(text))
    assert (await ask("hi", stream=stream)).text == text


@streamed
async def test_so_many_tokens(fake: FakeLlm, ask: Ask, stream: bool) -> None:
    fake.will(say(tokens=250))
    turn = await ask("hi", stream=stream)
    assert turn.text.split() == [str(number) for number in range(1, 251)]
    assert turn.usage is not None
    assert turn.usage[1] == 250


@streamed
async def test_usage_as_told(fake: FakeLlm, ask: Ask, stream: bool) -> None:
    fake.will(say("hello", usage=USAGE))
    assert (await ask("hi", stream=stream)).usage == (100, 50, 30, 20, 10)


# Anthropic's accumulator can live neither without usage nor with broken arguments; test_events.py looks at the bytes.
lenient = pytest.mark.parametrize("api", [Api.CHAT, Api.RESPONSES])


@lenient
@streamed
async def test_usage_that_is_not_told(fake: FakeLlm, ask: Ask, stream: bool) -> None:
    fake.will(say("hello", no_usage=True))
    assert (await ask("hi", stream=stream)).usage is None


@streamed
@pytest.mark.parametrize("style", list(CallStyle))
async def test_parallel_calls(fake: FakeLlm, ask: Ask, stream: bool, style: CallStyle) -> None:
    calls = (Call("a_tool", {"x": 1, "y": "ü"}, "id_1"), Call("b_tool", {}, "id_2"), Call("a_tool", {"z": [1, 2]}))
    fake.will(Answer(parts=(Say("I will."), *calls), calls=style))
    turn = await ask("hi", stream=stream)
    assert turn.text == "I will."
    assert arguments(turn) == [("a_tool", {"x": 1, "y": "ü"}), ("b_tool", {}), ("a_tool", {"z": [1, 2]})]
    assert [call_id for call_id, _, _ in turn.calls][:2] == ["id_1", "id_2"]
    assert turn.calls[2][0]
    assert turn.finish in ("tool_calls", "tool_use", "completed")


async def test_made_up_ids_are_never_used_twice(fake: FakeLlm, ask: Ask) -> None:
    ids = set()
    for _ in range(3):
        fake.will(Answer(parts=(Call("a"), Call("b"))))
        ids |= {call_id for call_id, _, _ in (await ask("hi", stream=True)).calls}
    assert len(ids) == 6


@streamed
async def test_arguments_in_given_pieces(fake: FakeLlm, ask: Ask, stream: bool) -> None:
    fake.will(Answer(parts=(Call("a", pieces=("{", '"x"', "", ":1}")),)))
    assert arguments(await ask("hi", stream=stream)) == [("a", {"x": 1})]


@lenient
async def test_broken_arguments_are_sent_as_they_are(fake: FakeLlm, ask: Ask) -> None:
    fake.will(call("a", '{"x": '))
    assert [given for _, _, given in (await ask("hi", stream=True)).calls] == ['{"x": ']


@streamed
async def test_reasoning(fake: FakeLlm, api: Api, ask: Ask, stream: bool) -> None:
    fake.will(Answer(parts=(Think("let me see", signature="sig=="), Think(redacted="sealed=="), Say("42"))))
    turn = await ask("hi", stream=stream)
    assert (turn.thought, turn.text) == ("let me see", "42")
    assert turn.sealed == ([] if api is Api.CHAT else ["sig==", "sealed=="])
    assert turn.usage is not None
    assert turn.usage[4] == 3


FINISHES: dict[tuple[Api, Finish], str] = {
    (Api.CHAT, Finish.STOP): "stop",
    (Api.CHAT, Finish.TOOL_CALLS): "tool_calls",
    (Api.CHAT, Finish.LENGTH): "length",
    (Api.CHAT, Finish.CONTENT_FILTER): "content_filter",
    (Api.CHAT, Finish.REFUSAL): "stop",
    (Api.RESPONSES, Finish.STOP): "completed",
    (Api.RESPONSES, Finish.TOOL_CALLS): "completed",
    (Api.RESPONSES, Finish.LENGTH): "max_output_tokens",
    (Api.RESPONSES, Finish.CONTENT_FILTER): "content_filter",
    (Api.RESPONSES, Finish.REFUSAL): "completed",
    (Api.MESSAGES, Finish.STOP): "end_turn",
    (Api.MESSAGES, Finish.TOOL_CALLS): "tool_use",
    (Api.MESSAGES, Finish.LENGTH): "max_tokens",
    (Api.MESSAGES, Finish.CONTENT_FILTER): "refusal",
    (Api.MESSAGES, Finish.REFUSAL): "refusal",
}


@streamed
@pytest.mark.parametrize("finish", list(Finish))
async def test_finish_reasons(fake: FakeLlm, api: Api, ask: Ask, stream: bool, finish: Finish) -> None:
    fake.will(say("so", finish=finish))
    assert (await ask("hi", stream=stream)).finish == FINISHES[api, finish]


@streamed
async def test_a_refusal_in_words(fake: FakeLlm, api: Api, ask: Ask, stream: bool) -> None:
    fake.will(Answer(parts=(Refuse("I cannot help with that."),)))
    turn = await ask("hi", stream=stream)
    assert turn.finish == FINISHES[api, Finish.REFUSAL]
    assert (turn.text if api is Api.MESSAGES else turn.refusal) == "I cannot help with that."


@streamed
@pytest.mark.parametrize("empty", [Answer(), say("")], ids=["no parts", "no text"])
async def test_an_empty_answer(fake: FakeLlm, api: Api, ask: Ask, stream: bool, empty: Script) -> None:
    fake.will(empty)
    turn = await ask("hi", stream=stream)
    assert (turn.text, turn.calls, turn.finish) == ("", [], FINISHES[api, Finish.STOP])
