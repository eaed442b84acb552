"""Where models come from: a provider, and how to ask it which models it has."""

from collections.abc import Awaitable, Callable

from msgspec import Struct

from services.models.api import Provider
from services.models.catalog import ModelInfo

Lister = Callable[[], Awaitable[list[ModelInfo]]]


class Source(Struct, frozen=True):
    """A provider and what can be known of its models."""

    provider: Provider
    # All it has; None: it takes any name.
    models: tuple[ModelInfo, ...] | None = None
    # Asks it which models it has; None: there is nothing to ask.
    list_models: Lister | None = None
    # What to show if it does not answer.
    known: tuple[ModelInfo, ...] = ()

    def has(self, name: str) -> bool:
        """Whether a handle may name this model."""
        return bool(name) and (self.models is None or any(model.name == name for model in self.models))
