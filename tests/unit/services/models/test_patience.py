"""Limits and retries, without a network."""

import asyncio
import random
from collections.abc import AsyncGenerator

import pytest

from services.models.api import Finish, Finished, ModelEvent, ModelRequest, TextChunk
from services.models.errors import ModelError, ModelErrorType
from services.models.limits import CallLimits, Limited
from services.models.retry import Retrying, RetryPolicy

REQUEST = ModelRequest(model="m", system="", messages=())
FAILURE = ModelError(ModelErrorType.ERROR, "no", retryable=True)


class Fails:
    """A provider that fails so often, then answers."""

    def __init__(self, times: int, error: Exception = FAILURE) -> None:
        self.calls = 0
        self._times = times
        self._error = error

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        self.calls += 1
        if self.calls <= self._times:
            raise self._error
        yield TextChunk("hi")
        yield Finished(Finish.STOP)

    def preview(self, request: ModelRequest) -> bytes:
        return request.model.encode()


async def test_it_gives_up_after_so_many_attempts() -> None:
    provider = Fails(10)
    with pytest.raises(ModelError, match="no"):
        await anext(Retrying(provider, RetryPolicy(attempts=3, first_wait=0.0)).stream(REQUEST))
    assert provider.calls == 3


async def test_what_cannot_get_better_is_not_tried_again() -> None:
    provider = Fails(1, ModelError(ModelErrorType.BAD_REQUEST, "no"))
    with pytest.raises(ModelError):
        await anext(Retrying(provider).stream(REQUEST))
    assert provider.calls == 1


async def test_waits_grow_and_are_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    policy = RetryPolicy(attempts=6, first_wait=1.0, longest_wait=4.0)
    events = [event async for event in Retrying(Fails(5), policy, random.Random(1)).stream(REQUEST)]
    assert len(events) == 2
    for wait, longest in zip(waits, [1.0, 2.0, 4.0, 4.0, 4.0], strict=True):
        assert longest / 2 <= wait <= longest
    assert len(set(waits)) == 5


async def test_a_slow_reader_is_not_the_model_s_fault() -> None:
    limits = CallLimits(first_token=0.05, token_gap=0.05, call=5.0)
    events = []
    async for event in Limited(Fails(0), limits).stream(REQUEST):
        await asyncio.sleep(0.1)
        events.append(event)
    assert len(events) == 2


async def test_a_timeout_of_the_provider_s_own_is_passed_on() -> None:
    with pytest.raises(TimeoutError, match="mine"):
        await anext(Limited(Fails(1, TimeoutError("mine"))).stream(REQUEST))
