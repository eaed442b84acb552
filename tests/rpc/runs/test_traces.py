"""Traces in the database, and what needs a key to seal with."""

from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
import grpc.aio
import msgspec
import pytest

from common.ids import DEFAULT_ORGANIZATION, Prefix, new_id
from common.pb.bridle.v1 import agent_pb2, agent_service_pb2, model_pb2, model_service_pb2, run_service_pb2
from common.pb.bridle.v1.run_pb2 import Run, Step
from services.runs.store import traces as store
from services.runs.store.retention import sweep
from tests.helpers.inprocess import World, on_both
from tests.rpc.runs.conftest import MakeWorld


async def one_step(world: World) -> Step:
    agent = await world.make_agent()
    run = (await agent.send("hello")).run
    assert run.state == Run.STATE_COMPLETED
    [step] = await world.steps(run.id)
    return step


async def get(world: World, step_id: str) -> run_service_pb2.GetStepTraceResponse:
    request = run_service_pb2.GetStepTraceRequest(step_id=step_id)
    found: run_service_pb2.GetStepTraceResponse = await world.runs.GetStepTrace(request, timeout=10)
    return found


async def refused(call: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call
    return raised.value.code(), raised.value.details() or ""


@on_both
async def test_a_trace_lives_as_long_as_events(make_world: MakeWorld) -> None:
    world = await make_world(settings={"BRIDLE_TRACE": "on", "BRIDLE_SECRET_KEY": "k"})
    step = await one_step(world)
    trace = await get(world, step.id)
    assert msgspec.json.decode(trace.request)["messages"][0]["parts"][0]["text"] == "hello"
    assert msgspec.json.decode(trace.response)["turn"] == [{"type": "text", "text": "ok"}]
    now = datetime.now(UTC)
    await sweep(world.node.db, now - timedelta(days=1))
    assert await get(world, step.id) == trace
    await sweep(world.node.db, now + timedelta(days=1))
    assert await refused(get(world, step.id)) == (grpc.StatusCode.NOT_FOUND, f"trace '{step.id}' was not found.")


@on_both
async def test_who_does_not_own_the_run_writes_none(make_world: MakeWorld) -> None:
    world = await make_world(settings={"BRIDLE_TRACE": "on", "BRIDLE_SECRET_KEY": "k"})
    step = await one_step(world)
    before = await get(world, step.id)
    other, now = store.Trace("1", "2"), datetime.now(UTC)
    await world.node.db.write(store.put, DEFAULT_ORGANIZATION, step.id, 99, other, now)
    assert await get(world, step.id) == before
    await world.node.db.write(store.put, DEFAULT_ORGANIZATION, step.id, 1, other, now)
    assert (await get(world, step.id)).response == "2"


async def test_whose_trace(make_world: MakeWorld) -> None:
    world = await make_world(settings={"BRIDLE_TRACE": "on"})
    unknown = new_id(Prefix.STEP)
    assert await refused(get(world, unknown)) == (grpc.StatusCode.NOT_FOUND, f"step '{unknown}' was not found.")
    code, details = await refused(get(world, "step-1"))
    assert (code, "step_id " in details) == (grpc.StatusCode.INVALID_ARGUMENT, True)


@pytest.mark.parametrize("kind", ["postgres"], indirect=True)
async def test_without_a_key_no_secret_is_kept(make_world: MakeWorld) -> None:
    world = await make_world()
    provider = model_pb2.Provider(name="mine", api=model_pb2.Provider.API_OPENAI_CHAT, base_url="http://127.0.0.1:1")
    await world.providers.PutProvider(model_service_pb2.PutProviderRequest(provider=provider), timeout=10)
    provider.api_key = "sk-secret"
    code, details = await refused(
        world.providers.PutProvider(model_service_pb2.PutProviderRequest(provider=provider), timeout=10)
    )
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert "BRIDLE_SECRET_KEY" in details
    agent = agent_pb2.Agent(secrets={"A": "b"})
    code, details = await refused(
        world.agents.CreateAgent(agent_service_pb2.CreateAgentRequest(agent=agent), timeout=10)
    )
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert "BRIDLE_SECRET_KEY" in details
