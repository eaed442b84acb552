"""Tools of other services: real ToolExecutors over real gRPC."""

import asyncio

import pytest
from google.protobuf.struct_pb2 import Struct
from grpc_health.v1 import health_pb2

from common.pb.bridle.v1 import message_pb2
from services.messages.model import Image, Outcome, Text
from services.wire.wellknown import to_dict
from tests.helpers.executor import FAILED, Authority, ExecutorServer, Response, executor_server, offer, returned, tls
from tests.helpers.inprocess import World
from tests.helpers.wait import eventually
from tests.rpc.toolservers.rig import ORGANIZATION, Calling, Servers, failure


async def test_a_sync_brings_its_tools(servers: Servers, executor: ExecutorServer) -> None:
    name = await servers.grpc(executor.target)
    tools = await servers.sync(name)
    assert sorted(tools) == ["echo", "slow", "strange"]
    echo = tools["echo"]
    assert (echo.remote.server, echo.description, echo.parallel) == (name, "A tool.", True)
    assert echo.crash_policy == echo.CRASH_POLICY_RETRY
    assert tools["slow"].crash_policy == echo.CRASH_POLICY_NEVER
    assert not echo.default_requires_approval
    assert to_dict(echo.parameters)["properties"] == {"text": {"type": "string"}}
    (listed,) = (await servers.page())[0]
    assert listed.HasField("sync_time")


async def test_a_sync_adds_changes_and_deletes(servers: Servers, executor: ExecutorServer) -> None:
    name = await servers.grpc(executor.target)
    before = await servers.sync(name)
    executor.executor.offers = [offer("echo", "Another text.", parallel=True), offer("new")]
    after = await servers.sync(name)
    assert sorted(after) == ["echo", "new"]
    assert after["echo"].id == before["echo"].id
    assert (after["echo"].description, after["echo"].crash_policy) == (
        "Another text.",
        after["echo"].CRASH_POLICY_NEVER,
    )
    assert await servers.sync(name) == after


async def test_a_call_carries_everything_the_contract_says(
    servers: Servers, world: World, executor: ExecutorServer
) -> None:
    name = await servers.grpc(executor.target)
    result = await servers.call(name, "echo", mcp=False, call_id="call-7", timeout=30.0, text="hi")
    assert (result.outcome, result.text) == (Outcome.SUCCEEDED, '{"text": "hi"}')
    (asked,) = executor.executor.asked
    assert (asked.tool_call_id, asked.name, asked.arguments) == ("call-7", "echo", '{"text": "hi"}')
    assert (asked.agent_id, asked.run_id, asked.organization_id) == ("agent-1", "run-1", ORGANIZATION)
    (left,) = executor.executor.deadlines
    assert left is not None
    assert 0 < left <= 30


async def test_text_images_and_output_arrive(servers: Servers, executor: ExecutorServer) -> None:
    name = await servers.grpc(executor.target)
    parts = [
        message_pb2.Part(image=message_pb2.Image(data=b"png", media_type="image/png")),
        message_pb2.Part(image=message_pb2.Image(data=b"tiff", media_type="image/tiff")),
        message_pb2.Part(image=message_pb2.Image(url="https://example.com/a.png")),
    ]
    result = returned("a\0b", *parts, stdout=["out"], stderr=["e" * 100_000], outcome=FAILED)
    executor.executor.answer = [Response(progress="one"), Response(progress="p" * 5000), Response(result=result)]
    calling = Calling(servers.world, name, "strange", mcp=False)
    answer = await calling.result()
    assert answer.outcome is Outcome.FAILED
    assert answer.content == (
        Text("ab"),
        Image(data=b"png", media_type="image/png"),
        Text("[4 bytes of image/tiff, which cannot be shown]"),
        Image(url="https://example.com/a.png"),
    )
    assert (answer.stdout, [len(each) for each in answer.stderr]) == (("out",), [65_536])
    assert calling.progress == ["one", "p" * 1000]


async def test_progress_without_an_end_is_not_shown_for_ever(servers: Servers, executor: ExecutorServer) -> None:
    name = await servers.grpc(executor.target)
    executor.executor.answer = [*(Response(progress=str(n)) for n in range(1500)), Response(result=returned("done"))]
    calling = Calling(servers.world, name, "strange", mcp=False)
    assert (await calling.result()).text == "done"
    assert len(calling.progress) == 1000


