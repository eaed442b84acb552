"""The README's list of what is not served yet, against a server."""

import asyncio
import re
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message_factory import GetMessageClass

from common.pb.bridle.v1 import (
    agent_service_pb2,
    approval_service_pb2,
    block_service_pb2,
    conversation_service_pb2,
    message_service_pb2,
    model_service_pb2,
    run_service_pb2,
    tool_service_pb2,
)
from common.settings import Settings
from services.app import running

README = Path(__file__).resolve().parent.parent.parent / "README.md"
_LIST = re.compile(r"<!-- unimplemented: [^>]*-->\n(.*?)<!-- /unimplemented -->", re.DOTALL)
_MODULES = (
    agent_service_pb2,
    approval_service_pb2,
    block_service_pb2,
    conversation_service_pb2,
    message_service_pb2,
    model_service_pb2,
    run_service_pb2,
    tool_service_pb2,
)


def methods() -> dict[str, MethodDescriptor]:
    services = [service for module in _MODULES for service in module.DESCRIPTOR.services_by_name.values()]
    return {f"{service.name}.{method.name}": method for service in services for method in service.methods}


async def is_served(channel: grpc.aio.Channel, method: MethodDescriptor) -> bool:
    """Whether an empty request gets any answer but UNIMPLEMENTED."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    request = GetMessageClass(method.input_type)()
    kind: Any = channel.unary_stream if method.server_streaming else channel.unary_unary
    call = kind(path, request_serializer=lambda message: message.SerializeToString())(request)
    try:
        async with asyncio.timeout(1):
            await (call.read() if method.server_streaming else call)
    except grpc.aio.AioRpcError as error:
        return error.code() is not grpc.StatusCode.UNIMPLEMENTED
    except TimeoutError:
        return True
    finally:
        call.cancel()
    return True


async def test_what_is_not_served_is_listed(tmp_path: Path) -> None:
    settings = Settings(grpc_address="127.0.0.1:0", http_address="127.0.0.1:0", data_dir=tmp_path)
    async with running(settings) as serving, grpc.aio.insecure_channel(serving.grpc_address) as channel:
        missing = {name for name, method in methods().items() if not await is_served(channel, method)}
    found = _LIST.search(README.read_text(encoding="utf-8"))
    assert found is not None
    assert set(re.findall(r"`(\w+\.\w+)`", found[1])) == missing
