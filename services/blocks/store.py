"""Blocks in the database. Each function works in the caller's transaction, on one organization's rows only."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, Select, bindparam, func, select

from common.db.codec import Codec
from common.db.paging import fetch_page, list_scope
from common.db.tables import agent_blocks, agents, block_tags, blocks
from common.errors import NotFound
from services.blocks.model import Block, BlockFilter, BlockSpec

SPEC = Codec[BlockSpec](BlockSpec)

_OF_AGENT = (
    select(blocks)
    .join(agent_blocks, agent_blocks.c.block_id == blocks.c.id)
    .where(agent_blocks.c.agent_id == bindparam("agent_id"))
    .order_by(agent_blocks.c.position, agent_blocks.c.block_id)
)
_LABELLED = (
    select(blocks)
    .join(agent_blocks, agent_blocks.c.block_id == blocks.c.id)
    .where(
        agent_blocks.c.agent_id == bindparam("agent_id"),
        blocks.c.organization_id == bindparam("organization_id"),
        blocks.c.label == bindparam("label"),
    )
    .with_for_update(of=blocks)
)


def insert(conn: Connection, block: Block) -> None:
    """Add a block that is attached to nothing."""
    fixed = {"id": block.id, "organization_id": block.organization_id, "created_at": block.created_at}
    conn.execute(blocks.insert().values(**fixed, **_changeable(block)))
    _insert_tags(conn, block)


def get(conn: Connection, organization_id: str, block_id: str) -> Block:
    """One block, or NotFound."""
    return _one(conn, select(blocks), organization_id, block_id)


def lock(conn: Connection, organization_id: str, block_id: str) -> Block:
    """One block, which no other transaction can change, delete or attach before this one ends; or NotFound."""
    return _one(conn, select(blocks).with_for_update(), organization_id, block_id)


def lock_several(conn: Connection, organization_id: str, block_ids: Sequence[str]) -> list[Block]:
    """These blocks, in this order, locked; NotFound names the first that is missing."""
    query = select(blocks).where(blocks.c.organization_id == organization_id, blocks.c.id.in_(block_ids))
    # In an order of their own, so that two callers do not wait for each other.
    rows = conn.execute(query.order_by(blocks.c.id).with_for_update()).all() if block_ids else []
    found = {block.id: block for block in _with_tags(conn, rows)}
    missing = next((each for each in block_ids if each not in found), None)
    if missing is not None:
        raise NotFound("block", missing)
    return [found[each] for each in block_ids]


def lock_labelled(conn: Connection, organization_id: str, agent_id: str, label: str) -> Block | None:
    """The agent's block with this label, locked; None if it has none."""
    scope = {"agent_id": agent_id, "organization_id": organization_id, "label": label}
    row = conn.execute(_LABELLED, scope).one_or_none()
    return None if row is None else _with_tags(conn, [row])[0]


def replace(conn: Connection, current: Block, changed: Block) -> None:
    """Write what changed of a block that this transaction has locked."""
    conn.execute(blocks.update().where(blocks.c.id == changed.id).values(**_changeable(changed)))
    if changed.tags != current.tags:
        conn.execute(block_tags.delete().where(block_tags.c.block_id == changed.id))
        _insert_tags(conn, changed)


def delete(conn: Connection, block_id: str, now: datetime) -> None:
    """Delete a block that this transaction has locked; the agents that had it are changed by that."""
    mine = select(agent_blocks.c.agent_id).where(agent_blocks.c.block_id == block_id)
    changed = agents.update().where(agents.c.id.in_(mine))
    conn.execute(changed.values(version=agents.c.version + 1, updated_at=now))
    conn.execute(blocks.delete().where(blocks.c.id == block_id))


def of_agent(conn: Connection, agent_id: str) -> list[Block]:
    """The blocks of an agent in prompt order, without their tags, which the model is not shown."""
    return [_block(row, ()) for row in conn.execute(_OF_AGENT, {"agent_id": agent_id})]