async def test_cancelling_a_call_cancels_it_there(servers: Servers, executor: ExecutorServer) -> None:
    name = await servers.grpc(executor.target)
    calling = Calling(servers.world, name, "slow", mcp=False)
    await asyncio.wait_for(executor.executor.started.wait(), 5)
    await eventually(lambda: calling.progress == ["waiting"])
    await calling.cancel()
    await asyncio.wait_for(executor.executor.cancelled.wait(), 5)


async def test_the_time_out_ends_a_call_on_both_sides(servers: Servers, executor: ExecutorServer) -> None:
    name = await servers.grpc(executor.target)
    result = await servers.call(name, "slow", mcp=False, timeout=0.5)
    assert failure(result) == f"Error: the tool server '{name}' did not answer within 0.5 s."
    await asyncio.wait_for(executor.executor.cancelled.wait(), 5)


BAD = {
    "no result": ([], "ended the call without a result"),
    "no outcome": ([Response(result=returned("x", outcome=0))], "neither SUCCEEDED nor FAILED"),
    "a denial": ([Response(result=returned("x", outcome=3))], "neither SUCCEEDED nor FAILED"),
    "a part that is not content": (
        [Response(result=returned(message_pb2.Part(tool_call=message_pb2.ToolCall(id="x"))))],
        "only text and images are allowed",
    ),
    "too much": ([Response(result=returned("x" * (9 * 1024 * 1024)))], "more than is allowed"),
}


@pytest.mark.parametrize("case", BAD)
async def test_a_bad_answer_is_an_error_return(servers: Servers, executor: ExecutorServer, case: str) -> None:
    name = await servers.grpc(executor.target)
    executor.executor.answer, expected = BAD[case]
    assert expected in failure(await servers.call(name, "strange", mcp=False))
    assert (await servers.call(name, "echo", mcp=False)).outcome is Outcome.SUCCEEDED


async def test_a_tool_it_does_not_have_is_an_error_return(servers: Servers, executor: ExecutorServer) -> None:
    name = await servers.grpc(executor.target)
    assert "NOT_FOUND (there is no tool other)" in failure(await servers.call(name, "other", mcp=False))


async def test_another_service_at_the_address_is_an_error_return(servers: Servers, world: World) -> None:
    name = await servers.grpc(world.grpc_address)
    assert "does not implement bridle.v1.ToolExecutor" in failure(await servers.call(name, "echo", mcp=False))


async def test_an_unhealthy_server_is_not_called(servers: Servers, executor: ExecutorServer) -> None:
    name = await servers.grpc(executor.target)
    executor.health.status = health_pb2.HealthCheckResponse.NOT_SERVING
    expected = f"Error: the tool server '{name}' says that it is not serving now."
    assert failure(await servers.call(name, "echo", mcp=False)) == expected
    assert executor.executor.asked == []
    assert await servers.refused_sync(name) == "says that it is not serving now"
    assert servers.connections("grpc") == {"healthy": 0.0, "unhealthy": 1.0}
    executor.health.status = health_pb2.HealthCheckResponse.SERVING
    assert (await servers.call(name, "echo", mcp=False)).outcome is Outcome.SUCCEEDED
    assert servers.connections("grpc") == {"healthy": 1.0, "unhealthy": 0.0}


async def test_health_is_asked_for_once_for_many_calls(servers: Servers, executor: ExecutorServer) -> None:
    name = await servers.grpc(executor.target)
    for _ in range(5):
        assert (await servers.call(name, "echo", mcp=False)).outcome is Outcome.SUCCEEDED
    assert executor.health.checks == 1


async def test_a_server_without_health_is_well(servers: Servers) -> None:
    async with executor_server(with_health=False) as executor:
        name = await servers.grpc(executor.target)
        assert (await servers.call(name, "echo", mcp=False)).outcome is Outcome.SUCCEEDED


async def test_a_server_that_is_not_there_is_an_error_return(servers: Servers, executor: ExecutorServer) -> None:
    name = await servers.grpc(executor.target)
    await executor.stop()
    assert "cannot be reached" in failure(await servers.call(name, "echo", mcp=False))
    assert "cannot be reached" in await servers.refused_sync(name)


async def test_a_restarted_server_is_found_again(servers: Servers, executor: ExecutorServer) -> None:
    name = await servers.grpc(executor.target)
    assert (await servers.call(name, "echo", mcp=False)).outcome is Outcome.SUCCEEDED
    await executor.stop()
    assert "cannot be reached" in failure(await servers.call(name, "echo", mcp=False))
    await executor.start()

    async def works() -> bool:
        return (await servers.call(name, "echo", mcp=False)).outcome is Outcome.SUCCEEDED

    await eventually(works, timeout=10)


