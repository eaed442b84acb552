"""How long a model may take: until its first token, from one token to the next, and altogether."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from msgspec import Struct

from services.agents.model import ModelSettings
from services.models.api import ModelEvent, ModelRequest, Provider
from services.models.errors import ModelError, ModelErrorType


class CallLimits(Struct, frozen=True):
    """Seconds. Models that reason may think for minutes before they say a word."""

    first_token: float = 180.0
    token_gap: float = 120.0
    call: float = 1200.0

    def overridden(self, settings: ModelSettings) -> "CallLimits":
        """With what the agent sets."""
        return CallLimits(
            first_token=_or(settings.first_token_timeout, self.first_token),
            token_gap=_or(settings.token_gap_timeout, self.token_gap),
            call=_or(settings.call_timeout, self.call),
        )


class Limited:
    """A provider whose calls end in time."""

    def __init__(self, provider: Provider, limits: CallLimits = CallLimits()) -> None:  # noqa: B008 - frozen
        self._provider = provider
        self._limits = limits

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """One turn; llm_timeout says which limit was hit."""
        limits = self._limits.overridden(request.settings)
        loop = asyncio.get_running_loop()
        end = loop.time() + limits.call
        wait, what = limits.first_token, f"The model did not begin to answer within {limits.first_token:g} s."
        async with aclosing(self._provider.stream(request)) as events:
            while True:
                until = loop.time() + wait
                try:
                    # Around the wait alone: what the reader does with an event takes its own time.
                    async with asyncio.timeout_at(min(until, end)) as limit:
                        event = await anext(events, None)
                except TimeoutError:
                    if not limit.expired():
                        raise
                    too_long = f"The model call took longer than {limits.call:g} s."
                    raise ModelError(ModelErrorType.TIMEOUT, too_long if end <= until else what) from None
                if event is None:
                    return
                yield event
                wait, what = limits.token_gap, f"The model fell silent for {limits.token_gap:g} s."

    def preview(self, request: ModelRequest) -> bytes:
        """The provider's own."""
        return self._provider.preview(request)


def _or(value: float | None, default: float) -> float:
    return default if value is None else value
