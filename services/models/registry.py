"""From a handle `provider/name` to the provider that serves it."""

from collections.abc import Mapping

from services.models.api import Provider
from services.models.errors import ModelError, ModelErrorType
from services.models.sources import Source
from services.models.stored import StoredProviders


class ProviderModels:
    """The providers by the name before the slash: an organization's own, then those of this server."""

    def __init__(self, own: Mapping[str, Source], stored: StoredProviders | None = None) -> None:
        self._own = dict(own)
        self._stored = stored

    async def knows(self, organization_id: str, handle: str) -> bool:
        """Whether agents of the organization may name this handle."""
        source, name = await self._find(organization_id, handle)
        return source is not None and source.has(name)

    async def resolve(self, organization_id: str, handle: str) -> tuple[Provider, str]:
        """The provider and the name it knows the model by."""
        source, name = await self._find(organization_id, handle)
        if source is None:
            prefix = handle.partition("/")[0]
            raise ModelError(ModelErrorType.AUTHENTICATION, f"No model provider '{prefix}' is configured.")
        if not source.has(name):
            raise ModelError(ModelErrorType.BAD_REQUEST, f"The model {handle} is not configured on this server.")
        return source.provider, name

    async def sources(self, organization_id: str) -> dict[str, Source]:
        """All providers that agents of the organization can use, by name."""
        stored = await self._stored.every(organization_id) if self._stored is not None else {}
        return {**self._own, **stored}

    async def _find(self, organization_id: str, handle: str) -> tuple[Source | None, str]:
        prefix, _, name = handle.partition("/")
        own = self._own.get(prefix)
        # What is built in nobody can replace, and need not be looked for.
        if self._stored is None or (own is not None and own.models is not None):
            return own, name
        return await self._stored.find(organization_id, prefix) or own, name
