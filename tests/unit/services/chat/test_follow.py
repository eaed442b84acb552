"""Following a run over a real channel, against a server whose streams are scripted."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import grpc.aio
import pytest

from common.pb.bridle.v1 import (
    approval_pb2,
    run_event_pb2,
    run_pb2,
    run_service_pb2,
    run_service_pb2_grpc,
)
from services.chat.client import Client
from services.chat.follow import Cursor, Follower, StreamLost

Response = run_service_pb2.StreamRunResponse
Script = list[Response | grpc.StatusCode]

RUNNING = run_pb2.Run(id="run-1", state=run_pb2.Run.STATE_RUNNING)
DONE = run_pb2.Run(id="run-1", state=run_pb2.Run.STATE_COMPLETED)


def word(seq: int) -> Response:
    delta = run_event_pb2.TextDelta(message_id="m", text=f"{seq} ")
    return Response(event=run_event_pb2.RunEvent(seq=seq, text_delta=delta))


def end(seq: int) -> Response:
    return Response(event=run_event_pb2.RunEvent(seq=seq, run_stopped=run_event_pb2.RunStopped(run=DONE)))


def question(seq: int, approval_id: str) -> Response:
    asked = run_event_pb2.ApprovalRequested(approval=approval_pb2.Approval(id=approval_id))
    return Response(event=run_event_pb2.RunEvent(seq=seq, approval_requested=asked))


def decided(seq: int) -> Response:
    return Response(event=run_event_pb2.RunEvent(seq=seq, approval_decided=run_event_pb2.ApprovalDecided()))


HEARTBEAT = Response(heartbeat=run_service_pb2.Heartbeat(last_seq=0))


class ScriptedServer(run_service_pb2_grpc.RunServiceServicer):
    """Each StreamRun plays the next script; the cursors it was asked for are kept."""

    def __init__(self, scripts: list[Script], run: run_pb2.Run) -> None:
        self._scripts = scripts
        self._run = run
        self.cursors: list[int] = []

    async def StreamRun(
        self, request: run_service_pb2.StreamRunRequest, context: grpc.aio.ServicerContext[object, object]
    ) -> AsyncIterator[Response]:
        self.cursors.append(request.after_seq)
        for item in self._scripts.pop(0) if self._scripts else [grpc.StatusCode.UNAVAILABLE]:
            if isinstance(item, grpc.StatusCode):
                await context.abort(item, "scripted")
            yield item

    async def GetRun(self, request: run_service_pb2.GetRunRequest, context: object) -> run_pb2.Run:
        return self._run


class Reader:
    """A follower and what it showed."""

    def __init__(self, client: Client, server: ScriptedServer) -> None:
        self.seen: list[int] = []
        self.notes: list[str] = []
        self.cursors = server.cursors
        self.follower = Follower(client, lambda event: self.seen.append(event.seq), self.notes.append, (0.01,) * 3)

    async def follow(self, after_seq: int = 0) -> run_pb2.Run | approval_pb2.Approval:
        return await self.follower.follow(Cursor("run-1", after_seq))


@asynccontextmanager
async def reader(*scripts: Script, run: run_pb2.Run = RUNNING) -> AsyncIterator[Reader]:
    server = grpc.aio.server()
    scripted = ScriptedServer(list(scripts), run)
    run_service_pb2_grpc.add_RunServiceServicer_to_server(scripted, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    client = Client(f"127.0.0.1:{port}")
    try:
        yield Reader(client, scripted)
    finally:
        await client.close()
        await server.stop(0)


async def test_shows_every_event_until_the_run_stops() -> None:
    async with reader([HEARTBEAT, word(1), word(2), HEARTBEAT, end(5)]) as it:
        assert await it.follow() == DONE
        assert it.seen == [1, 2, 5]
        assert it.notes == []


async def test_picks_up_at_the_last_event_after_a_lost_connection() -> None:
    lost = grpc.StatusCode.UNAVAILABLE
    async with reader([word(1), word(2), lost], [lost], [word(3), lost], [end(4)]) as it:
        assert await it.follow() == DONE
        assert it.seen == [1, 2, 3, 4]
        assert it.cursors == [0, 2, 2, 3]
        assert it.notes == ["connection lost; trying to pick up where it was"] * 2


async def test_gives_up_after_a_bounded_number_of_tries() -> None:
    async with reader([word(1), grpc.StatusCode.UNAVAILABLE]) as it:
        with pytest.raises(StreamLost, match="run-1"):
            await it.follow()
        assert it.cursors == [0, 1, 1, 1]


async def test_a_stream_that_ends_early_and_quietly_is_taken_up_again() -> None:
    async with reader([word(1)], [end(2)]) as it:
        assert await it.follow() == DONE
        assert it.seen == [1, 2]


async def test_any_other_error_is_not_retried() -> None:
    async with reader([grpc.StatusCode.NOT_FOUND]) as it:
        with pytest.raises(grpc.aio.AioRpcError):
            await it.follow()
        assert it.cursors == [0]


async def test_ends_with_the_approval_that_the_run_waits_for() -> None:
    async with reader([word(1), question(2, "approval-1")]) as it:
        ending = await it.follow()
        assert isinstance(ending, approval_pb2.Approval)
        assert ending.id == "approval-1"


async def test_goes_on_after_a_question() -> None:
    async with reader([question(1, "approval-0")], [decided(2), word(3), end(4)]) as it:
        await it.follow()
        assert await it.follow(after_seq=1) == DONE
        assert it.seen == [1, 2, 3, 4]
        assert it.cursors == [0, 1]


async def test_a_run_that_stopped_before_the_cursor_is_over() -> None:
    async with reader([], run=DONE) as it:
        assert await it.follow(after_seq=9) == DONE
