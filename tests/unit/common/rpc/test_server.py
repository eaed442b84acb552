"""common/rpc/server.py and health.py on real servers."""

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from prometheus_client import CollectorRegistry

from common.clock import SystemClock
from common.errors import Unauthenticated
from common.rpc.chain import ChainLimits, build_chain
from common.rpc.health import LIVENESS, OVERALL, READINESS, Health
from common.rpc.server import BindError, PortInUse, add_infrastructure, bind, build_server, graceful_stop
from common.startup import StartupError
from common.telemetry.metrics import Metrics

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


class Nobody:
    """Refuses every caller."""

    async def authenticate(self, method: str, metadata: Any) -> Any:
        raise Unauthenticated


class Rig:
    """A server that has only health and reflection, refuses everybody and has no slot free."""

    def __init__(self) -> None:
        self.health = Health()
        chain = build_chain(
            clock=SystemClock(),
            metrics=Metrics(CollectorRegistry()),
            authenticator=Nobody(),
            translate=lambda _: None,
            limits=ChainLimits(max_concurrent_calls=0, max_concurrent_streams=0),
        )
        self.server = build_server(chain)
        add_infrastructure(self.server, self.health, ["bridle.v1.AgentService"])
        self.port = bind(self.server, "127.0.0.1:0")
        self.channel: Any = grpc.aio.insecure_channel(f"127.0.0.1:{self.port}")
        self.stub: Any = health_pb2_grpc.HealthStub(self.channel)

    async def check(self, name: str) -> int:
        answer = await self.stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=10)
        return int(answer.status)

    async def statuses(self) -> list[int]:
        return [await self.check(name) for name in (OVERALL, LIVENESS, READINESS)]

    def watch(self, name: str) -> Any:
        return self.stub.Watch(health_pb2.HealthCheckRequest(service=name), timeout=10)


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    made = Rig()
    await made.server.start()
    yield made
    await made.channel.close()
    await graceful_stop(made.server, 0)


async def test_health_needs_no_credential_and_starts_not_serving(rig: Rig) -> None:
    assert await rig.statuses() == [NOT_SERVING] * 3
    rig.health.set_ready(True)
    assert await rig.statuses() == [SERVING] * 3


async def test_losing_readiness_or_draining_keeps_the_process_alive(rig: Rig) -> None:
    rig.health.set_ready(True)
    rig.health.set_ready(False)
    assert await rig.statuses() == [NOT_SERVING, SERVING, NOT_SERVING]
    rig.health.set_ready(True)
    rig.health.enter_drain()
    rig.health.set_ready(True)
    assert await rig.statuses() == [NOT_SERVING, SERVING, NOT_SERVING], "a drain is for good"


async def test_an_unknown_health_name_is_not_found(rig: Rig) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await rig.check("nope")
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    watch = rig.watch("nope")
    assert (await watch.read()).status == UNKNOWN
    watch.cancel()


async def test_a_watcher_sees_changes_and_does_not_hold_the_shutdown(rig: Rig) -> None:
    watch = rig.watch(READINESS)
    assert (await watch.read()).status == NOT_SERVING
    rig.health.set_ready(True)
    assert (await watch.read()).status == SERVING
    rig.health.enter_drain()
    assert (await watch.read()).status == NOT_SERVING
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await watch.read()
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    started = asyncio.get_running_loop().time()
    await graceful_stop(rig.server, 10)
    assert asyncio.get_running_loop().time() - started < 5


async def test_reflection_lists_the_services(rig: Rig) -> None:
    stub: Any = reflection_pb2_grpc.ServerReflectionStub(rig.channel)
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    answers = [each async for each in stub.ServerReflectionInfo([request], timeout=10)]
    names = {each.name for each in answers[0].list_services_response.service}
    assert names == {
        "bridle.v1.AgentService",
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
    }


async def test_a_second_server_on_the_port_is_refused(rig: Rig) -> None:
    second = build_server([])
    with pytest.raises(PortInUse, match=rf"^cannot listen on 127\.0\.0\.1:{rig.port}: the port is in use$"):
        bind(second, f"127.0.0.1:{rig.port}")


async def test_a_name_with_one_address_taken_is_refused() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(PortInUse):
            bind(build_server([]), f"localhost:{taken.getsockname()[1]}")


@pytest.mark.parametrize("address", ["no-such-host.invalid:1", "127.0.0.1:port", "127.0.0.1:99999", "203.0.113.9:0"])
async def test_an_address_that_cannot_be_bound_is_one_clear_line(address: str) -> None:
    with pytest.raises(BindError) as caught:
        bind(build_server([]), address)
    assert isinstance(caught.value, StartupError)
    assert str(caught.value).startswith(f"cannot listen on {address}: ")
    assert "\n" not in str(caught.value)


async def test_open_calls_finish_within_the_grace() -> None:
    release, entered = asyncio.Event(), asyncio.Event()

    async def slow(request: bytes, _context: Any) -> bytes:
        entered.set()
        await release.wait()
        return request

    server = build_server([])
    handlers: dict[str, Any] = {"Slow": grpc.unary_unary_rpc_method_handler(slow)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Slow", handlers),))
    port = bind(server, "127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        slow_call: Any = channel.unary_unary("/test.Slow/Slow")
        call = asyncio.ensure_future(slow_call(b"done", timeout=10))
        await entered.wait()
        stopping = asyncio.ensure_future(graceful_stop(server, 10))
        await asyncio.sleep(0.05)
        assert not stopping.done()
        release.set()
        assert await call == b"done"
        await stopping
