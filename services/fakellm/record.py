"""What was asked, and how each connection ended."""

from __future__ import annotations

import asyncio
from collections import deque
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from datetime import datetime

    from common.clock import Clock
    from services.fakellm.http import Request
    from services.fakellm.scripts import Api

_SECRETS = ("authorization", "x-api-key", "api-key")


class Ended(StrEnum):
    """How an exchange ended."""

    # All that the script wanted to send was sent.
    COMPLETED = "completed"
    # The client hung up before that.
    CLIENT_CLOSED = "client_closed"
    # We did, as told.
    RESET = "reset"
    CUT = "cut"
    # The fake was stopped.
    STOPPED = "stopped"


class Exchange:
    """A request and what became of it."""

    def __init__(self, number: int, api: Api, request: Request, clock: Clock) -> None:
        self.number = number
        self.api = api
        self.path = request.path
        # Complete, with credentials; `shown` hides them.
        self.headers = request.headers
        self.raw_body = request.body
        self.received_at = clock.now()
        self.status: int | None = None
        # Bytes of the body, without HTTP's own, and tokens that the client's kernel was given.
        self.bytes_sent = 0
        self.tokens_sent = 0
        self.ended: Ended | None = None
        self.ended_at: datetime | None = None
        self._clock = clock
        self._started = clock.monotonic()
        self._seconds: float | None = None
        self._over = asyncio.Event()

    @property
    def body(self) -> Any:
        """The body, decoded."""
        return msgspec.json.decode(self.raw_body)

    @property
    def seconds(self) -> float:
        """How long it took, or has taken so far."""
        return self._clock.monotonic() - self._started if self._seconds is None else self._seconds

    def end(self, how: Ended) -> None:
        """It is over; only the first call counts."""
        if self.ended is None:
            self._seconds = self.seconds
            self.ended, self.ended_at = how, self._clock.now()
            self._over.set()

    async def wait_end(self, timeout: float = 5.0) -> Ended:
        """How it ended, once it has."""
        async with asyncio.timeout(timeout):
            await self._over.wait()
        return self.ended or Ended.STOPPED

    def shown(self) -> dict[str, Any]:
        """As JSON for people and other programs; no credentials."""
        try:
            body = self.body
        except msgspec.DecodeError:
            body = self.raw_body.decode(errors="replace")
        return {
            "number": self.number,
            "api": self.api,
            "path": self.path,
            "headers": {name: _masked(name, value) for name, value in self.headers.items()},
            "body": body,
            "received_at": self.received_at,
            "status": self.status,
            "bytes_sent": self.bytes_sent,
            "tokens_sent": self.tokens_sent,
            "ended": self.ended,
            "ended_at": self.ended_at,
            "seconds": round(self.seconds, 6),
        }


class Journal:
    """The last exchanges, oldest first."""

    def __init__(self, clock: Clock, keep: int) -> None:
        self._clock = clock
        self._kept: deque[Exchange] = deque(maxlen=keep)
        self._count = 0
        self._changed = asyncio.Condition()

    @property
    def exchanges(self) -> list[Exchange]:
        """Those that are remembered."""
        return list(self._kept)

    def clear(self) -> None:
        """Forget them; numbers go on."""
        self._kept.clear()

    async def open(self, api: Api, request: Request) -> Exchange:
        """A request has come."""
        self._count += 1
        exchange = Exchange(self._count, api, request, self._clock)
        self._kept.append(exchange)
        async with self._changed:
            self._changed.notify_all()
        return exchange

    async def wait_for(self, count: int, timeout: float) -> list[Exchange]:
        """The exchanges, once there are so many."""
        async with asyncio.timeout(timeout), self._changed:
            await self._changed.wait_for(lambda: len(self._kept) >= count)
        return self.exchanges


def _masked(name: str, value: str) -> str:
    return f"...{value[-4:]}" if name in _SECRETS else value
