"""A gateway in a process of its own, in front of services that are elsewhere; metrics; CORS; credentials."""

import grpc.aio
import httpx2
import pytest

from common.settings import Settings
from common.startup import StartupError
from services.app import running_gateway
from tests.bench.rig import Client
from tests.gateway.client import Gateway, types
from tests.gateway.conftest import MakeGateway
from tests.helpers.models import Gate, say
from tests.helpers.server import running_server, start_server
from tests.helpers.wait import eventually


def alone(target: str) -> Settings:
    return Settings.from_env(
        {"BRIDLE_ROLES": "gateway", "BRIDLE_GRPC_TARGET": target, "BRIDLE_HTTP_ADDRESS": "127.0.0.1:0"}
    )


async def test_a_gateway_alone_speaks_for_services_elsewhere(gateway: Gateway) -> None:
    agent = await gateway.world.make_agent()
    gate = Gate()
    agent.model.will(say("one ", gate, "two"), say("again"))
    async with (
        running_gateway(alone(gateway.world.grpc_address)) as address,
        httpx2.AsyncClient(base_url=f"http://{address}") as http,
    ):
        other = Gateway(gateway.world, http)
        body = {"messages": [{"role": "user", "content": "hi"}], "stream_tokens": True}
        async with other.open(f"/v1/agents/{agent.id}/messages/stream", body) as frames:
            await anext(frames)
            gate.open()
            rest = [frame async for frame in frames]
        assert types(rest) == ["assistant_message", "stop_reason", "usage_statistics", "[DONE]"]
        assert (await other.say(agent, "more"))["messages"][0]["content"] == "again"
        missing = await other.get("/v1/runs/run-123e4567-e89b-42d3-8456-426614174000", expect=404)
        assert missing["reason"] == "RESOURCE_NOT_FOUND"
        assert (await http.get("/readyz")).status_code == 200


@pytest.mark.timeout(90)  # two servers are started
async def test_a_gateway_alone_finds_a_run_again_when_its_server_was_killed() -> None:
    """The connection is lost, the next server takes the run up, and the client's stream goes on to its end."""
    async with (
        running_server() as server,
        running_gateway(alone(server.grpc_address)) as address,
        httpx2.AsyncClient(base_url=f"http://{address}", timeout=60) as http,
    ):
        agent_id = await _make_agent(server.grpc_address)
        body = {"messages": [{"role": "user", "content": "count to 20"}], "stream_tokens": True}
        seen = b""
        async with http.stream("POST", f"/v1/agents/{agent_id}/messages/stream", json=body) as answer:
            pieces = answer.aiter_raw()
            seen += await anext(pieces)
            await server.kill()
            second = await start_server(**server.settings)
            try:
                async for piece in pieces:
                    seen += piece
            finally:
                await second.kill()
        assert b'"stop_reason":"end_turn"' in seen
        assert seen.endswith(b"data: [DONE]\n\n")


async def _make_agent(address: str) -> str:
    async with grpc.aio.insecure_channel(address) as channel:
        return await Client(channel).create_agent("demo/slow")


async def test_a_gateway_without_services_needs_to_know_where_they_are() -> None:
    with pytest.raises(StartupError, match="BRIDLE_GRPC_TARGET"):
        async with running_gateway(alone("")):
            pass


async def test_a_process_without_the_role_serves_no_api(make_gateway: MakeGateway) -> None:
    gateway = await make_gateway(settings={"BRIDLE_ROLES": "agents,messages,runs"})
    assert (await gateway.http.get("/v1/health")).status_code == 404
    assert (await gateway.http.get("/healthz")).status_code == 200


async def test_requests_and_streams_are_counted_by_route(gateway: Gateway) -> None:
    agent = await gateway.world.make_agent()
    await gateway.stream(agent, "hi")
    await gateway.get("/v1/nothing", expect=404)

    async def page() -> str:
        return (await gateway.http.get("/metrics")).text

    route = "/v1/agents/{agent_id}/messages/stream"
    line = f'bridle_http_server_seconds_count{{method="POST",route="{route}",status="200"}} 1.0'
    shown = await eventually(page, until=lambda text: line in text)
    assert 'bridle_http_server_seconds_count{method="GET",route="none",status="404"} 1.0' in shown
    assert "bridle_http_events_sent_total 2.0" in shown
    assert agent.id not in shown


async def test_pages_of_other_origins_may_call_only_if_allowed(make_gateway: MakeGateway) -> None:
    closed = await make_gateway()
    asked = {"origin": "https://app.example", "access-control-request-method": "POST"}
    answer = await closed.http.options("/v1/runs/", headers=asked)
    assert "access-control-allow-origin" not in answer.headers
    allowed = await make_gateway(settings={"BRIDLE_CORS_ORIGINS": "https://app.example"})
    answer = await allowed.http.options("/v1/runs/", headers=asked)
    assert answer.headers["access-control-allow-origin"] == "https://app.example"
    answer = await allowed.http.get("/v1/runs/", headers={"origin": "https://other.example"})
    assert "access-control-allow-origin" not in answer.headers
