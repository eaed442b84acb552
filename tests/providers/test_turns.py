"""One suite for all vendors: the same turn, however it is put on the wire, gives the same events."""

import itertools
from base64 import b64encode
from typing import NamedTuple

import httpx2
import pytest
from msgspec.structs import replace

from services.agents.model import ModelSettings
from services.fakellm import scripts
from services.fakellm.scripts import Answer, Api, Call, CallStyle, Refuse, Say, Think, Wire
from services.messages.model import Image, Outcome, Reasoning, Role, Text, ToolCall, ToolReturn
from services.models.api import (
    CallArguments,
    CallStarted,
    ContextMessage,
    Finish,
    Finished,
    ModelEvent,
    TextChunk,
)
from services.models.errors import ModelErrorType
from services.models.fold import TurnFold, TurnPart
from services.models.http import http_client
from services.runs.model import Usage
from tests.helpers.fakellm import FakeLlm
from tests.helpers.providers import ask, collect, merged, provider_of, user, wrote

every_api = pytest.mark.parametrize("api", list(Api))

SPENT = scripts.Usage(100, 20, 60, 30, 5)
USAGE = Usage(input_tokens=100, output_tokens=20, cached_input_tokens=60, cache_write_tokens=30, reasoning_tokens=5)


class Scenario(NamedTuple):
    """What the model does and what is to come of it."""

    answer: Answer
    events: list[ModelEvent]


SCENARIOS = {
    "text": Scenario(
        Answer((Say("Hello big world"),), usage=SPENT),
        [TextChunk("Hello "), TextChunk("big "), TextChunk("world"), Finished(Finish.STOP, USAGE)],
    ),
    "other writings": Scenario(
        Answer((Say(pieces=("Grüße, ", "世界 ", "🐎 \n\n", "data: x")),), usage=SPENT),
        [TextChunk("Grüße, 世界 🐎 \n\ndata: x"), Finished(Finish.STOP, USAGE)],
    ),
    "call": Scenario(
        Answer((Call("add", {"a": 1, "b": "zwei"}, "call_1"),), usage=SPENT),
        [
            CallStarted(0, "call_1", "add"),
            CallArguments(0, '{"a":1,"b":"zwei"}'),
            Finished(Finish.TOOL_CALLS, USAGE),
        ],
    ),
    "text and calls": Scenario(
        Answer((Say("Let me see."), Call("add", {"a": 1}, "call_1"), Call("look_up", {}, "call_2")), usage=SPENT),
        [
            TextChunk("Let me see."),
            CallStarted(0, "call_1", "add"),
            CallArguments(0, '{"a":1}'),
            CallStarted(1, "call_2", "look_up"),
            CallArguments(1, "{}"),
            Finished(Finish.TOOL_CALLS, USAGE),
        ],
    ),
    "broken arguments": Scenario(
        Answer((Call("add", '{"a": ', "call_1"),), usage=SPENT),
        [CallStarted(0, "call_1", "add"), CallArguments(0, '{"a": '), Finished(Finish.TOOL_CALLS, USAGE)],
    ),
    "cut at the limit": Scenario(
        Answer((Say("Once upon"),), finish=scripts.Finish.LENGTH, usage=SPENT),
        [TextChunk("Once upon"), Finished(Finish.LENGTH, USAGE)],
    ),
    "refusal": Scenario(
        Answer((Refuse("I will not."),), usage=SPENT), [TextChunk("I will not."), Finished(Finish.REFUSAL, USAGE)]
    ),
    "filtered": Scenario(
        Answer((Say("Well"),), finish=scripts.Finish.CONTENT_FILTER, usage=SPENT),
        [TextChunk("Well"), Finished(Finish.REFUSAL, USAGE)],
    ),
}

WIRES = {
    "event by event": Wire(),
    "single bytes": Wire(sizes=(1,)),
    "odd sizes": Wire(sizes=(3, 17, 1, 40)),
    "all at once": Wire(events_per_chunk=1000),
    "windows lines": Wire(crlf=True, sizes=(5,)),
    "pings": Wire(ping_every=1),
}


@every_api
@pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
async def test_the_same_turn_gives_the_same_events(
    api: Api, wire: Wire, scenario: Scenario, fake: FakeLlm, http: httpx2.AsyncClient
) -> None:
    fake.will(_on(scenario.answer, wire))
    events, error = await collect(provider_of(api, fake, http), ask())
    assert error is None
    assert merged(events) == merged(scenario.events)


def _on(answer: Answer, wire: Wire) -> Answer:
    return Answer(answer.parts, answer.finish, answer.usage, wire=wire)


