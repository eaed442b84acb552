"""Reading a run until it stops or waits for an answer, also across lost connections."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import grpc
import grpc.aio

from common.pb.bridle.v1 import run_pb2, run_service_pb2

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from gateway.http.endpoint import Exchange

FINAL: Final = frozenset({run_pb2.Run.STATE_COMPLETED, run_pb2.Run.STATE_FAILED, run_pb2.Run.STATE_CANCELLED})
WAITING: Final = run_pb2.Run.STATE_AWAITING_APPROVAL

HEARTBEAT: Final = "heartbeat"
END: Final = "end"

# A server that goes away says so with one of these; another one knows the run as well.
_LOST: Final = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED})
# Long enough for a server to be replaced; the client hears a sign of life at each longer pause.
_PAUSES: Final = (0.05, 0.2, 0.5, 1.0, *(2.0,) * 30)


async def follow(
    exchange: Exchange[Any, Any], run_id: str, after_seq: int, *, skip_deltas: bool
) -> AsyncGenerator[tuple[str, Any], None]:
    """`(kind, event)` for each event, `(HEARTBEAT, None)` for each sign of life, and at last `(END, run)`."""
    cursor, failures = after_seq, 0
    while True:
        request = run_service_pb2.StreamRunRequest(run_id=run_id, after_seq=cursor, skip_deltas=skip_deltas)
        try:
            async with exchange.caller.stream(exchange.backend.runs.StreamRun, request) as responses:
                async for response in responses:
                    if response.WhichOneof("response") != "event":
                        yield HEARTBEAT, None
                        continue
                    event = response.event
                    cursor, failures = event.seq, 0
                    kind = event.WhichOneof("event")
                    yield kind, event
                    end = await _end(exchange, kind, event)
                    if end is not None:
                        yield END, end
                        return
        except grpc.aio.AioRpcError as error:
            if not exchange.backend.remote or error.code() not in _LOST or failures == len(_PAUSES):
                raise
            await asyncio.sleep(_PAUSES[failures])
            failures += 1
            if _PAUSES[failures - 1] > 1:
                yield HEARTBEAT, None
            continue
        # The cursor was at the end already.
        yield END, await get_run(exchange, run_id)
        return


async def _end(exchange: Exchange[Any, Any], kind: str, event: Any) -> run_pb2.Run | None:
    """The run as it ends here, if it does. An approval in the log may have been answered long ago."""
    if kind == "run_stopped":
        stopped: run_pb2.Run = event.run_stopped.run
        return stopped
    if kind == "approval_requested":
        run = await get_run(exchange, event.approval_requested.approval.run_id)
        if waits_for(run, event.approval_requested.approval.id):
            return run
    return None


def waits_for(run: run_pb2.Run, approval_id: str) -> bool:
    """Whether the run waits, and for this approval."""
    return run.state == WAITING and run.approval_id == approval_id


async def get_run(exchange: Exchange[Any, Any], run_id: str) -> run_pb2.Run:
    """One run."""
    run: run_pb2.Run = await exchange.caller(exchange.backend.runs.GetRun, run_service_pb2.GetRunRequest(run_id=run_id))
    return run
