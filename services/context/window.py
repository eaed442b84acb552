"""How much a model can be shown, and whether a request is within it."""

from msgspec import Struct

from services.agents.model import CompactionSettings, ModelSettings
from services.context.weights import Scale
from services.models import catalog, demo, tokens
from services.models.api import ModelRequest
from services.models.errors import ModelError, ModelErrorType

# What is kept free for the answer of a model whose agent sets no limit to it.
_RESERVE = 4_096


class Window(Struct, frozen=True):
    """A model's context window, and how much of it a request may fill. None: nobody knows."""

    size: int | None = None
    limit: int | None = None


def window_size(handle: str, settings: ModelSettings) -> int | None:
    """Tokens that fit into one call of this model: what the agent says, else what is known of the model."""
    if settings.context_window is not None:
        return settings.context_window
    provider, _, name = handle.partition("/")
    return demo.CONTEXT_WINDOW if provider == "demo" else catalog.context_window(name)


def window_of(handle: str, settings: ModelSettings, compaction: CompactionSettings) -> Window:
    """The window without the answer's share; of the rest, as much as may be filled before a compaction."""
    size = window_size(handle, settings)
    if size is None:
        return Window()
    room = size - _reserve(size, settings)
    return Window(size, room if compaction.mode == "off" else int(room * compaction.threshold))


def _reserve(size: int, settings: ModelSettings) -> int:
    if settings.max_output_tokens is None:
        return min(_RESERVE, size // 4)
    return min(settings.max_output_tokens, size * 3 // 4)


def surely_fits(request: ModelRequest, window: Window) -> bool:
    """Whether even its size in bytes is within the limit: then nothing need be counted."""
    return window.limit is None or tokens.of_request(request, tokens.most) <= window.limit


def require_fit(scale: Scale, limit: int) -> None:
    """Raise ModelError if a request is too big to be sent."""
    if scale.fixed >= limit:
        raise too_much_system(scale.fixed, limit)
    if scale.tokens > limit:
        message = "The conversation does not fit into the model's context window."
        detail = f"The request weighs {scale.tokens} tokens, and {limit} may be filled."
        raise ModelError(ModelErrorType.CONTEXT_WINDOW_EXCEEDED, message, detail)


def too_much_system(fixed: int, limit: int) -> ModelError:
    """No compaction helps: what is sent with every call leaves no room for a conversation."""
    message = "The system prompt, with its memory and tools, leaves no room in the model's context window."
    detail = f"It weighs {fixed} tokens, and {limit} may be filled."
    return ModelError(ModelErrorType.SYSTEM_PROMPT_OVERFLOW, message, detail)


def too_much_said(weight: int, room: int) -> ModelError:
    """No compaction helps: what was said last cannot be left out."""
    message = "What was said last does not fit into the model's context window."
    detail = f"It weighs {weight} tokens, and there is room for {room}."
    return ModelError(ModelErrorType.CONTEXT_WINDOW_EXCEEDED, message, detail)
