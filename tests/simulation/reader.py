"""A reader of a run's log that hangs up, comes back with its cursor, and is sometimes slow."""

import asyncio
from contextlib import aclosing

from common.errors import BridleError, Unavailable
from common.pb.bridle.v1 import run_event_pb2, run_service_pb2
from services.runs import convert
from tests.simulation.cluster import Cluster, Disconnected
from tests.simulation.node import Node, Stage

# What may be shown before it is durable.
_FLEETING = ("text_delta", "reasoning_delta", "tool_call_delta", "tool_progress")


class Reader:
    """Collects what it is told, in the order it is told."""

    def __init__(self, stage: Stage, cluster: Cluster, run_id: str, after: int = 0) -> None:
        self._stage = stage
        self._world = stage.world
        self._cluster = cluster
        self._slow = stage.world.rng.random() < 0.3
        self.run_id = run_id
        self.start = after
        self.cursor = after
        self.collected: list[run_event_pb2.RunEvent] = []
        self.ended = False

    async def follow(self) -> None:
        """Read to the end, over as many connections as it takes."""
        rng = self._world.rng
        while not self.ended:
            patience = rng.choice((0.2, 1.0, 3.0)) if self._world.chance(0.5) else 8.0
            try:
                await self._cluster.call(self._pull, patience)
                self._world.check(self.ended, f"6: the stream of {self.run_id} ended without its last event")
            except (Disconnected, Unavailable):
                await asyncio.sleep(rng.choice((0.0, 0.1, 1.0)))
            except BridleError as error:
                self._world.fail(f"6: a reader of {self.run_id} at {self.cursor} got {error!r}")

    async def _pull(self, node: Node) -> None:
        request = run_service_pb2.StreamRunRequest(run_id=self.run_id, after_seq=self.cursor)
        async with aclosing(node.runs.StreamRun(request, None)) as responses:
            async for response in responses:
                if response.HasField("event"):
                    self._take(response.event)
                    if self._slow and self._world.chance(0.3):
                        await asyncio.sleep(0.2)

    def _take(self, event: run_event_pb2.RunEvent) -> None:
        world, seq = self._world, event.seq
        world.check(seq > self.cursor, f"6: a reader of {self.run_id} got {seq} after {self.cursor}")
        world.check(not self.ended, f"6: a reader of {self.run_id} got {seq} after the last event")
        durable = self._stage.witness.events.get(self.run_id, {}).get(seq)
        if event.WhichOneof("event") not in _FLEETING:
            same = durable is not None and convert.entry_to_pb(durable) == event
            world.check(same, f"7: a reader of {self.run_id} was told of {seq}, which is not durable")
        self.cursor = seq
        self.collected.append(event)
        self.ended = event.HasField("run_stopped")
