"""A reader of one run's stream that loses its connection and comes back with its cursor."""

import asyncio
import random
from collections.abc import Iterable
from typing import Any

import grpc.aio

from common.pb.bridle.v1.run_event_pb2 import RunEvent
from common.pb.bridle.v1.run_service_pb2 import StreamRunRequest
from tests.chaos.caller import unanswered
from tests.chaos.ledger import Ledger

# Not state: a crash may take them back. Everything else was durable before it was shown.
_PASSING = ("text_delta", "reasoning_delta", "tool_call_delta", "tool_progress")
# What a moment of killing may be tied to.
_NOTED = {
    "text_delta": "delta",
    "tool_started": "tool started",
    "tool_finished": "tool finished",
    "approval_requested": "approval requested",
    "restarted": "void ranges seen",
    "run_stopped": "stopped",
}
_PAUSE = 0.05
_HANG_UP = 0.01


class Watch:
    """What one reader has of a run: the events that still count."""

    def __init__(self, run_id: str, ledger: Ledger) -> None:
        self.run_id = run_id
        self.events: list[RunEvent] = []
        self.ended = asyncio.Event()
        self.cuts = 0
        self._cursor = 0
        self._ledger = ledger

    async def follow(self, runs: Any, rng: random.Random, opened: Any = None) -> None:
        """Read to the end, however often the connection breaks; now and then break it.

        `opened` is a StreamMessage under way, which ends where an answer is needed.
        """
        if opened is not None:
            await self._read(opened, rng, until_approval=True)
        while not self.ended.is_set():
            request = StreamRunRequest(run_id=self.run_id, after_seq=self._cursor)
            await self._read(runs.StreamRun(request, wait_for_ready=True), rng)

    async def _read(self, call: Any, rng: random.Random, *, until_approval: bool = False) -> None:
        """Take what comes on one connection."""
        try:
            async for response in call:
                if response.HasField("event"):
                    self.take(response.event)
                if rng.random() < _HANG_UP:
                    self._ledger.note("streams hung up")
                    return
            asked = until_approval and any(event.HasField("approval_requested") for event in self.events[-1:])
            if not self.ended.is_set() and not asked:
                self._complain(f"the stream ended well after {self._cursor}, without the last event")
        except grpc.aio.AioRpcError as error:
            self._failed(error)
            await asyncio.sleep(_PAUSE)
        finally:
            call.cancel()

    def _failed(self, error: grpc.aio.AioRpcError) -> None:
        self.cuts += 1
        self._ledger.note("streams resumed")
        if not unanswered(error):
            self._complain(
                f"the stream after {self._cursor} ended with {error.code().name}: {error.debug_error_string()}"
            )

    def take(self, event: RunEvent) -> None:
        """One event."""
        kind = event.WhichOneof("event") or "nothing"
        if event.seq <= self._cursor:
            self._complain(f"event {event.seq} ({kind}) came after {self._cursor}")
        if self.ended.is_set():
            self._complain(f"event {event.seq} ({kind}) came after the last one")
        self._cursor = max(self._cursor, event.seq)
        if kind == "restarted":
            self._void(event)
        self.events.append(event)
        if kind == "run_stopped":
            self._ledger.saw(event.run_stopped.run)
            self.ended.set()
        if kind in _NOTED:
            self._ledger.note(_NOTED[kind])

    def _void(self, event: RunEvent) -> None:
        first, last = event.restarted.void_from_seq, event.restarted.void_to_seq
        if not first <= last < event.seq:
            self._complain(f"event {event.seq} voids {first} to {last}")
        for gone in self.events:
            kind = gone.WhichOneof("event")
            if first <= gone.seq <= last and kind not in _PASSING:
                self._complain(f"event {gone.seq} ({kind}) was shown and then taken back")
        self.events = survivors([*self.events, event])[:-1]

    def _complain(self, text: str) -> None:
        self._ledger.violation(f"{self.run_id}: {text}")


def survivors(events: Iterable[RunEvent]) -> list[RunEvent]:
    """The events that still count when all of these were read."""
    kept: list[RunEvent] = []
    for event in events:
        if event.HasField("restarted"):
            void = range(event.restarted.void_from_seq, event.restarted.void_to_seq + 1)
            kept = [each for each in kept if each.seq not in void]
        kept.append(event)
    return kept