@every_api
@pytest.mark.parametrize("style", list(CallStyle))
async def test_calls_survive_every_order_of_their_pieces(
    api: Api, style: CallStyle, fake: FakeLlm, http: httpx2.AsyncClient
) -> None:
    calls = (Call("add", {"a": 1}, "call_1"), Call("look_up", {"q": "x"}, "call_2"), Call("add", {"a": 2}, "call_3"))
    fake.will(Answer(calls, calls=style))
    events, error = await collect(provider_of(api, fake, http), ask())
    assert error is None
    assert _folded(events) == (
        ToolCall("call_1", "add", '{"a":1}'),
        ToolCall("call_2", "look_up", '{"q":"x"}'),
        ToolCall("call_3", "add", '{"a":2}'),
    )


def _folded(events: list[ModelEvent]) -> tuple[TurnPart, ...]:
    fold = TurnFold("message-1")
    for event in events:
        fold.add(event)
    return fold.parts()


@every_api
async def test_usage_that_is_not_given_is_not_made_up(api: Api, fake: FakeLlm, http: httpx2.AsyncClient) -> None:
    fake.will(Answer((Say("hi"),), no_usage=True))
    events, _ = await collect(provider_of(api, fake, http), ask())
    assert events == [TextChunk("hi"), Finished(Finish.STOP, None)]


REASONED = {
    Api.CHAT: (Reasoning("Let me see", signature="chat:reasoning_content"),),
    # The number of a thought is the provider's own.
    Api.RESPONSES: (
        Reasoning("Let me see", signature="openai:rs_0", redacted="sealed"),
        Reasoning(signature="openai:rs_1", redacted="hidden"),
    ),
    Api.MESSAGES: (Reasoning("Let me see", signature="sealed"), Reasoning(redacted="hidden")),
}
THOUGHT = (Think("Let me see", "sealed"), Think(redacted="hidden"))


def _numbered(parts: tuple[TurnPart, ...]) -> tuple[TurnPart, ...]:
    """With the provider's ids of thoughts replaced by their order."""
    numbers = itertools.count()
    return tuple(
        replace(part, signature=f"openai:rs_{next(numbers)}")
        if isinstance(part, Reasoning) and part.signature.startswith("openai:")
        else part
        for part in parts
    )


@every_api
async def test_reasoning_comes_with_its_seal(api: Api, fake: FakeLlm, http: httpx2.AsyncClient) -> None:
    fake.will(Answer((*THOUGHT, Say("Yes.")), usage=SPENT))
    events, _ = await collect(provider_of(api, fake, http), ask())
    assert _numbered(_folded(events)) == (*REASONED[api], Text("Yes."))
    assert events[-1] == Finished(Finish.STOP, USAGE)


@every_api
async def test_what_is_hidden_goes_back_too(api: Api, fake: FakeLlm, http: httpx2.AsyncClient) -> None:
    provider = provider_of(api, fake, http)
    fake.will(Answer((*THOUGHT, Call("add", {}, "call_1"))), Answer((Say("3"),)))
    events, _ = await collect(provider, ask())
    _, error = await collect(provider, ask(user("hello"), wrote(*_folded(events)), _returned("call_1", "3")))
    assert error is None
    sent = fake.requests[-1].body
    match api:
        case Api.CHAT:
            # It has no hidden thoughts.
            assert "hidden" not in fake.requests[-1].raw_body.decode()
        case Api.RESPONSES:
            thoughts = [item for item in sent["input"] if item.get("type") == "reasoning"]
            assert [item["encrypted_content"] for item in thoughts] == ["sealed", "hidden"]
        case Api.MESSAGES:
            kinds = [block["type"] for block in sent["messages"][1]["content"]]
            assert kinds == ["thinking", "redacted_thinking", "tool_use"]
            assert sent["messages"][1]["content"][1] == {"type": "redacted_thinking", "data": "hidden"}


PICTURE = Image(data=b"png", media_type="image/png")
PLACEHOLDER = b"[An image was here that this model cannot be shown.]"


@every_api
async def test_pictures_that_people_show_and_tools_return(api: Api, fake: FakeLlm, http: httpx2.AsyncClient) -> None:
    shown = ContextMessage(Role.USER, (Text("look"), PICTURE))
    seen = ToolReturn("call_1", "add", Outcome.SUCCEEDED, (Text("here"), PICTURE))
    history = (shown, wrote(ToolCall("call_1", "add", "{}")), ContextMessage(Role.TOOL, (seen,)))
    _, error = await collect(provider_of(api, fake, http), ask(*history))
    assert error is None
    raw = fake.requests[-1].raw_body
    # Chat Completions takes none from tools, and says so to the model.
    assert raw.count(b64encode(b"png")) == (1 if api is Api.CHAT else 2)
    assert raw.count(PLACEHOLDER) == (1 if api is Api.CHAT else 0)


