"""The models that the fake lists. It answers for every other name, too."""

from collections.abc import Mapping, Sequence
from typing import Any

MODELS = ("gpt-5", "gpt-4o-mini", "claude-sonnet-5-5", "claude-haiku-5-5")

_CREATED = 1_767_225_600
_PAGE = 20


def listed_by_openai(names: Sequence[str], query: Mapping[str, str]) -> dict[str, Any]:
    """All at once."""
    entries = [{"id": name, "object": "model", "created": _CREATED, "owned_by": "fake"} for name in names]
    return {"object": "list", "data": entries}


def listed_by_anthropic(names: Sequence[str], query: Mapping[str, str]) -> dict[str, Any]:
    """In pages, and with what each of them can do."""
    after, limit = query.get("after_id", ""), int(query.get("limit", _PAGE))
    start = names.index(after) + 1 if after in names else 0
    page = names[start : start + limit]
    return {
        "data": [_by_anthropic(name) for name in page],
        "has_more": start + limit < len(names),
        "first_id": page[0] if page else None,
        "last_id": page[-1] if page else None,
    }


def _by_anthropic(name: str) -> dict[str, Any]:
    return {
        "type": "model",
        "id": name,
        "display_name": name,
        "created_at": "2026-01-01T00:00:00Z",
        "lifecycle": "active",
        "max_input_tokens": 300_000,
        "max_tokens": 64_000,
        "capabilities": {"image_input": {"supported": True}, "thinking": {"supported": "haiku" not in name}},
    }
