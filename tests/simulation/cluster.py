"""Keeps nodes running, whatever the nemesis does to them, and carries calls to them."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from common.errors import BridleError
from tests.simulation.database import NodeDead
from tests.simulation.node import Node, Stage

T = TypeVar("T")


class Disconnected(Exception):
    """The node went away, or did not answer in time: whether the call happened is unknown."""


class Cluster:
    """One node, as an embedded server has, or two on one database."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._world = stage.world
        self._size = 2 if stage.world.hazards.cluster else 1
        self.nodes: list[Node | None] = [None] * self._size
        self._keepers: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to keep nodes running."""
        self._keepers = [asyncio.ensure_future(self._keep(place)) for place in range(self._size)]

    def stop(self) -> None:
        """End everything at once."""
        for keeper in self._keepers:
            keeper.cancel()
        for node in self.alive():
            node.crash()

    def alive(self) -> list[Node]:
        """Nodes that have not crashed, frozen ones included."""
        return [node for node in self.nodes if node is not None and not node.dead]

    async def _keep(self, place: int) -> None:
        while True:
            node = self.nodes[place] = Node(self._stage, embedded=self._size == 1)
            try:
                await node.start()
                await node.gone
            except (NodeDead, BridleError):
                node.crash()
            except asyncio.CancelledError:
                if not node.dead:
                    raise
            await asyncio.sleep(self._world.rng.choice((0.0, 0.05, 1.0)))

    async def node(self) -> Node:
        """Any node that takes calls."""
        while True:
            ready = [node for node in self.alive() if node.ready]
            if ready:
                return self._world.rng.choice(ready)
            await asyncio.sleep(0.05)

    async def call(self, work: Callable[[Node], Coroutine[Any, Any, T]], timeout: float = 5.0) -> T:
        """One call by a client, which gives up after a while."""
        node = await self.node()
        task = node.call(work(node))
        try:
            async with asyncio.timeout(timeout):
                answer: T = await task
                return answer
        except (TimeoutError, NodeDead) as error:
            raise Disconnected from error
        except asyncio.CancelledError:
            if node.dead:
                raise Disconnected from None
            raise