@every_api
async def test_structured_output_is_asked_for(api: Api, fake: FakeLlm, http: httpx2.AsyncClient) -> None:
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}, "additionalProperties": False}
    fake.will(Answer((Say('{"x": 1}'),), usage=SPENT))
    events, error = await collect(
        provider_of(api, fake, http), ask(settings=ModelSettings(response_schema=schema), tools=())
    )
    assert error is None
    assert _folded(events) == (Text('{"x": 1}'),)
    sent = fake.requests[-1].body
    asked = {
        Api.CHAT: lambda: sent["response_format"]["json_schema"]["schema"],
        Api.RESPONSES: lambda: sent["text"]["format"]["schema"],
        Api.MESSAGES: lambda: sent["output_config"]["format"]["schema"],
    }
    assert asked[api]() == schema


@every_api
async def test_reasoning_goes_back_to_whom_it_came_from(api: Api, fake: FakeLlm, http: httpx2.AsyncClient) -> None:
    provider = provider_of(api, fake, http)
    fake.will(Answer((Think("Let me see", "sealed"), Call("add", {}, "call_1"))))
    events, _ = await collect(provider, ask())
    history = (user("hello"), wrote(*_folded(events)), _returned("call_1", "3"))
    fake.will(Answer((Say("3"),)))
    _, error = await collect(provider, ask(*history))
    assert error is None
    sent = fake.requests[-1].body
    match api:
        case Api.CHAT:
            assert sent["messages"][2]["reasoning_content"] == "Let me see"
        case Api.RESPONSES:
            item = sent["input"][1]
            assert item["id"].startswith("rs_")
            assert {**item, "id": ""} == {
                "type": "reasoning",
                "id": "",
                "summary": [{"type": "summary_text", "text": "Let me see"}],
                "encrypted_content": "sealed",
            }
        case Api.MESSAGES:
            thought = {"type": "thinking", "thinking": "Let me see", "signature": "sealed"}
            assert sent["messages"][1]["content"][0] == thought


@every_api
async def test_reasoning_of_another_vendor_stays_here(api: Api, fake: FakeLlm, http: httpx2.AsyncClient) -> None:
    foreign = {
        Api.CHAT: Reasoning("secret thought", signature="sealed"),
        Api.RESPONSES: Reasoning("secret thought", signature="sealed"),
        Api.MESSAGES: Reasoning("secret thought", signature="openai:rs_1", redacted="sealed"),
    }
    history = (user("hello"), wrote(foreign[api], ToolCall("call_1", "add", "{}")), _returned("call_1", "3"))
    _, error = await collect(provider_of(api, fake, http), ask(*history))
    assert error is None
    assert b"secret thought" not in fake.requests[-1].raw_body
    assert b"sealed" not in fake.requests[-1].raw_body


def _returned(call_id: str, text: str) -> ContextMessage:
    return ContextMessage(Role.TOOL, (ToolReturn(call_id, "add", Outcome.SUCCEEDED, (Text(text),)),))


@every_api
async def test_nothing_is_an_error_but_not_after_tools(api: Api, fake: FakeLlm, http: httpx2.AsyncClient) -> None:
    provider = provider_of(api, fake, http)
    fake.will(Answer(), Answer())
    events, error = await collect(provider, ask())
    assert events == []
    assert error is not None
    assert error.kind is ModelErrorType.EMPTY_RESPONSE
    history = (user("hello"), wrote(ToolCall("call_1", "add", "{}")), _returned("call_1", "3"))
    events, error = await collect(provider, ask(*history))
    assert error is None
    assert [type(event) for event in events] == [Finished]


@every_api
async def test_a_connection_serves_many_calls(api: Api, fake: FakeLlm) -> None:
    async with http_client() as http:
        provider = provider_of(api, fake, http)
        for _ in range(3):
            _, error = await collect(provider, ask())
            assert error is None
        # Only the pool knows. It is private, but otherwise the waste of a handshake for each call would go unseen.
        assert len(http._transport._pool.connections) == 1  # type: ignore[attr-defined]  # noqa: SLF001


async def test_a_temperature_goes_to_the_version_of_the_api_that_has_one(
    fake: FakeLlm, http: httpx2.AsyncClient
) -> None:
    provider = provider_of(Api.MESSAGES, fake, http)
    for temperature in (None, 0.5):
        settings = ModelSettings(temperature=temperature)
        _, error = await collect(provider, ask(model="claude-sonnet-4-5", settings=settings))
        assert error is None
    plain, warm = fake.requests
    assert plain.headers["anthropic-version"] > warm.headers["anthropic-version"] == "2023-06-01"
    assert warm.body["temperature"] == 0.5
