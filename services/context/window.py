"""How much a model can be shown."""

from services.agents.model import ModelSettings
from services.models import catalog, demo


def window_size(handle: str, settings: ModelSettings) -> int | None:
    """Tokens that fit into one call of this model: what the agent says, else what is known of the model."""
    if settings.context_window is not None:
        return settings.context_window
    provider, _, name = handle.partition("/")
    return demo.CONTEXT_WINDOW if provider == "demo" else catalog.context_window(name)
