"""common/rpc/channel.py"""

from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import ServiceDescriptor

from common.errors import Draining
from common.rpc.channel import open_channel, service_config
from common.rpc.errors import ErrorInterceptor
from common.rpc.server import bind, build_server, graceful_stop


@pytest.fixture(scope="module")
def service() -> ServiceDescriptor:
    """A service with a read, a write and a stream that is named like a read."""
    file = descriptor_pb2.FileDescriptorProto(name="things.proto", package="test", syntax="proto3")
    file.message_type.add(name="Thing")
    proto = file.service.add(name="Things")
    for name, streaming in (("GetThing", False), ("CreateThing", False), ("ListThingsLive", True)):
        proto.method.add(name=name, input_type=".test.Thing", output_type=".test.Thing", server_streaming=streaming)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool.FindServiceByName("test.Things")


def names(config: dict[str, Any]) -> list[str]:
    return [each["method"] for group in config.get("methodConfig", ()) for each in group["name"]]


def test_only_unary_reads_are_retried_unless_asked(service: ServiceDescriptor) -> None:
    assert names(service_config([service])) == ["GetThing"]
    assert names(service_config([service], {"test.Things.CreateThing"})) == ["GetThing", "CreateThing"]
    assert service_config([]) == {"loadBalancingConfig": [{"round_robin": {}}]}


async def test_a_read_survives_a_server_that_is_briefly_unavailable(service: ServiceDescriptor) -> None:
    attempts = {"GetThing": 0, "CreateThing": 0}

    def flaky(name: str) -> Any:
        async def handler(request: bytes, _context: Any) -> bytes:
            attempts[name] += 1
            if attempts[name] < 3:
                raise Draining
            return request

        return grpc.unary_unary_rpc_method_handler(handler)

    server = build_server([ErrorInterceptor(lambda _: None)])
    handlers = {name: flaky(name) for name in attempts}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Things", handlers),))
    port = bind(server, "127.0.0.1:0")
    await server.start()
    async with open_channel(f"127.0.0.1:{port}", [service]) as channel:
        get: Any = channel.unary_unary("/test.Things/GetThing")
        create: Any = channel.unary_unary("/test.Things/CreateThing")
        assert await get(b"x", timeout=10) == b"x"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await create(b"x", timeout=10)
    await graceful_stop(server, 0)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert attempts == {"GetThing": 3, "CreateThing": 1}
