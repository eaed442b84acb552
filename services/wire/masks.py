"""Field masks of updates: which paths a request changes, and copying them (AIP-134, AIP-161).

protobuf's own FieldMask.MergeMessage cannot clear a field that the source leaves unset, so it is not used.
"""

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias, TypeVar

from google.api import field_behavior_pb2
from google.protobuf.descriptor import Descriptor
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.message import Message

from common.errors import FieldViolation

M = TypeVar("M", bound=Message)
# The stubs know two classes of field descriptors, and no options of theirs.
Field: TypeAlias = Any

EVERYTHING = "*"
_FIELD = "update_mask"
_NOT_SETTABLE = {field_behavior_pb2.OUTPUT_ONLY, field_behavior_pb2.IDENTIFIER}


def problems(descriptor: Descriptor, mask: FieldMask) -> Iterator[FieldViolation]:
    """What is wrong with a mask for a resource of this type."""
    settable = {each.name for each in descriptor.fields if _settable(each)}
    if EVERYTHING in mask.paths and len(mask.paths) > 1:
        yield FieldViolation(_FIELD, "must have no other path beside '*'")
    for path in mask.paths:
        if path == EVERYTHING:
            continue
        if not _exists(descriptor, path):
            yield FieldViolation(_FIELD, f"names '{path}', which does not exist")
        elif path.partition(".")[0] not in settable:
            yield FieldViolation(_FIELD, f"names '{path}', which cannot be changed")


def changed_paths(resource: Message, mask: FieldMask) -> tuple[str, ...]:
    """The paths to change. Without a mask these are the populated fields; what a caller cannot set is left out."""
    if EVERYTHING in mask.paths:
        return tuple(field.name for field in resource.DESCRIPTOR.fields if _settable(field))
    return tuple(mask.paths) or tuple(_populated(resource))


def top_level(paths: Iterable[str]) -> set[str]:
    """The fields of the resource that the paths lie in."""
    return {path.partition(".")[0] for path in paths}


def copy(source: M, target: M, paths: Iterable[str]) -> M:
    """Make the target equal to the source at these paths: also unset, where the source is."""
    for path in paths:
        _copy(source, target, path)
    return target


def _exists(descriptor: Descriptor, path: str) -> bool:
    name, dot, rest = path.partition(".")
    field: Field = descriptor.fields_by_name.get(name)
    if field is None or not dot:
        return field is not None
    return _is_ours(field) and _exists(field.message_type, rest)


def _settable(field: Field) -> bool:
    behaviours = field.GetOptions().Extensions[field_behavior_pb2.field_behavior]
    return _NOT_SETTABLE.isdisjoint(behaviours) and field.name != "etag"


def _is_ours(field: Field) -> bool:
    """A message with fields of its own. Durations and JSON are values: they are replaced as a whole."""
    kind = field.message_type
    return bool(kind) and not field.is_repeated and not kind.full_name.startswith("google.")


def _populated(message: Message, prefix: str = "") -> Iterator[str]:
    for field, value in message.ListFields():
        if _is_ours(field):
            yield from _populated(value, f"{prefix}{field.name}.")
        elif _settable(field):
            yield prefix + field.name


def _copy(source: Message, target: Message, path: str) -> None:
    name, _, rest = path.partition(".")
    if rest:
        # Clearing inside a message that is absent would make it present.
        if source.HasField(name) or target.HasField(name):
            _copy(getattr(source, name), getattr(target, name), rest)
        return
    target.ClearField(name)
    for field, value in source.ListFields():
        if field.name == name:
            target.MergeFrom(type(target)(**{name: value}))
