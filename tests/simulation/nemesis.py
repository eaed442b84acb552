"""Strikes nodes at random: kill -9, a long freeze (which makes a zombie of it), a rolling restart."""

import asyncio

from services.runs.model import RunState
from tests.simulation.cluster import Cluster
from tests.simulation.node import Node, Stage
from tests.simulation.world import World


async def torment(stage: Stage, cluster: Cluster) -> None:
    """Until it is cancelled."""
    world = stage.world
    if not world.hazards.strikes:
        return
    while True:
        await asyncio.sleep(world.rng.expovariate(1 / world.hazards.strikes))
        await _lurk(stage)
        nodes = [node for node in cluster.alive() if node.ready and not world.loop.is_frozen(node.name)]
        busy = [node for node in nodes if node.name in _working(stage)]
        if nodes:
            _strike(world, world.rng.choice(busy or nodes))


def _working(stage: Stage) -> set[str | None]:
    return {row.owner_node for row in stage.witness.runs.values() if row.state == RunState.RUNNING}


async def _lurk(stage: Stage) -> None:
    """Wait a while for somebody who is at work: idle nodes are no fun."""
    for _ in range(stage.world.rng.choice((0, 40, 40))):
        if _working(stage) - {None}:
            await asyncio.sleep(stage.world.rng.uniform(0, 0.1))
            return
        await asyncio.sleep(0.05)


def _strike(world: World, node: Node) -> None:
    kind = world.rng.random()
    if kind < 0.35:
        node.crash()
    elif kind < 0.85:
        world.loop.create_task(_freeze(world, node))
    else:
        world.loop.create_task(node.drain(world.rng.choice((0.0, 0.5, 2.0))))


async def _freeze(world: World, node: Node) -> None:
    world.trace(f"node {node.name[-4:]} freezes")
    world.loop.freeze(node.name)
    # Beyond the time after which others think that it is dead, or not.
    await asyncio.sleep(world.rng.choice((0.5, 6.5, 9.0)))
    world.trace(f"node {node.name[-4:]} thaws")
    world.loop.thaw(node.name)