async def test_a_server_that_goes_away_ends_its_calls(servers: Servers, executor: ExecutorServer) -> None:
    name = await servers.grpc(executor.target)
    calling = Calling(servers.world, name, "slow", mcp=False)
    await asyncio.wait_for(executor.executor.started.wait(), 5)
    await executor.stop()
    assert failure(await calling.result()).startswith(f"Error: the tool server '{name}'")


async def test_a_changed_server_is_called_where_it_is_now(servers: Servers, executor: ExecutorServer) -> None:
    name = await servers.grpc(executor.target)
    calling = Calling(servers.world, name, "slow", mcp=False)
    await asyncio.wait_for(executor.executor.started.wait(), 5)
    async with executor_server() as other:
        await servers.grpc(other.target, name)
        assert (await servers.call(name, "echo", mcp=False)).outcome is Outcome.SUCCEEDED
        assert [asked.name for asked in other.executor.asked] == ["echo"]
    assert not calling.task.done(), "what was under way goes on where it was"
    await calling.cancel()


async def test_a_deleted_server_ends_its_calls(servers: Servers, executor: ExecutorServer) -> None:
    name = await servers.grpc(executor.target)
    calling = Calling(servers.world, name, "slow", mcp=False)
    await asyncio.wait_for(executor.executor.started.wait(), 5)
    await servers.delete(name)
    assert failure(await calling.result()).startswith(f"Error: the tool server '{name}'")
    await asyncio.wait_for(executor.executor.cancelled.wait(), 5)
    assert "is not registered" in failure(await servers.call(name, "echo", mcp=False))


async def test_tls_with_the_servers_authority(servers: Servers) -> None:
    authority = Authority("ours")
    async with executor_server(tls(authority)) as executor:
        name = await servers.grpc(executor.target, ca_pem=authority.pem)
        assert (await servers.call(name, "echo", mcp=False)).outcome is Outcome.SUCCEEDED


async def test_a_certificate_of_somebody_else_is_not_accepted(servers: Servers) -> None:
    async with executor_server(tls(Authority("theirs"))) as executor:
        for fields in ({"ca_pem": Authority("ours").pem}, {"plaintext": False}):
            name = await servers.grpc(executor.target, **fields)
            assert "cannot be reached" in failure(await servers.call(name, "echo", mcp=False))
        assert executor.executor.asked == []


async def test_mutual_tls(servers: Servers) -> None:
    authority, clients = Authority("servers"), Authority("clients")
    certificate, key = clients.issue("bridle")
    async with executor_server(tls(authority, clients=clients)) as executor:
        name = await servers.grpc(executor.target, ca_pem=authority.pem, certificate_pem=certificate, key_pem=key)
        assert (await servers.call(name, "echo", mcp=False)).outcome is Outcome.SUCCEEDED
        without = await servers.grpc(executor.target, ca_pem=authority.pem)
        assert "cannot be reached" in failure(await servers.call(without, "echo", mcp=False))
        certificate, key = Authority("strangers").issue("bridle")
        wrong = await servers.grpc(executor.target, ca_pem=authority.pem, certificate_pem=certificate, key_pem=key)
        assert "cannot be reached" in failure(await servers.call(wrong, "echo", mcp=False))


BAD_OFFERS = {
    "a name twice": [offer("a"), offer("a")],
    "no name": [offer("")],
    "parameters that are a list": [offer("a")],
    "too many": [offer(f"t{n}") for n in range(1001)],
}
_list = Struct()
_list.update({"type": "array"})
BAD_OFFERS["parameters that are a list"][0].parameters.CopyFrom(_list)


@pytest.mark.parametrize("case", BAD_OFFERS)
async def test_a_bad_offer_changes_nothing(servers: Servers, executor: ExecutorServer, case: str) -> None:
    name = await servers.grpc(executor.target)
    before = await servers.sync(name)
    good, executor.executor.offers = executor.executor.offers, BAD_OFFERS[case]
    assert "offers" in await servers.refused_sync(name)
    executor.executor.offers = good
    assert await servers.sync(name) == before


async def test_calls_are_counted_by_what_came_of_them(servers: Servers, executor: ExecutorServer) -> None:
    name = await servers.grpc(executor.target)
    before = servers.counted("grpc", "succeeded"), servers.counted("grpc", "timeout")
    await servers.call(name, "echo", mcp=False)
    await servers.call(name, "slow", mcp=False, timeout=0.2)
    assert (servers.counted("grpc", "succeeded"), servers.counted("grpc", "timeout")) == (before[0] + 1, before[1] + 1)
