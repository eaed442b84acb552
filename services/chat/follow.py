"""Reading a run's events from a cursor, through lost connections."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import grpc
import grpc.aio

from common.pb.bridle.v1 import run_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from common.pb.bridle.v1 import approval_pb2, run_event_pb2
    from services.chat.client import Client

# About half a minute in all: time for a server to be restarted.
RETRY_DELAYS: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 2.0, 4.0, 4.0, 8.0, 8.0)
# A live stream shows a heartbeat at least once a minute; after this long the other side is gone without a word.
_SILENCE: Final = 75.0

_FINAL: Final = (run_pb2.Run.STATE_COMPLETED, run_pb2.Run.STATE_FAILED, run_pb2.Run.STATE_CANCELLED)


class StreamLost(Exception):
    """The server cannot be reached any more."""


@dataclass
class Cursor:
    """A run and the last of its events that was seen."""

    run_id: str
    seq: int = 0


class Follower:
    """Shows each event of a run exactly once, in order."""

    def __init__(
        self,
        client: Client,
        show: Callable[[run_event_pb2.RunEvent], None],
        note: Callable[[str], None],
        delays: Sequence[float] = RETRY_DELAYS,
    ) -> None:
        self._client = client
        self._show = show
        self._note = note
        self._delays = delays

    async def follow(self, cursor: Cursor) -> run_pb2.Run | approval_pb2.Approval:
        """Until the run has stopped, or asks for the approval that is returned."""
        failures = 0
        while True:
            before = cursor.seq
            try:
                ending = await self._read(cursor) or await self._stopped(cursor)
                if ending is not None:
                    return ending
            except (grpc.aio.AioRpcError, TimeoutError) as error:
                if not _is_lost(error):
                    raise
            if cursor.seq > before:
                failures = 0
            if failures == len(self._delays):
                raise StreamLost(
                    f"lost the connection to {self._client.address}; {cursor.run_id} may still be going on"
                )
            if failures == 0:
                self._note("connection lost; trying to pick up where it was")
            await asyncio.sleep(self._delays[failures])
            failures += 1

    async def _read(self, cursor: Cursor) -> run_pb2.Run | approval_pb2.Approval | None:
        """One stream until the run stops or asks; None if it ends before that."""
        call = self._client.stream(cursor.run_id, cursor.seq)
        try:
            while True:
                async with asyncio.timeout(_SILENCE):
                    response = await call.read()
                if response is grpc.aio.EOF:
                    return None
                if response.WhichOneof("response") != "event":
                    continue
                event: run_event_pb2.RunEvent = response.event
                self._show(event)
                cursor.seq = event.seq
                match event.WhichOneof("event"):
                    case "run_stopped":
                        return event.run_stopped.run
                    case "approval_requested":
                        return event.approval_requested.approval
        finally:
            # An abandoned call is not cancelled by itself.
            call.cancel()

    async def _stopped(self, cursor: Cursor) -> run_pb2.Run | None:
        """The run, if its stream ended without a word because it had stopped before the cursor."""
        run = await self._client.run(cursor.run_id)
        return run if run.state in _FINAL else None


# CANCELLED, when it was not us: a server that stops says so to calls it has not taken up yet (grpc/grpc#41785).
_LOST = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)


def _is_lost(error: grpc.aio.AioRpcError | TimeoutError) -> bool:
    return isinstance(error, TimeoutError) or error.code() in _LOST
