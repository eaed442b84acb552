"""What a memory block is. Values only: no storage, no transport."""

from datetime import datetime
from typing import Any

from msgspec import Struct

DEFAULT_LIMIT = 100_000
# As much as one agent can have.
MAX_BLOCKS = 64


class BlockSpec(Struct, frozen=True, omit_defaults=True):
    """What a caller can set, apart from label, value and tags."""

    limit: int = DEFAULT_LIMIT
    description: str = ""
    read_only: bool = False
    metadata: dict[str, Any] = {}


class Block(Struct, frozen=True):
    """A block as it is stored."""

    id: str
    organization_id: str
    label: str
    value: str
    spec: BlockSpec
    tags: tuple[str, ...]
    version: int
    created_at: datetime
    updated_at: datetime


class BlockFilter(Struct, frozen=True):
    """Which blocks are meant; every condition that is set must hold."""

    agent_id: str = ""
    label: str = ""
    tags: tuple[str, ...] = ()


def clash(labels: list[str]) -> int | None:
    """The place of the first label that was there before: an agent can only tell its blocks apart by them."""
    seen: set[str] = set()
    for place, label in enumerate(labels):
        if label in seen:
            return place
        seen.add(label)
    return None
