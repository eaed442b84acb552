"""The least that grpc.aio can do: a server without anything of ours that streams the same messages.

`python -m tests.bench.floor` says its port and serves until its input closes.
"""

from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import uvloop

from common.pb.bridle.v1 import message_service_pb2, run_event_pb2, run_service_pb2
from tests.bench.child import say, until_input_closes

_SERVICE, _METHOD = "bridle.bench.Floor", "Stream"
# As long as a real one.
_MESSAGE_ID = "message-00000000-0000-4000-8000-000000000000"


def stream(channel: grpc.aio.Channel, count: int) -> Any:
    """Ask it for so many tokens; the open call."""
    method = channel.unary_stream(
        f"/{_SERVICE}/{_METHOD}",
        request_serializer=message_service_pb2.StreamMessageRequest.SerializeToString,
        response_deserializer=run_service_pb2.StreamRunResponse.FromString,
    )
    request = message_service_pb2.StreamMessageRequest()
    # A field that happens to be a number.
    request.run.options.max_steps = count
    return method(request)


async def _stream(
    request: message_service_pb2.StreamMessageRequest, _context: Any
) -> AsyncIterator[run_service_pb2.StreamRunResponse]:
    for number in range(1, request.run.options.max_steps + 1):
        delta = run_event_pb2.TextDelta(message_id=_MESSAGE_ID, text=f"{number} ")
        event = run_event_pb2.RunEvent(seq=number, text_delta=delta)
        event.time.GetCurrentTime()
        yield run_service_pb2.StreamRunResponse(event=event)


async def _serve() -> None:
    server = grpc.aio.server()
    handler = grpc.unary_stream_rpc_method_handler(
        _stream,
        request_deserializer=message_service_pb2.StreamMessageRequest.FromString,
        response_serializer=run_service_pb2.StreamRunResponse.SerializeToString,
    )
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(_SERVICE, {_METHOD: handler})])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    say(str(port))
    await until_input_closes()
    await server.stop(None)


if __name__ == "__main__":
    uvloop.run(_serve())
