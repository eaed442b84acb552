"""From a handle `provider/name` to the provider that serves it."""

from collections.abc import Mapping

from services.models.api import Provider
from services.models.errors import ModelError, ModelErrorType


class ProviderModels:
    """The providers of this server, by the name before the slash, each with the models that may be named."""

    def __init__(self, providers: Mapping[str, tuple[Provider, frozenset[str]]]) -> None:
        self._providers = dict(providers)

    def knows(self, handle: str) -> bool:
        """Whether agents may name this handle."""
        provider, _, name = handle.partition("/")
        found = self._providers.get(provider)
        return found is not None and name in found[1]

    def resolve(self, handle: str) -> tuple[Provider, str]:
        """The provider and the name it knows the model by."""
        provider, _, name = handle.partition("/")
        found = self._providers.get(provider)
        if found is None or name not in found[1]:
            raise ModelError(ModelErrorType.BAD_REQUEST, f"The model {handle} is not configured on this server.")
        return found[0], name
