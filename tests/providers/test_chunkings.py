"""Where the network cuts a stream, and where a model draws breath, changes nothing."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from itertools import pairwise
from typing import Any

import httpx2
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.fakellm.scripts import Answer, Api, Call, Say, Think, Usage
from services.messages.model import ToolCall
from services.models.anthropic_stream import AnthropicReader
from services.models.api import Finish, Finished, ModelEvent
from services.models.fold import TurnFold
from services.models.http import Reader, exchange, http_client
from services.models.openai_chat_stream import ChatReader
from services.models.openai_responses_stream import ResponsesReader
from tests.helpers.fakellm import fake_llm
from tests.helpers.providers import TOOLS, ask, collect, provider_of

TOOL_NAMES = frozenset(tool.name for tool in TOOLS)
TURN = Answer(
    (
        Think("Let me see…", "sealed"),
        Say("Grüße an die 世界 🐎"),
        Call("add", {"a": 1, "text": "data: \n\n"}, "call_1"),
        Call("look_up", {"q": "ä"}, "call_2"),
    ),
    usage=Usage(100, 20, 60, 30, 5),
)
# Nothing here depends on how fast it goes.
thorough = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


class Recorded:
    """An endpoint that answers with bytes, cut at these places."""

    secret = ""

    def __init__(self, body: bytes, cuts: list[int]) -> None:
        self._body = body
        self._cuts = cuts

    async def open(self, body: bytes, headers: Mapping[str, str]) -> httpx2.Response:
        return httpx2.Response(200, content=self._pieces())

    async def _pieces(self) -> AsyncIterator[bytes]:
        places = [0, *sorted(cut % (len(self._body) + 1) for cut in self._cuts), len(self._body)]
        for start, end in pairwise(places):
            yield self._body[start:end]


class Replay:
    """A provider that reads a recorded stream."""

    def __init__(self, api: Api, body: bytes, cuts: list[int]) -> None:
        self._reader = reader_of(api)
        self._endpoint = Recorded(body, cuts)

    def stream(self, request: Any) -> AsyncGenerator[ModelEvent, None]:
        return exchange(self._endpoint, b"", self._reader, request)

    def preview(self, request: Any) -> bytes:
        return b""


def reader_of(api: Api) -> Reader:
    match api:
        case Api.CHAT:
            return ChatReader(TOOL_NAMES)
        case Api.RESPONSES:
            return ResponsesReader()
        case Api.MESSAGES:
            return AnthropicReader()


@pytest.fixture(scope="module")
async def recordings() -> dict[Api, bytes]:
    """The same turn as each vendor sends it."""
    found: dict[Api, bytes] = {}
    async with fake_llm() as fake, http_client() as http:
        for api in Api:
            fake.will(TURN, TURN)
            await collect(provider_of(api, fake, http), ask())
            asked = fake.requests[-1]
            response = await http.post(f"http://{fake.address}{asked.path}", content=asked.raw_body)
            found[api] = response.content
    return found


@pytest.mark.parametrize("api", list(Api))
@given(cuts=st.lists(st.integers(0, 100_000), max_size=60), crlf=st.booleans())
@thorough
async def test_the_network_may_cut_anywhere(
    api: Api, recordings: dict[Api, bytes], cuts: list[int], crlf: bool
) -> None:
    whole, _ = await collect(Replay(api, recordings[api], []), ask())
    body = recordings[api].replace(b"\n", b"\r\n") if crlf else recordings[api]
    events, error = await collect(Replay(api, body, cuts), ask())
    assert error is None
    assert events == whole
    assert isinstance(events[-1], Finished)


CALLS = (("call_1", "add", '{"a": 1, "b": [2, 3]}'), ("call_2", "look_up", "{}"), ("call_3", "add", '{"a": "x"}'))


@st.composite
def odd_chunks(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Pieces of the calls in a random mixture: each call's own in order, its id and name with any of them."""
    queues: list[list[dict[str, Any]]] = []
    for index, (call_id, name, arguments) in enumerate(CALLS):
        pieces = [{"arguments": piece} for piece in _split(draw, arguments)]
        names = [{"name": piece} for piece in _split(draw, name)] if draw(st.booleans()) else [{"name": name}]
        # The name first or last, never in the middle of arguments: no server is known to do that.
        functions = names + pieces if draw(st.booleans()) else pieces + names
        deltas: list[dict[str, Any]] = [{"index": index, "function": function} for function in functions]
        deltas[draw(st.integers(0, len(deltas) - 1))]["id"] = call_id
        if draw(st.booleans()):
            deltas = [{**delta, "id": call_id} for delta in deltas]
        queues.append(deltas)
    order = draw(st.permutations([index for index, queue in enumerate(queues) for _ in queue]))
    return [queues[index].pop(0) for index in order]


def _split(draw: st.DrawFn, text: str) -> list[str]:
    cuts = sorted(draw(st.sets(st.integers(1, max(1, len(text) - 1)), max_size=3)))
    places = [0, *cuts, len(text)]
    return [text[start:end] for start, end in pairwise(places) if start < end]


@given(odd_chunks())
@thorough
def test_calls_in_any_mixture_of_pieces(deltas: list[dict[str, Any]]) -> None:
    reader, fold = ChatReader(TOOL_NAMES), TurnFold("message-1")
    for delta in deltas:
        for event in reader.read(_chunk({"tool_calls": [delta]})):
            fold.add(event)
    reader.read(_chunk({}, finish_reason="tool_calls"))
    for event in reader.end():
        fold.add(event)
    assert fold.parts() == tuple(ToolCall(*call) for call in CALLS)
    assert fold.finish is Finish.TOOL_CALLS


def _chunk(delta: dict[str, Any], **choice: Any) -> bytes:
    return msgspec.json.encode({"choices": [{"index": 0, "delta": delta, **choice}]})
