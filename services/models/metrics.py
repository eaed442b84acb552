"""What an operator watches of providers."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from prometheus_client import CollectorRegistry, Counter, Histogram

from common.telemetry import names
from services.models.api import Finished, ModelEvent, ModelRequest, Provider
from services.models.errors import ModelError
from services.runs.model import Usage

# Providers that organizations bring are one: they choose the names, and there is no end to those.
ORGANIZATION = "organization"


class ModelMetrics:
    """Calls, retries, waits and tokens by provider."""

    def __init__(self, registry: CollectorRegistry) -> None:
        label = ("provider",)
        self.calls = Counter(
            names.MODEL_CALLS, "Model calls, by how they ended.", (*label, "outcome"), registry=registry
        )
        self.retries = Counter(
            names.MODEL_RETRIES, "Attempts that were repeated before the first token.", label, registry=registry
        )
        self.first_token = Histogram(
            names.MODEL_FIRST_TOKEN_SECONDS,
            "Time from the start of a model call to its first token.",
            label,
            registry=registry,
            buckets=names.RUN_SECONDS_BUCKETS,
        )
        self.seconds = Histogram(
            names.MODEL_SECONDS,
            "Time a model call took, retries included.",
            label,
            registry=registry,
            buckets=names.RUN_SECONDS_BUCKETS,
        )
        self._tokens = Counter(
            names.MODEL_TOKENS, "Tokens that providers have reported.", (*label, "kind"), registry=registry
        )

    def spent(self, provider: str, usage: Usage) -> None:
        """A call was billed."""
        for kind, count in (
            ("input", usage.input_tokens),
            ("output", usage.output_tokens),
            ("cached_input", usage.cached_input_tokens),
            ("cache_write", usage.cache_write_tokens),
            ("reasoning", usage.reasoning_tokens),
        ):
            if count:
                self._tokens.labels(provider, kind).inc(count)


class Measured:
    """A provider whose calls are counted."""

    def __init__(self, provider: Provider, metrics: ModelMetrics, label: str) -> None:
        self._provider = provider
        self._metrics = metrics
        self._label = label

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """One turn."""
        clock, outcome, waiting = asyncio.get_running_loop().time, "cancelled", True
        began = clock()
        try:
            async with aclosing(self._provider.stream(request)) as events:
                async for event in events:
                    if isinstance(event, Finished):
                        if event.usage is not None:
                            self._metrics.spent(self._label, event.usage)
                    elif waiting:
                        waiting = False
                        self._metrics.first_token.labels(self._label).observe(clock() - began)
                    yield event
            outcome = "ok"
        except ModelError as error:
            outcome = error.kind.value
            raise
        except Exception:
            outcome = "internal_error"
            raise
        finally:
            self._metrics.calls.labels(self._label, outcome).inc()
            self._metrics.seconds.labels(self._label).observe(clock() - began)

    def preview(self, request: ModelRequest) -> bytes:
        """What would be sent, which is not counted."""
        return self._provider.preview(request)
