"""JSON text columns that hold one of our own value types."""

from typing import Any, Generic, TypeVar

import msgspec

T = TypeVar("T")


class Codec(Generic[T]):
    """Encodes and decodes one type; made once per type, because building a decoder costs more than using it."""

    def __init__(self, kind: Any) -> None:
        self._encoder = msgspec.json.Encoder()
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(kind)

    def encode(self, value: T) -> str:
        """As it is stored."""
        return self._encoder.encode(value).decode()

    def decode(self, text: str) -> T:
        """As it was stored."""
        return self._decoder.decode(text)
