"""The memory blocks of an agent that is made or changed."""

from collections.abc import Sequence

from sqlalchemy import Connection

from common.errors import InvalidArgument
from services.agents.model import Agent
from services.blocks import store
from services.blocks.model import Block, clash


def attach_blocks(conn: Connection, agent: Agent, made: Sequence[Block] = ()) -> None:
    """Refuse blocks that are not there, or that the agent could not tell apart; store those that are made for it.

    The blocks are locked: none of them can be deleted or get another label before the agent has it.
    """
    shared = store.lock_several(conn, agent.organization_id, agent.block_ids[: len(agent.block_ids) - len(made)])
    labels = [block.label for block in (*shared, *made)]
    place = clash(labels)
    if place is not None:
        field = "agent.block_ids" if place < len(shared) else f"memory_blocks[{place - len(shared)}].label"
        raise InvalidArgument.of(field, f"would give the agent two blocks with the label '{labels[place]}'")
    for block in made:
        store.insert(conn, block)
