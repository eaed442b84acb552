"""A bounded mailbox. Whatever is in it when its reader dies is answered, so that nobody waits for a dead actor."""

import asyncio
from collections import deque
from typing import Any, Generic, TypeVar

from msgspec import Struct

T = TypeVar("T")


class MailboxFull(Exception):
    """There is no room; the sender decides whether that matters."""


class MailboxClosed(Exception):
    """The reader is gone, or going: this message will not be read."""


class Envelope(Struct, Generic[T]):
    """A message and, if the sender wants to know, where its answer goes."""

    message: T
    reply: asyncio.Future[Any] | None = None

    def answer(self, value: Any = None) -> None:
        """Tell the sender, if it still listens."""
        if self.reply is not None and not self.reply.done():
            self.reply.set_result(value)


class Mailbox(Generic[T]):
    """Many senders, one reader, one order."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._waiting: deque[Envelope[T]] = deque()
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()
        self._closed = False

    def __len__(self) -> int:
        return len(self._waiting)

    def post(self, message: T, reply: asyncio.Future[Any] | None = None) -> None:
        """Leave a message without waiting."""
        if self._closed:
            raise MailboxClosed
        if len(self._waiting) >= self._size:
            raise MailboxFull
        self._waiting.append(Envelope(message, reply))
        self._arrived.set()

    async def put(self, message: T) -> None:
        """Leave a message, waiting for room: for senders whose message must not be dropped."""
        while True:
            try:
                return self.post(message)
            except MailboxFull:
                self._room.clear()
                await self._room.wait()

    async def ask(self, message: T) -> Any:
        """Leave a message and wait for its answer; MailboxClosed if the reader dies first."""
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.post(message, reply)
        return await reply

    async def get(self) -> Envelope[T]:
        """The next message, in the order of arrival."""
        while not self._waiting:
            self._arrived.clear()
            await self._arrived.wait()
        envelope = self._waiting.popleft()
        self._room.set()
        return envelope

    def close(self) -> None:
        """Take no more, and tell everybody who waits for an answer that none will come."""
        self._closed = True
        self._room.set()
        for envelope in self._waiting:
            if envelope.reply is not None and not envelope.reply.done():
                envelope.reply.set_exception(MailboxClosed())
        self._waiting.clear()
