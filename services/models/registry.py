"""From a handle `provider/name` to the provider that serves it."""

from collections.abc import Mapping

from services.models.api import Provider
from services.models.errors import ModelError, ModelErrorType


class ProviderModels:
    """The providers of this server, by the name before the slash, each with the models it has; None: any name."""

    def __init__(self, providers: Mapping[str, tuple[Provider, frozenset[str] | None]]) -> None:
        self._providers = dict(providers)

    def knows(self, handle: str) -> bool:
        """Whether agents may name this handle."""
        return self._find(handle) is not None

    def resolve(self, handle: str) -> tuple[Provider, str]:
        """The provider and the name it knows the model by."""
        found = self._find(handle)
        if found is None:
            raise ModelError(ModelErrorType.BAD_REQUEST, f"The model {handle} is not configured on this server.")
        return found

    def _find(self, handle: str) -> tuple[Provider, str] | None:
        prefix, _, name = handle.partition("/")
        if prefix not in self._providers or not name:
            return None
        provider, names = self._providers[prefix]
        return (provider, name) if names is None or name in names else None
