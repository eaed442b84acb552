"""Conversations between protobuf and the domain: the only file here that knows both."""

from datetime import datetime

from common.pb.bridle.v1 import conversation_pb2
from services.agents.convert import etag, settings_from_pb, settings_to_pb
from services.context.overview import Overview
from services.conversations.model import Conversation, ConversationSpec
from services.messages.convert import timestamp
from services.wire.wellknown import enum_number

_KIND = (conversation_pb2.ContextOverview.Section.Kind, "KIND_")


def new_conversation(
    pb: conversation_pb2.Conversation, conversation_id: str, organization_id: str, now: datetime
) -> Conversation:
    """An empty conversation as a caller asked for it."""
    return Conversation(
        id=conversation_id,
        organization_id=organization_id,
        agent_id=pb.agent_id,
        spec=spec_from_pb(pb),
        is_default=False,
        context_floor=0,
        summary_message_id="",
        next_message_seq=1,
        last_message_at=None,
        version=1,
        created_at=now,
        updated_at=now,
    )


def spec_from_pb(pb: conversation_pb2.Conversation) -> ConversationSpec:
    """What a caller can set."""
    return ConversationSpec(
        summary=pb.summary,
        model=pb.model,
        model_settings=settings_from_pb(pb.model_settings) if pb.HasField("model_settings") else None,
    )


def conversation_to_pb(conversation: Conversation) -> conversation_pb2.Conversation:
    """A conversation as callers see it."""
    spec = conversation.spec
    pb = conversation_pb2.Conversation(
        id=conversation.id,
        agent_id=conversation.agent_id,
        summary=spec.summary,
        model=spec.model,
        is_default=conversation.is_default,
        context_floor=conversation.context_floor,
        etag=etag(conversation.version),
        create_time=timestamp(conversation.created_at),
        update_time=timestamp(conversation.updated_at),
    )
    # What is not set stays absent, so that callers can tell.
    if spec.model_settings is not None:
        pb.model_settings.CopyFrom(settings_to_pb(spec.model_settings))
    if conversation.last_message_at is not None:
        pb.last_message_time.CopyFrom(timestamp(conversation.last_message_at))
    return pb


def overview_to_pb(overview: Overview) -> conversation_pb2.ContextOverview:
    """What the model would be shown."""
    return conversation_pb2.ContextOverview(
        window=overview.window or 0,
        tokens=sum(section.tokens for section in overview.sections),
        message_count=len(overview.message_ids),
        total_message_count=overview.total,
        sections=[
            conversation_pb2.ContextOverview.Section(
                kind=enum_number(*_KIND, section.kind), text=section.text, tokens=section.tokens
            )
            for section in overview.sections
        ],
        message_ids=overview.message_ids,
    )
