"""JSON objects of any shape. In protobuf they have only one kind of number; a whole one comes back as it went in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.protobuf.json_format import MessageToDict

if TYPE_CHECKING:
    from google.protobuf.struct_pb2 import Struct


def plain(struct: Struct) -> dict[str, Any]:
    """The JSON object in a Struct."""
    found: dict[str, Any] = _whole(MessageToDict(struct))
    return found


def _whole(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _whole(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_whole(each) for each in value]
    return value
