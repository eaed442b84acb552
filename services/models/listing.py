"""Which models there are: what providers say, remembered for a while, and what we know of them when they are silent."""

import asyncio
import logging

from msgspec import Struct

from common.clock import Clock
from services.models.catalog import ModelInfo
from services.models.errors import ModelError
from services.models.registry import ProviderModels
from services.models.sources import Lister, Source

logger = logging.getLogger(__name__)

# A list is shown to somebody who waits for it.
_PATIENCE_SECONDS = 3.0
_FRESH_SECONDS = 300.0
# Who did not answer is asked again sooner.
_SILENT_SECONDS = 30.0
_MOST = 1000


class _Listed(Struct, frozen=True):
    source: Source
    models: list[ModelInfo]
    until: float


class ModelList:
    """The models of all providers. One that is down costs a moment and its own names, nothing else."""

    def __init__(self, models: ProviderModels, clock: Clock, patience: float = _PATIENCE_SECONDS) -> None:
        self._models = models
        self._clock = clock
        self._patience = patience
        self._listed: dict[tuple[str, str], _Listed] = {}

    async def of(self, organization_id: str, only: str = "") -> dict[str, ModelInfo]:
        """What agents of the organization can use, by handle and in order; of one provider only, if it is named."""
        sources = await self._models.sources(organization_id)
        wanted = {name: source for name, source in sources.items() if only in ("", name)}
        found = await asyncio.gather(*(self._from(organization_id, *item) for item in wanted.items()))
        named = zip(wanted, found, strict=True)
        return dict(sorted((f"{name}/{model.name}", model) for name, models in named for model in models))

    async def _from(self, organization_id: str, name: str, source: Source) -> list[ModelInfo]:
        if source.list_models is None:
            return [*(source.models or source.known)]
        key = (organization_id, name)
        listed = self._listed.pop(key, None)
        # The same object: a provider that was changed in the meantime is another one.
        if listed is None or listed.source is not source or listed.until <= self._clock.monotonic():
            listed = await self._ask(name, source, source.list_models)
        self._listed[key] = listed
        if len(self._listed) > _MOST:
            del self._listed[next(iter(self._listed))]
        return listed.models

    async def _ask(self, name: str, source: Source, lister: Lister) -> _Listed:
        try:
            async with asyncio.timeout(self._patience):
                models = await lister()
        except (ModelError, TimeoutError) as error:
            detail = error.detail if isinstance(error, ModelError) else "no answer in time"
            logger.info("a provider did not list its models", extra={"fields": {"provider": name, "error": detail}})
            return _Listed(source, [*source.known], self._clock.monotonic() + _SILENT_SECONDS)
        return _Listed(source, models, self._clock.monotonic() + _FRESH_SECONDS)
