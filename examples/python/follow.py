import asyncio
from collections.abc import Callable

import grpc
from bridle.v1.run_event_pb2 import RunEvent
from bridle.v1.run_pb2 import Run
from bridle.v1.run_service_pb2 import StreamRunRequest
from bridle.v1.run_service_pb2_grpc import RunServiceStub


async def follow(runs: RunServiceStub, run_id: str, after_seq: int, show: Callable[[RunEvent], None]) -> Run:
    """Shows a run's events after a cursor until the run stops, through lost connections."""
    while True:
        stream = runs.StreamRun(StreamRunRequest(run_id=run_id, after_seq=after_seq))
        try:
            async for response in stream:
                if not response.HasField("event"):
                    continue  # a heartbeat
                after_seq = response.event.seq
                if response.event.HasField("run_stopped"):
                    return response.event.run_stopped.run
                show(response.event)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
        finally:
            stream.cancel()  # gRPC keeps one that nobody reads to its end
        await asyncio.sleep(0.5)
