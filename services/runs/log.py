"""A run's events, for any number of readers.

The owner appends: deltas are live at once and durable in batches, everything else becomes visible after its commit. A
reader is a cursor. It reads the tail in memory where that reaches back far enough and the database where it does not,
so a slow reader falls back to replay, never holds the owner and never loses an event.
"""

import asyncio
from bisect import bisect_right
from collections.abc import AsyncGenerator, Callable, Sequence
from operator import attrgetter

from sqlalchemy import Connection

from common.clock import Clock
from common.db.engine import Database
from common.errors import Draining
from services.runs.events import ApprovalRequested, Entry, Event, RunStopped, Truncated
from services.runs.store.queries import first_event, read_events

# Numbers that may be shown before they are durable. After a crash they are skipped: a cursor never means two things.
RESERVE = 4096
# Durable entries kept in memory for readers that are a little behind.
_KEPT = 512
# How often a reader looks at the database when the run's owner may be elsewhere.
_POLL_SECONDS = 1.0

_seq = attrgetter("seq")


class Tail:
    """The newest entries of one live run. Only its owner writes to it."""

    def __init__(self, after: int, clock: Clock, wake: Callable[[], None]) -> None:
        self._clock = clock
        self._wake = wake
        self._entries: list[Entry] = []
        # Every entry above this number is in `_entries`.
        self._start = after
        self._next = after + 1
        self._visible = after
        self._durable = after
        self._staged = False
        self.reserved = after

    def append(self, event: Event) -> None:
        """Show an event that is not state: now, or after the commit that is under way."""
        self._entries.append(Entry(self._next, self._clock.now(), event))
        self._next += 1
        if not self._staged:
            self._visible = self._next - 1
            self._wake()

    @property
    def full(self) -> bool:
        """Whether the owner must flush before it shows more."""
        return self._next > self.reserved

    def undurable(self) -> tuple[Entry, ...]:
        """What is shown and not yet stored."""
        return tuple(self._entries[self._index(self._durable) :])

    def stage(self, count: int) -> tuple[tuple[Entry, ...], int]:
        """Begin a commit of `count` events: the deltas that go with it, and the first event's number."""
        live = self.undurable()
        first, self._next = self._next, self._next + count
        self._staged = True
        return live, first

    def publish(self, entries: Sequence[Entry], reserved: int) -> None:
        """The commit is done: show its events, and what was appended meanwhile behind them."""
        self._entries[self._index(entries[0].seq) : self._index(entries[0].seq)] = entries
        self._staged = False
        self._visible = self._next - 1
        self.flushed(entries[-1].seq, reserved)
        self._wake()

    def unstage(self, first: int, count: int) -> None:
        """The commit was refused: its numbers are given back, unless others were shown behind them."""
        if self._next == first + count:
            self._next = first
        self._staged = False
        self._visible = self._next - 1
        self._wake()

    def flushed(self, through: int, reserved: int) -> None:
        """Everything up to here is durable."""
        self._durable = through
        self.reserved = reserved
        cut = min(self._index(through), len(self._entries) - _KEPT)
        if cut > _KEPT:
            self._start = self._entries[cut - 1].seq
            del self._entries[:cut]

    def read(self, after: int) -> list[Entry] | None:
        """Visible entries after a cursor; None if memory does not reach back that far."""
        if after < self._start:
            return None
        return self._entries[self._index(after) : self._index(self._visible)]

    def _index(self, seq: int) -> int:
        """Where the first entry above this number is."""
        return bisect_right(self._entries, seq, key=_seq)


class _Channel:
    """What the readers of one run share with its owner, if it is on this node."""

    def __init__(self) -> None:
        self.readers = 0
        self.version = 0
        self.tail: Tail | None = None
        # What the last writer showed: most readers are a few entries behind when it goes.
        self.left: Tail | None = None
        self._changed: asyncio.Event | None = None

    def wake(self) -> None:
        self.version += 1
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    async def wait(self, version: int, timeout: float) -> None:
        if self.version != version:
            return
        if self._changed is None:
            self._changed = asyncio.Event()
        try:
            async with asyncio.timeout(timeout):
                await self._changed.wait()
        except TimeoutError:
            return


