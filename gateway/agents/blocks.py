"""Memory blocks: the wire's and ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct

from common.pb.bridle.v1 import block_pb2
from gateway.messages.inputs import fill
from gateway.structs import plain

if TYPE_CHECKING:
    from gateway.agents.rules import Loc

BlockLimit = Annotated[int, Meta(ge=1, le=2**31 - 1)]


class BlockIn(Struct, frozen=True, kw_only=True):
    """A new block."""

    label: str
    value: str
    limit: BlockLimit | None = None
    description: str | None = None
    read_only: bool | None = None
    metadata: dict[str, Any] | None = None
    tags: list[str] | None = None


class Block(Struct, frozen=True, kw_only=True):
    """A labelled piece of memory."""

    id: str
    label: str
    value: str
    limit: int
    description: str | None
    read_only: bool
    metadata: dict[str, Any]
    tags: list[str]
    hidden: None = None
    is_template: bool = False
    template_name: None = None
    created_by_id: None = None
    last_updated_by_id: None = None
    project_id: None = None


def to_pb(given: BlockIn, loc: Loc) -> block_pb2.Block:
    """Ours."""
    block = block_pb2.Block(
        label=given.label,
        value=given.value,
        limit=given.limit or 0,
        description=given.description or "",
        read_only=bool(given.read_only),
        tags=given.tags or (),
    )
    fill(block.metadata, given.metadata or {}, (*loc, "metadata"))
    return block


def block_object(block: block_pb2.Block) -> Block:
    """The wire's."""
    return Block(
        id=block.id,
        label=block.label,
        value=block.value,
        limit=block.limit,
        description=block.description or None,
        read_only=block.read_only,
        metadata=plain(block.metadata),
        tags=list(block.tags),
    )
