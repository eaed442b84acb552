"""The whole interceptor chain on a real server: what a client sees, what is logged and counted."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf import wrappers_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status
from prometheus_client import CollectorRegistry

from common.clock import SystemClock
from common.errors import (
    BridleError,
    IllegalTransition,
    InvalidArgument,
    NotFound,
    StoreUnavailable,
    Unauthenticated,
)
from common.ids import OrganizationId
from common.rpc.auth import Anonymous, Authenticator, Identity
from common.rpc.chain import ChainLimits, build_chain
from common.rpc.context import CallContext, current_call
from common.rpc.server import bind, build_server, graceful_stop
from common.telemetry.metrics import Metrics
from tests.helpers import eventually

SECRET = "password=hunter2"
SERVICE = "test.Probe"

Unary = Callable[[Any, Any], Awaitable[Any]]
Stream = Callable[[Any, Any], AsyncGenerator[Any, None]]


class Rig:
    """A running server and a channel to it."""

    def __init__(self, channel: Any, port: int, registry: CollectorRegistry) -> None:
        self.channel = channel
        self.port = port
        self.registry = registry

    async def call(self, method: str = "Unary", request: bytes = b"", **options: Any) -> Any:
        options.setdefault("timeout", 10)
        return await self.channel.unary_unary(f"/{SERVICE}/{method}")(request, **options)

    def stream(self, method: str = "Stream", **options: Any) -> Any:
        return self.channel.unary_stream(f"/{SERVICE}/{method}")(b"", **options)

    def counted(self, code: str, method: str = f"/{SERVICE}/Unary") -> float:
        labels = {"method": method, "code": code}
        return self.registry.get_sample_value("bridle_rpc_server_seconds_count", labels) or 0

    def in_flight(self, method: str) -> float | None:
        return self.registry.get_sample_value("bridle_rpc_server_in_flight", {"method": f"/{SERVICE}/{method}"})

    def sent(self) -> float | None:
        labels = {"method": f"/{SERVICE}/Stream"}
        return self.registry.get_sample_value("bridle_rpc_server_messages_sent_total", labels)


@asynccontextmanager
async def serving(
    unary: Unary | None = None,
    stream: Stream | None = None,
    *,
    handlers: Mapping[str, Any] | None = None,
    limits: ChainLimits | None = None,
    authenticator: Authenticator | None = None,
    translate: Callable[[Exception], BridleError | None] = lambda _: None,
) -> AsyncIterator[Rig]:
    registry = CollectorRegistry()
    chain = build_chain(
        clock=SystemClock(),
        metrics=Metrics(registry),
        authenticator=authenticator or Anonymous(),
        translate=translate,
        limits=limits or ChainLimits(),
    )
    methods: dict[str, Any] = dict(handlers or {})
    if unary is not None:
        methods["Unary"] = grpc.unary_unary_rpc_method_handler(unary)
    if stream is not None:
        methods["Stream"] = grpc.unary_stream_rpc_method_handler(stream)
    server = build_server(chain, max_message_bytes=64 * 1024)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
    port = bind(server, "127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield Rig(channel, port, registry)
    await graceful_stop(server, 0)


def raising(error: BaseException) -> Unary:
    async def handler(_request: Any, _context: Any) -> bytes:
        raise error

    return handler


async def echo(request: Any, _context: Any) -> Any:
    return request


async def failure(awaitable: Awaitable[Any]) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await awaitable
    return caught.value


def details(error: grpc.aio.AioRpcError) -> tuple[status_pb2.Status, error_details_pb2.ErrorInfo]:
    """The status in the trailers and its only ErrorInfo; they agree with the code and text."""
    status = rpc_status.from_call(error)  # type: ignore[arg-type]  # reads only what both have
    assert status is not None
    infos = [each for each in status.details if each.Is(error_details_pb2.ErrorInfo.DESCRIPTOR)]
    assert len(infos) == 1
    info = error_details_pb2.ErrorInfo()
    infos[0].Unpack(info)
    assert info.domain == "bridle.dev"
    return status, info


def access_lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [vars(record)["fields"] for record in caplog.records if record.name == "bridle.access"]


async def test_a_domain_error_keeps_its_code_reason_text_and_metadata() -> None:
    async with serving(raising(NotFound("agent", "agent-1"))) as rig:
        error = await failure(rig.call())
    assert error.code() is grpc.StatusCode.NOT_FOUND
    assert error.details() == "agent 'agent-1' was not found."
    _, info = details(error)
    assert info.reason == "RESOURCE_NOT_FOUND"
    assert dict(info.metadata) == {"resource": "agent", "id": "agent-1"}


async def test_field_errors_come_as_bad_request() -> None:
    async with serving(raising(InvalidArgument.of("page_size", "must not be negative"))) as rig:
        error = await failure(rig.call())
    status, info = details(error)
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert info.metadata["fields"] == "page_size"
    bad = error_details_pb2.BadRequest()
    assert status.details[1].Unpack(bad)
    assert [(each.field, each.description) for each in bad.field_violations] == [("page_size", "must not be negative")]


async def test_an_unexpected_error_is_internal_and_shows_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(raising(ValueError(SECRET))) as rig:
        error = await failure(rig.call(metadata=(("x-request-id", "req-7"),)))
    status, info = details(error)
    assert error.code() is grpc.StatusCode.INTERNAL
    assert SECRET not in f"{error}{status}{error.trailing_metadata()}"
    assert (info.reason, dict(info.metadata)) == ("INTERNAL", {"request_id": "req-7"})
    assert SECRET in caplog.text, "the operator's log has the cause"


async def test_an_error_of_the_store_goes_through_the_translator() -> None:
    def translate(error: Exception) -> BridleError | None:
        return StoreUnavailable() if isinstance(error, OSError) else None

    async with serving(raising(OSError(SECRET)), translate=translate) as rig:
        error = await failure(rig.call())
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert details(error)[1].reason == "STORE_UNAVAILABLE"
    assert SECRET not in str(error)


async def test_a_cancel_inside_the_server_never_leaves_the_client_waiting() -> None:
    async def waits_for_a_cancelled_task(_request: Any, _context: Any) -> bytes:
        task = asyncio.ensure_future(asyncio.sleep(60))
        asyncio.get_running_loop().call_soon(task.cancel)
        await task
        return b""

    async with serving(waits_for_a_cancelled_task) as rig:
        error = await failure(rig.call())
        assert error.code() is grpc.StatusCode.ABORTED
        assert details(error)[1].reason == "INTERNAL_CANCELLED"
        assert rig.counted("ABORTED") == 1


async def test_a_cancel_inside_a_stream_ends_it_with_a_status() -> None:
    async def stream(_request: Any, _context: Any) -> AsyncGenerator[bytes, None]:
        yield b"one"
        raise asyncio.CancelledError

    async with serving(stream=stream) as rig:
        call = rig.stream(timeout=10)
        assert await call.read() == b"one"
        error = await failure(call.read())
    assert error.code() is grpc.StatusCode.ABORTED
    assert details(error)[1].reason == "INTERNAL_CANCELLED"


@pytest.mark.parametrize(
    ("error", "code", "reason"),
    [
        (IllegalTransition("run", "run-1", "COMPLETED", "cancel"), "FAILED_PRECONDITION", "ILLEGAL_TRANSITION"),
        (ValueError(SECRET), "INTERNAL", "INTERNAL"),
    ],
)
async def test_a_stream_that_fails_midway_ends_with_the_error(error: Exception, code: str, reason: str) -> None:
    async def stream(_request: Any, _context: Any) -> AsyncGenerator[bytes, None]:
        yield b"one"
        yield b"two"
        raise error

    async with serving(stream=stream) as rig:
        call = rig.stream(timeout=10)
        assert [await call.read(), await call.read()] == [b"one", b"two"]
        seen = await failure(call.read())
        assert seen.code().name == code
        assert details(seen)[1].reason == reason
        assert SECRET not in str(seen)
        assert rig.sent() == 2
        assert rig.counted(code, f"/{SERVICE}/Stream") == 1


async def test_a_handler_without_a_deadline_gets_the_default_one() -> None:
    async def hang(_request: Any, _context: Any) -> bytes:
        await asyncio.sleep(60)
        return b""

    limits = ChainLimits(default_deadline_seconds=60, deadline_seconds={f"/{SERVICE}/Unary": 0.05})
    async with serving(hang, limits=limits) as rig:
        error = await failure(rig.call(timeout=None))
        assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert dict(details(error)[1].metadata) == {"seconds": "0.05"}


async def test_the_clients_own_deadline_wins_and_is_counted_as_such() -> None:
    cancelled = asyncio.Event()

    async def hang(_request: Any, _context: Any) -> bytes:
        try:
            await asyncio.sleep(60)
        finally:
            cancelled.set()
        return b""

    async with serving(hang) as rig:
        error = await failure(rig.call(timeout=0.1))
        assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await asyncio.wait_for(cancelled.wait(), 5)
        await eventually(lambda: rig.counted("DEADLINE_EXCEEDED") == 1)


async def test_a_timeout_inside_the_handler_is_not_the_deadline() -> None:
    async with serving(raising(TimeoutError(SECRET))) as rig:
        error = await failure(rig.call(timeout=None))
    assert error.code() is grpc.StatusCode.INTERNAL


async def test_a_client_that_hangs_up_cancels_a_waiting_stream() -> None:
    closed_in: list[bool] = []

    async def stream(_request: Any, _context: Any) -> AsyncGenerator[bytes, None]:
        task = asyncio.current_task()
        try:
            yield b"one"
            await asyncio.sleep(60)
        finally:
            closed_in.append(asyncio.current_task() is task)

    async with serving(stream=stream) as rig:
        call = rig.stream()
        assert await call.read() == b"one"
        assert rig.in_flight("Stream") == 1
        call.cancel()
        await eventually(lambda: rig.counted("CANCELLED", f"/{SERVICE}/Stream") == 1)
        assert rig.in_flight("Stream") == 0
    assert closed_in == [True]


async def test_a_client_that_hangs_up_during_a_write_closes_the_stream_in_its_own_task(
    caplog: pytest.LogCaptureFixture,
) -> None:
    state: dict[str, Any] = {"produced": 0}

    async def stream(_request: Any, _context: Any) -> AsyncGenerator[bytes, None]:
        task, call = asyncio.current_task(), current_call()
        try:
            while True:
                yield b"x" * 60_000
                state["produced"] += 1
        finally:
            state["same"] = asyncio.current_task() is task and current_call() is call

    async with serving(stream=stream) as rig:
        call = rig.stream()
        await call.read()
        produced = -1
        while produced != state["produced"]:  # until the client's window is full and a write waits
            produced = state["produced"]
            await asyncio.sleep(0.1)
        call.cancel()
        await eventually(lambda: rig.counted("CANCELLED", f"/{SERVICE}/Stream") == 1)
    assert state["same"] is True
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_a_clean_up_that_fails_after_the_client_hung_up_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    entered = asyncio.Event()

    async def fails_when_cancelled(_request: Any, _context: Any) -> bytes:
        try:
            entered.set()
            await asyncio.sleep(60)
        finally:
            raise ValueError("clean-up")

    async with serving(fails_when_cancelled) as rig:
        call = asyncio.ensure_future(rig.call())
        await entered.wait()
        call.cancel()
        await eventually(lambda: rig.counted("INTERNAL") == 1)
        await eventually(lambda: rig.in_flight("Unary") == 0)
    errors = [record.name for record in caplog.records if record.levelno >= logging.ERROR]
    assert sorted(errors) == ["bridle.access", "common.rpc.errors"]


async def test_limits_refuse_with_a_time_to_retry_and_recover() -> None:
    release = asyncio.Event()

    async def wait(_request: Any, _context: Any) -> bytes:
        await release.wait()
        return b"done"

    async with serving(wait, limits=ChainLimits(max_concurrent_calls=1)) as rig:
        first = asyncio.ensure_future(rig.call())
        await eventually(lambda: rig.in_flight("Unary") == 1)
        status, info = details(error := await failure(rig.call()))
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert dict(info.metadata) == {"limit": "concurrent calls", "maximum": "1"}
        retry = error_details_pb2.RetryInfo()
        assert status.details[1].Unpack(retry)
        assert retry.retry_delay.seconds == 1
        release.set()
        assert await first == b"done"
        for _ in range(20):
            assert await rig.call() == b"done"


async def test_streams_have_a_limit_of_their_own() -> None:
    async def stream(_request: Any, _context: Any) -> AsyncGenerator[bytes, None]:
        yield b"one"
        await asyncio.sleep(60)

    async with serving(echo, stream, limits=ChainLimits(max_concurrent_streams=1)) as rig:
        first = rig.stream()
        await first.read()
        error = await failure(rig.stream(timeout=10).read())
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await rig.call(request=b"short") == b"short"
        first.cancel()
        await eventually(lambda: rig.in_flight("Stream") == 0)
        again = rig.stream()
        assert await again.read() == b"one"
        again.cancel()


class OneKey:
    """Knows one key."""

    async def authenticate(self, method: str, metadata: Mapping[str, str | bytes]) -> Identity:
        if metadata.get("authorization") != "Bearer good":
            raise Unauthenticated
        return Identity(OrganizationId("org-1"), "key-1")


async def test_auth_failures_are_counted_and_an_identity_reaches_the_handler() -> None:
    seen: list[CallContext] = []

    async def remember(request: Any, _context: Any) -> Any:
        seen.append(current_call())
        return request

    async with serving(remember, authenticator=OneKey()) as rig:
        error = await failure(rig.call())
        assert error.code() is grpc.StatusCode.UNAUTHENTICATED
        assert details(error)[1].reason == "UNAUTHENTICATED"
        assert rig.counted("UNAUTHENTICATED") == 1
        assert seen == []
        await rig.call(metadata=(("authorization", "Bearer good"), ("x-request-id", "req-1")))
    assert seen == [CallContext("req-1", f"/{SERVICE}/Unary", OrganizationId("org-1"), "key-1")]


@pytest.mark.parametrize("given", ["req-abc", None, "has space", "x" * 129])
async def test_the_request_id_is_the_clients_if_usable_and_is_sent_back(given: str | None) -> None:
    ids: list[str] = []

    async def remember(request: Any, _context: Any) -> Any:
        ids.append(current_call().request_id)
        return request

    async with serving(remember) as rig:
        metadata = (("x-request-id", given),) if given else ()
        call = rig.channel.unary_unary(f"/{SERVICE}/Unary")(b"", metadata=metadata, timeout=10)
        await call
        trailers = dict(await call.trailing_metadata())
    assert trailers["x-request-id"] == ids[0]
    assert (ids[0] == given) is (given == "req-abc")


async def test_each_rpc_is_one_access_line(caplog: pytest.LogCaptureFixture) -> None:
    async def stream(_request: Any, _context: Any) -> AsyncGenerator[bytes, None]:
        yield b"one"
        yield b"two"

    caplog.set_level(logging.INFO)
    async with serving(raising(NotFound("agent", "a")), stream) as rig:
        await failure(rig.call(metadata=(("x-request-id", "req-1"),)))
        assert [message async for message in rig.stream(timeout=10)] == [b"one", b"two"]
        await eventually(lambda: len(access_lines(caplog)) == 2)
    first, second = access_lines(caplog)
    assert (first["request_id"], first["code"], first["method"]) == ("req-1", "NOT_FOUND", f"/{SERVICE}/Unary")
    assert (second["code"], second["sent"]) == ("OK", 2)


async def test_unknown_methods_are_unimplemented_and_share_one_label() -> None:
    async with serving(echo) as rig:
        for name in ("Nope", "Nada"):
            error = await failure(rig.call(name))
            assert error.code() is grpc.StatusCode.UNIMPLEMENTED
            assert details(error)[1].reason == "NOT_IMPLEMENTED"
        assert rig.counted("UNIMPLEMENTED", "unknown") == 2


def not_overridden(_request: Any, context: Any) -> Any:
    """What protoc generates for a method that a servicer leaves out."""
    context.set_code(grpc.StatusCode.UNIMPLEMENTED)
    context.set_details("Method not implemented!")
    raise NotImplementedError("Method not implemented!")


async def test_a_method_left_out_of_a_servicer_is_unimplemented() -> None:
    handlers: dict[str, Any] = {
        "Unary": grpc.unary_unary_rpc_method_handler(not_overridden),
        "Stream": grpc.unary_stream_rpc_method_handler(not_overridden),
    }
    async with serving(handlers=handlers) as rig:
        for call in (rig.call(), rig.stream(timeout=10).read()):
            error = await failure(call)
            assert error.code() is grpc.StatusCode.UNIMPLEMENTED
            assert details(error)[1].reason == "NOT_IMPLEMENTED"


async def test_messages_are_checked_inside_the_chain() -> None:
    async def answer(request: wrappers_pb2.StringValue, _context: Any) -> Any:
        return None if request.value == "bad" else request

    handler = grpc.unary_unary_rpc_method_handler(
        answer, wrappers_pb2.StringValue.FromString, wrappers_pb2.StringValue.SerializeToString
    )
    async with serving(handlers={"Unary": handler}) as rig:
        good = wrappers_pb2.StringValue(value="good").SerializeToString()
        assert await rig.call(request=good) == good
        malformed = await failure(rig.call(request=b"\xff\xff"))
        assert malformed.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert details(malformed)[1].metadata["fields"] == "request"
        wrong = await failure(rig.call(request=wrappers_pb2.StringValue(value="bad").SerializeToString()))
        assert wrong.code() is grpc.StatusCode.INTERNAL
        assert details(wrong)[1].reason == "INTERNAL"


async def test_an_oversize_request_is_refused() -> None:
    async with serving(echo) as rig:
        error = await failure(rig.call(request=b"x" * 70_000))
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await rig.call(request=b"after") == b"after"


async def test_an_error_too_large_for_trailers_still_arrives() -> None:
    async with serving(raising(NotFound("agent", "ü" * 20_000))) as rig:
        error = await failure(rig.call())
    assert error.code() is grpc.StatusCode.NOT_FOUND
    assert details(error)[1].reason == "RESOURCE_NOT_FOUND"
