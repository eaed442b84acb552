"""What goes wrong at a provider or on the way to it is one clear error, the same for all vendors."""

import asyncio
from typing import NamedTuple

import httpx2
import pytest

from services.agents.model import ModelSettings
from services.fakellm.scripts import Answer, Api, Failure, Fault, FaultKind, Say, say
from services.models.api import Finish, Finished, TextChunk
from services.models.environment import Credentials, anthropic_source, openai_source
from services.models.errors import ModelErrorType
from services.models.limits import CallLimits, Limited
from services.models.retry import Retrying, RetryPolicy
from services.runs.model import StopReason
from tests.helpers.fakellm import FakeLlm
from tests.helpers.providers import KEY, ask, collect, provider_of
from tests.helpers.wait import eventually

every_api = pytest.mark.parametrize("api", list(Api))

IMPATIENT = RetryPolicy(attempts=3, first_wait=0.01, longest_asked_wait=0.5)


class Expected(NamedTuple):
    kind: ModelErrorType
    retryable: bool


REFUSALS = [
    (Failure(400), Expected(ModelErrorType.BAD_REQUEST, False)),
    (Failure(401), Expected(ModelErrorType.AUTHENTICATION, False)),
    (Failure(403), Expected(ModelErrorType.AUTHENTICATION, False)),
    (Failure(404), Expected(ModelErrorType.BAD_REQUEST, False)),
    (Failure(408), Expected(ModelErrorType.TIMEOUT, True)),
    (Failure(413), Expected(ModelErrorType.CONTEXT_WINDOW_EXCEEDED, False)),
    (Failure(429), Expected(ModelErrorType.RATE_LIMIT, True)),
    (Failure(429, kind="quota"), Expected(ModelErrorType.INSUFFICIENT_CREDITS, False)),
    (Failure(400, kind="overflow"), Expected(ModelErrorType.CONTEXT_WINDOW_EXCEEDED, False)),
    (Failure(500), Expected(ModelErrorType.ERROR, True)),
    (Failure(503), Expected(ModelErrorType.ERROR, True)),
    (Failure(529), Expected(ModelErrorType.ERROR, True)),
    (Failure(502, body="<html>Bad gateway</html>"), Expected(ModelErrorType.ERROR, True)),
]


@every_api
@pytest.mark.parametrize(("failure", "expected"), REFUSALS, ids=lambda value: getattr(value, "status", ""))
async def test_refusals(
    api: Api, failure: Failure, expected: Expected, fake: FakeLlm, http: httpx2.AsyncClient
) -> None:
    fake.will(failure)
    events, error = await collect(provider_of(api, fake, http), ask())
    assert events == []
    assert error is not None
    assert (error.kind, error.retryable) == expected
    assert len(fake.requests) == 1, "the SDK must not retry by itself"


@every_api
async def test_the_provider_is_quoted_but_never_the_key(api: Api, fake: FakeLlm, http: httpx2.AsyncClient) -> None:
    fake.will(Failure(401, message=f"I do not like {KEY}."))
    _, error = await collect(provider_of(api, fake, http), ask())
    assert error is not None
    assert error.detail.startswith("401 ")
    assert error.detail.endswith("(request req_fake): I do not like ***.")
    fake.will(say(tokens=5, fault=Fault(FaultKind.ERROR, failure=Failure(500, message=f"It was {KEY}."))))
    _, error = await collect(provider_of(api, fake, http), ask())
    assert error is not None
    assert error.detail.endswith("It was ***.")


@every_api
@pytest.mark.parametrize("kind", [FaultKind.ERROR, FaultKind.FAILED])
@pytest.mark.parametrize("after", [0, 2])
@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (Failure(500), ModelErrorType.ERROR),
        (Failure(429), ModelErrorType.RATE_LIMIT),
        (Failure(400, kind="overflow"), ModelErrorType.CONTEXT_WINDOW_EXCEEDED),
    ],
    ids=lambda value: str(getattr(value, "status", "")),
)
async def test_error_events(
    api: Api,
    kind: FaultKind,
    after: int,
    failure: Failure,
    expected: ModelErrorType,
    fake: FakeLlm,
    http: httpx2.AsyncClient,
) -> None:
    fake.will(say(tokens=5, fault=Fault(kind, after=after, failure=failure)))
    events, error = await collect(provider_of(api, fake, http), ask())
    assert len(events) == after
    assert error is not None
    assert error.kind is expected
    assert error.detail


@every_api
@pytest.mark.parametrize("kind", [FaultKind.RESET, FaultKind.CUT, FaultKind.END])
@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize("after", [0, 3])
async def test_a_socket_that_dies_is_one_clear_error(
    api: Api, kind: FaultKind, partial: bool, after: int, fake: FakeLlm, http: httpx2.AsyncClient
) -> None:
    # Delays, so that tokens are read before the connection is torn down: a reset takes with it what was not.
    fake.will(say(tokens=5, token_delay=0.02, fault=Fault(kind, after=after, partial=partial)))
    provider = provider_of(api, fake, http)
    events, error = await collect(provider, ask())
    assert len(events) == after or (kind is FaultKind.RESET and len(events) <= after)
    assert error is not None
    assert error.kind is ModelErrorType.ERROR
    assert "broke" in error.message
    fake.will(say("I am back"))
    _, error = await collect(provider, ask())
    assert error is None


@every_api
async def test_a_turn_that_was_whole_stays_whole(api: Api, fake: FakeLlm, http: httpx2.AsyncClient) -> None:
    fake.will(say("hello", fault=Fault(FaultKind.CUT, after=-1)))
    events, error = await collect(provider_of(api, fake, http), ask())
    if api is Api.RESPONSES:
        # Its last event is the only one that says that it is whole.
        assert error is not None
    else:
        assert error is None
        assert events[0] == TextChunk("hello")
        assert isinstance(events[-1], Finished)
        assert events[-1].finish is Finish.STOP


