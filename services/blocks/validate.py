"""The rules that the comments of block.proto and block_service.proto state, with every broken one named at once."""

from collections.abc import Callable, Collection, Iterator

from common.errors import FieldViolation, InvalidArgument
from common.ids import Prefix
from common.pb.bridle.v1 import block_pb2, block_service_pb2
from services.blocks.model import DEFAULT_LIMIT
from services.wire import checks, masks
from services.wire.checks import Found, require

Block = block_pb2.Block
Pair = block_service_pb2.AttachBlockRequest | block_service_pb2.DetachBlockRequest

# What every client can still be sent, whatever alphabet it is written in.
_MAX_LIMIT = 500_000
_MAX_METADATA_BYTES = 16 * 1024
_MAX_TAGS = 64


def create(request: block_service_pb2.CreateBlockRequest) -> None:
    """Refuse a creation that breaks a rule."""
    require(_create(request))


def new_block(field: str, block: Block) -> Found:
    """Everything about a block that is to be made, wherever it stands in a request."""
    yield from _fields(field, block, _CHECKS)
    yield from _fits(field, block)


def update(request: block_service_pb2.UpdateBlockRequest) -> tuple[str, ...]:
    """Refuse an update that breaks a rule by itself, and give the paths that it changes."""
    found = list(checks.identifier("block.id", Prefix.BLOCK, request.block.id))
    wrong = list(masks.problems(Block.DESCRIPTOR, request.update_mask))
    if wrong:
        raise InvalidArgument([*found, *wrong])
    paths = masks.changed_paths(request.block, request.update_mask)
    # What the mask leaves out is not looked at.
    changed = masks.copy(request.block, Block(), paths)
    require([*found, *_fields("block", changed, masks.top_level(paths))])
    return paths


def merged(block: Block) -> None:
    """Refuse an update whose new values do not fit those that stay."""
    require(_fits("block", block))


def block_id(text: str) -> None:
    """Refuse what cannot be the id of a block."""
    require(checks.identifier("block_id", Prefix.BLOCK, text))


def pair(request: Pair) -> None:
    """Refuse what cannot be an agent and a block."""
    require(_pair(request))


def listing(request: block_service_pb2.ListBlocksRequest) -> None:
    """Refuse a list that can mean nothing."""
    require(_listing(request))


def _create(request: block_service_pb2.CreateBlockRequest) -> Found:
    if request.HasField("block"):
        yield from new_block("block", request.block)
    else:
        yield FieldViolation("block", "is required")
    yield from checks.text("request_id", request.request_id, most=128)


def _pair(request: Pair) -> Found:
    yield from checks.identifier("agent_id", Prefix.AGENT, request.agent_id)
    yield from checks.identifier("block_id", Prefix.BLOCK, request.block_id)


def _listing(request: block_service_pb2.ListBlocksRequest) -> Found:
    if request.agent_id:
        yield from checks.identifier("agent_id", Prefix.AGENT, request.agent_id)
    yield from checks.text("label", request.label, most=100)
    yield from checks.count("tags", request.tags, _MAX_TAGS)
    for number, tag in enumerate(request.tags):
        yield from checks.text(f"tags[{number}]", tag, least=1, most=100)


def _fields(field: str, block: Block, names: Collection[str]) -> Iterator[FieldViolation]:
    for name, check in _CHECKS.items():
        if name in names:
            yield from check(f"{field}.{name}", block)


def _fits(field: str, block: Block) -> Found:
    limit = block.limit or DEFAULT_LIMIT
    # A limit that is wrong by itself is not reported twice.
    if 0 < limit <= _MAX_LIMIT and len(block.value) > limit:
        yield FieldViolation(f"{field}.value", f"has {len(block.value):,} characters, and the limit is {limit:,}")


def _label(field: str, block: Block) -> Found:
    yield from checks.text(field, block.label, least=1, most=100)
    # Agents are shown one block after the other, each between lines that name it.
    if not block.label.isprintable():
        yield FieldViolation(field, "must not contain line breaks or control characters")


def _tags(field: str, block: Block) -> Found:
    yield from checks.count(field, block.tags, _MAX_TAGS)
    for number, tag in enumerate(block.tags):
        yield from checks.text(f"{field}[{number}]", tag, least=1, most=100)
    yield from checks.no_duplicates(field, block.tags)


def _limit(field: str, block: Block) -> Found:
    if not 0 <= block.limit <= _MAX_LIMIT:
        yield FieldViolation(field, f"must be 1 to {_MAX_LIMIT:,}")


_CHECKS: dict[str, Callable[[str, Block], Found]] = {
    "label": _label,
    # How long it may be is a matter of its limit.
    "value": lambda field, block: checks.storable(field, block.value),
    "limit": _limit,
    "description": lambda field, block: checks.text(field, block.description, most=10_000),
    "metadata": lambda field, block: checks.json(field, block.metadata, _MAX_METADATA_BYTES),
    "tags": _tags,
}
