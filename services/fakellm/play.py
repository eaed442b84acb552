"""Plays a script on a connection: delays, faults, errors."""

import asyncio

from services.fakellm import failures
from services.fakellm.connection import Connection
from services.fakellm.frames import Frame, Place, Writer
from services.fakellm.http import CHUNKED, head, json_response
from services.fakellm.outlet import Outlet
from services.fakellm.record import Ended, Exchange
from services.fakellm.scripts import Answer, Failure, Fault, FaultKind
from services.fakellm.strokes import Kind, strokes

_REQUEST_ID = (("x-request-id", failures.REQUEST_ID), ("request-id", failures.REQUEST_ID))
_STREAM_HEAD = head(
    200, ("content-type", "text/event-stream; charset=utf-8"), ("cache-control", "no-cache"), CHUNKED, *_REQUEST_ID
)
_TOLD = (FaultKind.ERROR, FaultKind.FAILED)


class Player:
    """Answers one request."""

    def __init__(self, connection: Connection, exchange: Exchange) -> None:
        self._connection = connection
        self._exchange = exchange

    async def fail(self, failure: Failure) -> None:
        """Answer with an HTTP error."""
        if failure.delay:
            await asyncio.sleep(failure.delay)
        headers = list(_REQUEST_ID)
        if failure.retry_after is not None:
            headers.append(("retry-after", f"{failure.retry_after:g}"))
        status = failures.status_of(self._exchange.api, failure)
        if failure.body is None:
            start, body = json_response(status, failures.body(self._exchange.api, failure), *headers)
        else:
            body = failure.body.encode()
            start = head(status, ("content-type", "text/html"), ("content-length", str(len(body))), *headers)
        await self._send(status, start, body)
        self._exchange.end(Ended.COMPLETED)

    async def answer(self, answer: Answer, writer: Writer, stream: bool) -> None:
        """Answer with a turn of the model, in a stream or in one piece."""
        fault = answer.fault
        if fault is not None and not fault.headers:
            await asyncio.sleep(answer.first_delay)
            await self._break(fault)
        elif stream:
            await self._stream(answer, writer, Outlet(self._connection, self._exchange, answer.wire))
        else:
            await self._whole(answer, writer)

    async def _whole(self, answer: Answer, writer: Writer) -> None:
        tokens = sum(stroke.kind is Kind.PIECE for stroke in strokes(answer)) if answer.token_delay else 0
        await asyncio.sleep(answer.first_delay + answer.token_delay * max(0, tokens - 1))
        fault = answer.fault
        if fault is not None and fault.kind in _TOLD:
            await self.fail(fault.failure)
            return
        start, body = json_response(200, writer.whole(), *_REQUEST_ID)
        await self._send(200, start, body if fault is None else body[: len(body) // 2])
        if fault is None:
            self._exchange.end(Ended.COMPLETED)
        else:
            await self._break(fault)

    async def _send(self, status: int, start: bytes, body: bytes) -> None:
        self._exchange.status = status
        self._connection.write(start + body)
        self._exchange.bytes_sent = len(body)
        await self._connection.drain()

    async def _stream(self, answer: Answer, writer: Writer, outlet: Outlet) -> None:
        exchange, fault, pings = self._exchange, answer.fault, answer.wire.ping_every
        exchange.status = 200
        self._connection.write(_STREAM_HEAD)
        for frame in writer.frames():
            if fault is not None and _strikes(fault, frame, exchange.tokens_sent):
                await self._fault(fault, frame, writer, outlet)
                return
            if frame.place is Place.TOKEN:
                delay = answer.token_delay if exchange.tokens_sent else answer.first_delay
                if delay:
                    await outlet.flush()
                    await asyncio.sleep(delay)
                exchange.tokens_sent += 1
            await outlet.event(frame.data)
            if pings and frame.place is Place.TOKEN and exchange.tokens_sent % pings == 0:
                await outlet.event(writer.ping)
        await outlet.finish()
        exchange.end(Ended.COMPLETED)

    async def _fault(self, fault: Fault, frame: Frame, writer: Writer, outlet: Outlet) -> None:
        if fault.partial:
            await outlet.event(frame.data[: len(frame.data) // 2])
        if fault.kind in _TOLD:
            await outlet.event(writer.error(fault))
        if fault.kind in (*_TOLD, FaultKind.END):
            await outlet.finish()
            self._exchange.end(Ended.COMPLETED)
            return
        await outlet.flush()
        await self._break(fault)

    async def _break(self, fault: Fault) -> None:
        """What happens to the connection."""
        if fault.kind is FaultKind.STALL:
            # Until the client hangs up, which cancels this task.
            await asyncio.Event().wait()
        elif fault.kind is FaultKind.RESET:
            self._exchange.end(Ended.RESET)
            await self._connection.reset()
        else:
            self._exchange.end(Ended.CUT)
            self._connection.close()


def _strikes(fault: Fault, frame: Frame, sent: int) -> bool:
    """Whether it happens now, before this frame. What comes after the last token counts as one place."""
    if fault.after < 0:
        return frame.place is Place.LAST
    if frame.place >= Place.TAIL:
        return True
    return sent >= fault.after and (sent > 0 or frame.place is Place.TOKEN)
