"""What is remembered of a call besides its events: its cost so far, and for a trace what went over the wire."""

from services.runs.model import Usage


class CallWatch:
    """Watches one call. Of what goes over the wire it keeps so many bytes each way; 0: nothing."""

    def __init__(self, keep_bytes: int = 0) -> None:
        self._keep = keep_bytes
        self._answer = bytearray()
        self._asked = False
        # The exact body of the last attempt.
        self.body = b""
        self.secret = ""
        self.attempts = 0
        self.received_bytes = 0
        # What the provider has told of the last attempt, and whether that is all of it.
        self.usage: Usage | None = None
        self.whole = False
        self.refused = False
        # Of attempts before the last one that were answered, if only with nothing.
        self.earlier = Usage()

    @property
    def answer(self) -> bytes:
        """What came back, up to the limit."""
        return bytes(self._answer)

    @property
    def costs(self) -> bool:
        """Whether the provider has begun to work on it, as far as one can know."""
        return self._asked and not self.refused

    def sent(self, body: bytes, secret: str) -> None:
        """This goes out: the call begins, or begins again."""
        if self.usage is not None and self.whole:
            self.earlier += self.usage
        self._answer.clear()
        self._asked, self.refused, self.whole = True, False, False
        self.usage, self.received_bytes = None, 0
        self.secret = secret
        self.attempts += 1
        if self._keep:
            self.body = body

    def received(self, data: bytes) -> None:
        """This came back."""
        self.received_bytes += len(data)
        room = self._keep - len(self._answer)
        if room > 0:
            self._answer += data[:room]

    def ended(self, usage: Usage | None, *, refused: bool, whole: bool) -> None:
        """It is over."""
        self.usage, self.refused, self.whole = usage, refused, whole