@every_api
async def test_nobody_is_there(api: Api, http: httpx2.AsyncClient) -> None:
    nowhere = Credentials("http://127.0.0.1:9", KEY)
    source = (
        anthropic_source(nowhere, http)
        if api is Api.MESSAGES
        else openai_source(nowhere, http, responses=api is Api.RESPONSES)
    )
    _, error = await collect(source.provider, ask())
    assert error is not None
    assert (error.kind, error.retryable) == (ModelErrorType.ERROR, True)
    assert "ConnectError" in error.detail


@every_api
async def test_an_answer_that_is_no_stream(api: Api, fake: FakeLlm, http: httpx2.AsyncClient) -> None:
    fake.will(Failure(200, body="<html>Please log in</html>"))
    _, error = await collect(provider_of(api, fake, http), ask())
    assert error is not None
    assert error.kind is ModelErrorType.ERROR
    assert "Please log in" in error.detail


@every_api
async def test_retries_before_the_first_event(api: Api, fake: FakeLlm, http: httpx2.AsyncClient) -> None:
    fake.will(Failure(529), Failure(429, retry_after=0.2), say("at last"))
    events, error = await collect(Retrying(provider_of(api, fake, http), IMPATIENT), ask())
    assert error is None
    assert events[0] == TextChunk("at ")
    first, second, third = fake.requests
    assert first.raw_body == second.raw_body == third.raw_body
    assert (third.received_at - second.received_at).total_seconds() >= 0.19


@every_api
async def test_no_retry_after_the_first_event(api: Api, fake: FakeLlm, http: httpx2.AsyncClient) -> None:
    fake.will(say(tokens=5, fault=Fault(FaultKind.ERROR, after=1)), say("never"))
    events, error = await collect(Retrying(provider_of(api, fake, http), IMPATIENT), ask())
    assert len(events) == 1
    assert error is not None
    assert len(fake.requests) == 1


@every_api
async def test_who_asks_for_too_long_a_wait_is_not_waited_for(
    api: Api, fake: FakeLlm, http: httpx2.AsyncClient
) -> None:
    fake.will(Failure(429, retry_after=3600))
    _, error = await collect(Retrying(provider_of(api, fake, http), IMPATIENT), ask())
    assert error is not None
    assert error.kind is ModelErrorType.RATE_LIMIT
    assert len(fake.requests) == 1


STALLS = [
    (Fault(FaultKind.STALL, headers=False), 0, "did not begin to answer within 0.3 s"),
    (Fault(FaultKind.STALL, after=0), 0, "did not begin to answer within 0.3 s"),
    (Fault(FaultKind.STALL, after=2), 2, "fell silent for 0.2 s"),
]


@every_api
@pytest.mark.parametrize(("fault", "tokens", "words"), STALLS)
async def test_a_provider_that_hangs_is_cut_at_its_limit(
    api: Api, fault: Fault, tokens: int, words: str, fake: FakeLlm, http: httpx2.AsyncClient
) -> None:
    fake.will(say(tokens=5, fault=fault))
    provider = Limited(provider_of(api, fake, http))
    events, error = await collect(provider, ask(settings=ModelSettings(first_token_timeout=0.3, token_gap_timeout=0.2)))
    assert len(events) == tokens
    assert error is not None
    assert error.kind is ModelErrorType.TIMEOUT
    assert words in error.message
    assert await fake.requests[0].wait_end() == "client_closed"


@every_api
async def test_a_call_that_takes_too_long_is_cut(api: Api, fake: FakeLlm, http: httpx2.AsyncClient) -> None:
    fake.will(say(tokens=1000, token_delay=0.02))
    provider = Limited(provider_of(api, fake, http), CallLimits(call=0.3))
    events, error = await collect(provider, ask())
    assert 0 < len(events) < 100
    assert error is not None
    assert (error.kind, error.stop_reason) == (ModelErrorType.TIMEOUT, StopReason.LLM_API_ERROR)
    assert "longer than 0.3 s" in error.message
    assert await fake.requests[0].wait_end() == "client_closed"


CUTS = [(Fault(FaultKind.STALL, headers=False), 0), (Fault(FaultKind.STALL, after=0), 0), (None, 2)]


@every_api
@pytest.mark.parametrize(("fault", "tokens"), CUTS, ids=["no status line", "no token", "streaming"])
async def test_cancelling_the_task_closes_the_connection(
    api: Api, fault: Fault | None, tokens: int, fake: FakeLlm, http: httpx2.AsyncClient
) -> None:
    fake.will(Answer((Say(tokens=1000),), token_delay=0.02, fault=fault))
    task = asyncio.create_task(collect(Limited(Retrying(provider_of(api, fake, http))), ask()))
    [exchange] = await fake.wait_for_requests(1)
    begun = fault is None or fault.headers
    await eventually(lambda: exchange.tokens_sent >= tokens and (exchange.status == 200) is begun)
    before = exchange.seconds
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await exchange.wait_end() == "client_closed"
    assert exchange.seconds - before < 1.0


@every_api
async def test_closing_the_stream_closes_the_connection(api: Api, fake: FakeLlm, http: httpx2.AsyncClient) -> None:
    fake.will(say(tokens=1000, token_delay=0.02))
    stream = Limited(Retrying(provider_of(api, fake, http))).stream(ask())
    await anext(stream)
    await stream.aclose()
    [exchange] = fake.requests
    assert await exchange.wait_end() == "client_closed"
    assert exchange.tokens_sent < 100
