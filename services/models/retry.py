"""Tries a call again that failed before it said anything."""

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from msgspec import Struct

from services.models.api import ModelEvent, ModelRequest, Provider
from services.models.errors import ModelError

logger = logging.getLogger(__name__)


class RetryPolicy(Struct, frozen=True):
    """How often, and how long to wait in between: twice as long each time, and a random part of it."""

    attempts: int = 4
    first_wait: float = 0.5
    longest_wait: float = 8.0
    # A provider that asks for more than this is not waited for: the run fails and says so.
    longest_asked_wait: float = 30.0


class Retrying:
    """A provider whose calls are tried again, until their first event."""

    def __init__(
        self,
        provider: Provider,
        policy: RetryPolicy = RetryPolicy(),  # noqa: B008 - frozen
        chance: random.Random | None = None,
        on_retry: Callable[[], None] = lambda: None,
    ) -> None:
        self._provider = provider
        self._policy = policy
        self._chance = chance or random.Random()  # noqa: S311 - spreads load, hides nothing
        self._on_retry = on_retry

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """One turn."""
        for attempt in range(1, self._policy.attempts + 1):
            begun = False
            try:
                async with aclosing(self._provider.stream(request)) as events:
                    async for event in events:
                        begun = True
                        yield event
                return
            except ModelError as error:
                wait = None if begun else self._wait(error, attempt)
                if wait is None:
                    raise
                logger.info("a model call is tried again", extra={"error": error.kind.value, "seconds": wait})
                self._on_retry()
            await asyncio.sleep(wait)

    def preview(self, request: ModelRequest) -> bytes:
        """The provider's own."""
        return self._provider.preview(request)

    def _wait(self, error: ModelError, attempt: int) -> float | None:
        """Seconds until the next attempt, or None if there is none."""
        policy = self._policy
        if not error.retryable or attempt == policy.attempts:
            return None
        if error.retry_after is not None:
            return error.retry_after if error.retry_after <= policy.longest_asked_wait else None
        longest = min(policy.first_wait * 2.0 ** (attempt - 1), policy.longest_wait)
        return longest * self._chance.uniform(0.5, 1.0)
