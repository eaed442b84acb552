"""Reads server-sent events from bytes, however the network has cut them.

Only the data matters: every vendor repeats the event's name inside it. Hence no objects per event and no text decoding.
"""

# Nobody sends events as large as this; without a bound a broken server could fill our memory.
MOST_BYTES = 64 * 1024 * 1024


class SseError(Exception):
    """What came is not a stream of events."""


class SseDecoder:
    """Bytes in, the data of complete events out."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._rest: list[bytes] = []
        self._data: list[bytes] = []
        self._held = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of the events that this chunk completes."""
        self._held += len(chunk)
        events = self._lines(chunk) if b"\n" in chunk else self._keep(chunk)
        if self._held > self._most_bytes:
            raise SseError("an event of the stream is too large")
        return events

    def _keep(self, chunk: bytes) -> list[bytes]:
        self._rest.append(chunk)
        return []

    def _lines(self, chunk: bytes) -> list[bytes]:
        lines = (b"".join((*self._rest, chunk)) if self._rest else chunk).split(b"\n")
        rest = lines.pop()
        self._rest = [rest] if rest else []
        events: list[bytes] = []
        for line in lines:
            if line.startswith(b"data:"):
                self._data.append(line[5:].strip(b" \r"))
            elif self._data and line in (b"", b"\r"):
                events.append(self._data[0] if len(self._data) == 1 else b"\n".join(self._data))
                self._data = []
        if not self._data:
            self._held = len(rest)
        return events
