"""JSON values and protobuf's: objects have only one kind of number there (a whole one comes back as it went in), and
fields have 32 bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from google.protobuf.json_format import MessageToDict
from msgspec import Meta

if TYPE_CHECKING:
    from google.protobuf.struct_pb2 import Struct

# What is right is for the services to judge; a number that cannot be told to them is refused here.
Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]


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