class RunLog:
    """The logs of all runs, as this node sees them."""

    def __init__(self, db: Database, clock: Clock, heartbeat: float) -> None:
        self._db = db
        self._clock = clock
        self._heartbeat = heartbeat
        self._channels: dict[str, _Channel] = {}
        self._ending = False

    def end(self) -> None:
        """End every reader, with a cursor to come back with: the process is going away."""
        self._ending = True
        for channel in self._channels.values():
            channel.wake()

    def open(self, run_id: str, after: int) -> Tail:
        """Become the writer of a run's log; its first number will be the one after `after`."""
        channel = self._channels.setdefault(run_id, _Channel())
        channel.tail = Tail(after, self._clock, channel.wake)
        channel.left = None
        return channel.tail

    def close(self, run_id: str, tail: Tail) -> None:
        """Stop being the writer. Readers go on with the database."""
        channel = self._channels.get(run_id)
        if channel is not None and channel.tail is tail:
            channel.tail, channel.left = None, tail
            channel.wake()
            self._drop_if_idle(run_id, channel)

    def nudge(self, run_id: str) -> None:
        """Something happened to the run in the database: let its readers look."""
        channel = self._channels.get(run_id)
        if channel is not None:
            channel.wake()

    async def follow(
        self, run_id: str, after: int, *, until_approval: bool = False
    ) -> AsyncGenerator[list[Entry], None]:
        """Batches of events after a cursor until the last one. An empty batch is a sign of life."""
        channel = self._channels.setdefault(run_id, _Channel())
        channel.readers += 1
        try:
            cursor = after
            quiet_since = self._clock.monotonic()
            while True:
                version = channel.version
                batch = await self._read(channel, run_id, cursor)
                if batch:
                    quiet_since = self._clock.monotonic()
                    end = _end_of(batch, until_approval)
                    yield batch[:end]
                    if end is not None:
                        return
                    cursor = batch[-1].seq
                    continue
                if self._ending:
                    raise Draining({"after_seq": str(cursor)})
                quiet = self._clock.monotonic() - quiet_since
                if quiet >= self._heartbeat:
                    quiet_since = self._clock.monotonic()
                    yield []
                    continue
                await channel.wait(version, min(self._heartbeat - quiet, self._patience(channel)))
        finally:
            channel.readers -= 1
            self._drop_if_idle(run_id, channel)

    def _patience(self, channel: _Channel) -> float:
        return self._heartbeat if channel.tail is not None else _POLL_SECONDS

    async def _read(self, channel: _Channel, run_id: str, cursor: int) -> list[Entry]:
        if channel.tail is not None:
            batch = channel.tail.read(cursor)
            if batch is not None:
                return batch
        elif channel.left is not None:
            batch = channel.left.read(cursor)
            if batch:
                return batch
            # Whoever comes next writes to the database; who waits for that must not hold what was.
            channel.left = None
        return await self._db.lookup(_read_from, run_id, cursor, self._clock)

    def _drop_if_idle(self, run_id: str, channel: _Channel) -> None:
        if channel.readers == 0 and channel.tail is None and self._channels.get(run_id) is channel:
            del self._channels[run_id]


def _read_from(conn: Connection, run_id: str, cursor: int, clock: Clock) -> list[Entry]:
    found = read_events(conn, run_id, cursor)
    if found and found[0].seq > cursor + 1:
        # Numbers may skip after a crash; only what lies before the oldest batch was deleted.
        first = first_event(conn, run_id)
        if first is not None and first > cursor + 1:
            return [Entry(first - 1, clock.now(), Truncated(first - 1)), *found]
    return found


def _end_of(batch: Sequence[Entry], until_approval: bool) -> int | None:
    """Where a reader stops in this batch, if it does."""
    for index, entry in enumerate(batch):
        if isinstance(entry.event, RunStopped) or (until_approval and isinstance(entry.event, ApprovalRequested)):
            return index + 1
    return None