def lock_agents(conn: Connection, block_id: str) -> list[str]:
    """The agents that have a block, locked, so that none of them gets or loses a block before this transaction ends."""
    mine = select(agent_blocks.c.agent_id).where(agent_blocks.c.block_id == block_id)
    query = select(agents.c.id).where(agents.c.id.in_(mine)).order_by(agents.c.id).with_for_update()
    return list(conn.execute(query).scalars())


def namesake(conn: Connection, agent_ids: Sequence[str], label: str, but: str) -> tuple[str, str] | None:
    """An agent among these and its block with this label, if one has such a block beside the one named last."""
    query = (
        select(agent_blocks.c.agent_id, blocks.c.id)
        .join(blocks, blocks.c.id == agent_blocks.c.block_id)
        .where(agent_blocks.c.agent_id.in_(agent_ids), blocks.c.label == label, blocks.c.id != but)
        .order_by(agent_blocks.c.agent_id)
        .limit(1)
    )
    row = conn.execute(query).one_or_none()
    return None if row is None else (row[0], row[1])


def list_page(
    conn: Connection, organization_id: str, wanted: BlockFilter, *, size: int, token: str
) -> tuple[list[Block], str]:
    """A page of blocks, oldest first, or of an agent's blocks in prompt order; and the token of the next."""
    query = _matching(organization_id, wanted)
    order: tuple[Any, ...] = (blocks.c.created_at, blocks.c.id)
    if wanted.agent_id:
        query = query.add_columns(agent_blocks.c.position).join(agent_blocks, agent_blocks.c.block_id == blocks.c.id)
        query = query.where(agent_blocks.c.agent_id == wanted.agent_id)
        order = (agent_blocks.c.position, blocks.c.id)
    scope = list_scope("ListBlocks", organization_id, wanted)
    page = fetch_page(conn, query, order, scope=scope, size=size, token=token)
    return _with_tags(conn, page.rows), page.next_page_token


def _matching(organization_id: str, wanted: BlockFilter) -> Select[Any]:
    query = select(blocks).where(blocks.c.organization_id == organization_id)
    if wanted.label:
        query = query.where(blocks.c.label == wanted.label)
    if wanted.tags:
        tagged = (
            select(block_tags.c.block_id)
            .where(block_tags.c.organization_id == organization_id, block_tags.c.tag.in_(wanted.tags))
            .group_by(block_tags.c.block_id)
            .having(func.count() == len(wanted.tags))
        )
        query = query.where(blocks.c.id.in_(tagged))
    return query


def _changeable(block: Block) -> dict[str, Any]:
    return {
        "label": block.label,
        "value": block.value,
        "spec": SPEC.encode(block.spec),
        "version": block.version,
        "updated_at": block.updated_at,
    }


def _insert_tags(conn: Connection, block: Block) -> None:
    common = {"block_id": block.id, "organization_id": block.organization_id}
    if block.tags:
        conn.execute(block_tags.insert(), [{**common, "tag": tag} for tag in block.tags])


def _one(conn: Connection, query: Select[Any], organization_id: str, block_id: str) -> Block:
    mine = query.where(blocks.c.organization_id == organization_id, blocks.c.id == block_id)
    row = conn.execute(mine).one_or_none()
    if row is None:
        raise NotFound("block", block_id)
    return _with_tags(conn, [row])[0]


def _with_tags(conn: Connection, rows: Sequence[Row[Any]]) -> list[Block]:
    tags: dict[str, list[str]] = {row.id: [] for row in rows}
    if tags:
        query = select(block_tags.c.block_id, block_tags.c.tag).where(block_tags.c.block_id.in_(tags))
        for block_id, tag in conn.execute(query):
            tags[block_id].append(tag)
    return [_block(row, tags[row.id]) for row in rows]


def _block(row: Row[Any], tags: Sequence[str]) -> Block:
    return Block(
        id=row.id,
        organization_id=row.organization_id,
        label=row.label,
        value=row.value,
        spec=SPEC.decode(row.spec),
        tags=tuple(sorted(tags)),
        version=row.version,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )
