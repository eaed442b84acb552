"""Calls into the own process go through the same chain, and fail as they would over a socket."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import grpc
import grpc.aio
import pytest
from prometheus_client import CollectorRegistry

from common.clock import SystemClock
from common.errors import NotFound
from common.pb.bridle.v1 import run_pb2, run_service_pb2, run_service_pb2_grpc
from common.rpc.auth import Identity
from common.rpc.chain import ChainLimits, build_chain
from common.rpc.context import current_call
from common.rpc.inprocess import InProcessChannel
from common.telemetry.metrics import Metrics
from gateway import errors

Stub = run_service_pb2_grpc.RunServiceStub


class Runs(run_service_pb2_grpc.RunServiceServicer):
    """Says who is asking, and notes when a stream is closed."""

    def __init__(self) -> None:
        self.closed = 0

    async def GetRun(self, request: run_service_pb2.GetRunRequest, context: Any) -> run_pb2.Run:
        if not request.run_id:
            raise NotFound("run", "")
        if request.run_id == "broken":
            raise ValueError("a secret")
        return run_pb2.Run(id=current_call().request_id, agent_id=current_call().principal)

    async def StreamRun(
        self, request: run_service_pb2.StreamRunRequest, context: Any
    ) -> AsyncGenerator[run_service_pb2.StreamRunResponse, None]:
        try:
            while True:
                if not request.run_id:
                    raise NotFound("run", "")
                yield run_service_pb2.StreamRunResponse(run=run_pb2.Run(id="one"))
        finally:
            self.closed += 1


class Known:
    """Takes the credential for the name."""

    async def authenticate(self, method: str, metadata: Any) -> Identity:
        return Identity("org-1", metadata["authorization"])  # type: ignore[arg-type]


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def runs() -> Runs:
    return Runs()


@pytest.fixture
def stub(registry: CollectorRegistry, runs: Runs) -> Any:
    limits = ChainLimits(max_concurrent_streams=1)
    chain = build_chain(
        clock=SystemClock(),
        metrics=Metrics(registry),
        authenticator=Known(),
        translate=lambda _: None,
        limits=limits,
    )
    channel: Any = InProcessChannel(chain)
    run_service_pb2_grpc.add_RunServiceServicer_to_server(runs, channel)
    return Stub(channel)


ME = (("x-request-id", "mine"), ("authorization", "me"))


async def fails(call: Any) -> errors.RpcFailure:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return errors.read(caught.value)


async def test_a_call_is_identified_and_counted(stub: Any, registry: CollectorRegistry) -> None:
    run = await stub.GetRun(run_service_pb2.GetRunRequest(run_id="x"), metadata=ME, timeout=1)
    assert (run.id, run.agent_id) == ("mine", "me")
    labels = {"method": "/bridle.v1.RunService/GetRun", "code": "OK"}
    assert registry.get_sample_value("bridle_rpc_server_seconds_count", labels) == 1


async def test_errors_are_statuses_and_leak_nothing(stub: Any) -> None:
    missing = await fails(stub.GetRun(run_service_pb2.GetRunRequest(), metadata=ME))
    assert (missing.code, missing.reason) == (grpc.StatusCode.NOT_FOUND, "RESOURCE_NOT_FOUND")
    broken = await fails(stub.GetRun(run_service_pb2.GetRunRequest(run_id="broken"), metadata=ME))
    assert (broken.code, broken.reason) == (grpc.StatusCode.INTERNAL, "INTERNAL")
    assert "secret" not in broken.message
    not_served = await fails(stub.CancelRun(run_service_pb2.CancelRunRequest(), metadata=ME))
    assert (not_served.code, not_served.reason) == (grpc.StatusCode.UNIMPLEMENTED, "NOT_IMPLEMENTED")


async def test_a_stream_is_closed_with_its_reader_and_gives_its_place_back(stub: Any, runs: Runs) -> None:
    request = run_service_pb2.StreamRunRequest(run_id="x")
    for _ in range(2):
        call = stub.StreamRun(request, metadata=ME)
        async with aclosing(call):
            assert (await anext(aiter(call))).run.id == "one"
            second = stub.StreamRun(request, metadata=ME)
            refused = await fails(anext(aiter(second)))
            assert refused.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert runs.closed == 2


async def test_a_stream_may_fail_before_its_first_answer(stub: Any) -> None:
    call = stub.StreamRun(run_service_pb2.StreamRunRequest(), metadata=ME)
    assert (await fails(anext(aiter(call)))).code is grpc.StatusCode.NOT_FOUND
