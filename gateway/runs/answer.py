"""The answers to a message: the whole of it as JSON, or frame by frame."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, TypeVar

import grpc.aio

from common.pb.bridle.v1 import approval_service_pb2
from gateway import errors
from gateway.http.events import EventStream
from gateway.http.problems import Problem
from gateway.messages import ending
from gateway.messages.live import LiveMessages, View
from gateway.messages.model import LettaMessage, LettaResponse, StopReason
from gateway.runs import begin as beginning
from gateway.runs.follow import END, FINAL, HEARTBEAT, follow

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable

    from gateway.http.endpoint import Exchange
    from gateway.messages.inputs import SendBody
    from gateway.runs.begin import Begun, Where

T = TypeVar("T")

# On streams these are not HTTP errors: the SDKs' users catch them while they read.
_IN_STREAM: Final = frozenset(
    {"PENDING_APPROVAL", "NO_PENDING_APPROVAL", "APPROVAL_ALREADY_DECIDED", "APPROVAL_MISMATCH"}
)
_GONE: Final = Problem(410, {"detail": "The events of this run are no longer kept; its messages are."})


async def begin(exchange: Exchange[SendBody, Any], where: Where) -> Begun:
    """Start a run or answer one; a refusal names what is pending."""
    try:
        return await beginning.begin(exchange, where)
    except grpc.aio.AioRpcError as error:
        failure = errors.read(error)
        if failure.reason != "PENDING_APPROVAL":
            raise
        raise errors.problem(failure, await _pending_message(exchange, failure.metadata)) from None


async def _pending_message(exchange: Exchange[Any, Any], metadata: dict[str, str]) -> str:
    """The message that asks. Only for the text of an error: without it the error is still right."""
    request = approval_service_pb2.GetApprovalRequest(approval_id=metadata.get("approval_id", ""))
    with contextlib.suppress(grpc.aio.AioRpcError):
        return str((await exchange.caller(exchange.backend.approvals.GetApproval, request)).message_id)
    return ""


async def whole(exchange: Exchange[SendBody, Any], where: Where) -> LettaResponse:
    """Wait for the end of the run (or for its question), then tell all of it. The run goes on if the client leaves."""
    begun = await begin(exchange, where)
    view = await beginning.view(exchange, where)
    return await while_there(exchange, _collect(exchange, begun, View(types=view.types, summaries=view.summaries)))


async def while_there(exchange: Exchange[Any, Any], work: Awaitable[T]) -> T:
    """Do the work, but not for a client that has hung up."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(exchange.gone())
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise Problem(499, {"detail": "The client went away."})
        return task.result()
    finally:
        for each in (task, gone):
            each.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _collect(exchange: Exchange[Any, Any], begun: Begun, view: View) -> LettaResponse:
    live = LiveMessages(begun.run.id, view)
    messages: list[LettaMessage] = []
    run = begun.run
    if not begun.idle:
        async with aclosing(follow(exchange, run.id, begun.after_seq, skip_deltas=True)) as events:
            async for kind, found in events:
                if kind is END:
                    run = found
                elif kind is not HEARTBEAT:
                    messages += live.objects(kind, found)
    problem = errors.run_problem(run)
    if problem is not None:
        raise problem
    reason = ending.stop_reason(run.stop_reason) or "error"
    return LettaResponse(messages, StopReason(reason), ending.usage(run, begun.before))


async def streamed(exchange: Exchange[SendBody, Any], where: Where) -> EventStream:
    """Start a run or answer one, and show what comes of it as it comes."""
    view = await beginning.view(exchange, where)
    try:
        begun = await beginning.begin(exchange, where)
    except grpc.aio.AioRpcError as error:
        failure = errors.read(error)
        if failure.reason not in _IN_STREAM:
            raise
        return EventStream(_single(ending.failure_frames(failure, "")))
    if begun.idle:
        return EventStream(_single(ending.frames(begun.run, begun.before, None)))
    events = follow(exchange, begun.run.id, begun.after_seq, skip_deltas=not view.tokens)
    return EventStream(_frames(begun, view, events))


async def _single(content: bytes) -> AsyncGenerator[bytes, None]:
    yield content


async def _frames(
    begun: Begun, view: View, events: AsyncGenerator[tuple[str, Any], None], first: tuple[str, Any] | None = None
) -> AsyncGenerator[bytes, None]:
    """All frames of a run, the ending included, whatever happens to the server meanwhile."""
    live = LiveMessages(begun.run.id, view)

    def shown(kind: str, found: Any) -> bytes:
        if kind is END:
            return ending.frames(found, begun.before, live.last_seq if view.numbered else None)
        return live.ping() if kind is HEARTBEAT else live.frames(kind, found)

    try:
        async with aclosing(events):
            if first is not None:
                content = shown(*first)
                if content:
                    yield content
            async for kind, found in events:
                content = shown(kind, found)
                if content:
                    yield content
    except grpc.aio.AioRpcError as error:
        yield ending.failure_frames(errors.read(error), begun.run.id, "stream_incomplete")


async def replayed(exchange: Exchange[Any, Any], begun: Begun, view: View) -> EventStream:
    """The frames of a run that was begun earlier; of one that has stopped, 410 if its events are no longer kept."""
    if begun.idle:
        return EventStream(_single(ending.frames(begun.run, None, None)))
    events = follow(exchange, begun.run.id, begun.after_seq, skip_deltas=not view.tokens)
    if begun.run.state not in FINAL:
        return EventStream(_frames(begun, view, events))
    first = await anext(events)
    if first[0] == "truncated":
        await events.aclose()
        raise _GONE
    return EventStream(_frames(begun, view, events, first))
