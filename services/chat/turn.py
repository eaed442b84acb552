"""One run while a person watches it: Ctrl-C cancels the run, and once more leaves it alone."""

from __future__ import annotations

import asyncio
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

import grpc.aio

from services.chat.follow import Cursor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from common.pb.bridle.v1 import approval_pb2, message_pb2, run_pb2
    from services.chat.client import Client
    from services.chat.follow import Follower


class Left(Exception):
    """The person stopped watching a run that may still be going on."""


class Turn:
    """A run from what was said to its end, in pieces: each ends when the run has stopped or asks something."""

    def __init__(self, client: Client, follower: Follower, note: Callable[[str], None]) -> None:
        self._client = client
        self._follower = follower
        self._note = note
        self._cursor = Cursor("")

    async def say(self, agent_id: str, text: str) -> run_pb2.Run | approval_pb2.Approval:
        """Start a run with a message."""
        with _interrupts() as presses:
            started = await self._client.start(agent_id, text)
            self._cursor = Cursor(started.run.id, started.after_seq)
            return await self._watch(presses)

    async def rejoin(self, run_id: str) -> None:
        """Take over a run of an earlier turn from where it stands now."""
        run = await self._client.run(run_id)
        self._cursor = Cursor(run_id, run.last_seq)

    async def answer(
        self, approval: approval_pb2.Approval, decisions: Sequence[message_pb2.Decision]
    ) -> run_pb2.Run | approval_pb2.Approval:
        """Answer what the run waits for, and go on with it."""
        with _interrupts() as presses:
            try:
                await self._client.answer(approval, decisions)
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.FAILED_PRECONDITION:
                    raise
                # Somebody else was faster; the run goes on with their answer.
                self._note(self._client.describe(error))
            return await self._watch(presses)

    async def cancel(self) -> run_pb2.Run | approval_pb2.Approval:
        """Cancel a run that waits, and see it stop."""
        with _interrupts() as presses:
            presses.put_nowait(None)
            return await self._watch(presses)

    async def _watch(self, presses: asyncio.Queue[None]) -> run_pb2.Run | approval_pb2.Approval:
        following = asyncio.ensure_future(self._follower.follow(self._cursor))
        obeying = asyncio.ensure_future(self._obey(presses))
        try:
            await asyncio.wait({following, obeying}, return_when=asyncio.FIRST_COMPLETED)
            if following.done():
                return following.result()
            raise Left(self._cursor.run_id)
        finally:
            following.cancel()
            obeying.cancel()
            await asyncio.wait({following, obeying})

    async def _obey(self, presses: asyncio.Queue[None]) -> None:
        """Cancel the run at the first press; return at the second."""
        await presses.get()
        cancelling = asyncio.ensure_future(self._cancel())
        try:
            await presses.get()
        finally:
            cancelling.cancel()

    async def _cancel(self) -> None:
        self._note("cancelling; Ctrl-C again to leave without waiting")
        try:
            await self._client.cancel(self._cursor.run_id)
        except grpc.aio.AioRpcError as error:
            self._note(f"not cancelled: {self._client.describe(error)}")


@contextmanager
def _interrupts() -> Iterator[asyncio.Queue[None]]:
    """Every Ctrl-C in here is put into the queue instead of ending the program."""
    presses: asyncio.Queue[None] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, presses.put_nowait, None)
    try:
        yield presses
    finally:
        loop.remove_signal_handler(signal.SIGINT)
