"""Blocks between protobuf and the domain: the only file here that knows both."""

from datetime import datetime

from msgspec.structs import replace

from common.pb.bridle.v1 import block_pb2, block_service_pb2
from services.agents.convert import etag
from services.blocks import model
from services.messages.convert import timestamp
from services.wire.wellknown import to_dict, to_struct


def new_block(pb: block_pb2.Block, block_id: str, organization_id: str, now: datetime) -> model.Block:
    """A first version of a block from what a caller asked for."""
    return model.Block(
        id=block_id,
        organization_id=organization_id,
        label=pb.label,
        value=pb.value,
        spec=_spec(pb),
        tags=tuple(sorted(pb.tags)),
        version=1,
        created_at=now,
        updated_at=now,
    )


def changed_block(current: model.Block, pb: block_pb2.Block) -> model.Block:
    """The block with everything that a caller can set taken from `pb`."""
    return replace(current, label=pb.label, value=pb.value, spec=_spec(pb), tags=tuple(sorted(pb.tags)))


def block_to_pb(block: model.Block) -> block_pb2.Block:
    """A block as callers see it."""
    spec = block.spec
    pb = block_pb2.Block(
        id=block.id,
        label=block.label,
        value=block.value,
        limit=spec.limit,
        description=spec.description,
        read_only=spec.read_only,
        tags=block.tags,
        etag=etag(block.version),
        create_time=timestamp(block.created_at),
        update_time=timestamp(block.updated_at),
    )
    if spec.metadata:
        pb.metadata.CopyFrom(to_struct(spec.metadata))
    return pb


def filter_from_pb(pb: block_service_pb2.ListBlocksRequest) -> model.BlockFilter:
    """Which blocks a caller means."""
    return model.BlockFilter(agent_id=pb.agent_id, label=pb.label, tags=tuple(sorted(set(pb.tags))))


def _spec(pb: block_pb2.Block) -> model.BlockSpec:
    return model.BlockSpec(
        limit=pb.limit or model.DEFAULT_LIMIT,
        description=pb.description,
        read_only=pb.read_only,
        metadata=to_dict(pb.metadata),
    )
