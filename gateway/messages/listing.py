"""Lists of stored messages, with the agent's system prompt as the first one of each conversation.

The log does not hold the system prompt; the wire's lists begin with it. Its id is made of the conversation's, so that
it is good as a cursor and can be found again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta, Struct

from common.pb.bridle.v1 import agent_service_pb2, conversation_service_pb2, message_service_pb2
from gateway.messages import stored
from gateway.messages.model import LettaMessage, SystemMessage, type_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from common.pb.bridle.v1 import agent_pb2, conversation_pb2
    from gateway.http.endpoint import Exchange

Limit = Annotated[int, Meta(ge=1, le=1000)]
Order = Literal["asc", "desc"]


class Window(Struct, frozen=True):
    """Which part of a log, by position: `descending` takes from the newer end."""

    limit: int
    descending: bool
    after: str | None = None
    before: str | None = None

    @classmethod
    def in_order(cls, limit: int, order: str, after: str | None, before: str | None) -> Window:
        """For lists whose cursors follow the order of the list."""
        if order == "desc":
            return cls(limit, True, after=before, before=after)
        return cls(limit, False, after, before)


async def system_message(
    exchange: Exchange[Any, Any], *, agent_id: str = "", conversation_id: str = ""
) -> SystemMessage:
    """The first message of a conversation; without one, of the agent's default conversation."""
    if conversation_id:
        conversation: conversation_pb2.Conversation = await exchange.caller(
            exchange.backend.conversations.GetConversation,
            conversation_service_pb2.GetConversationRequest(conversation_id=conversation_id),
        )
        agent_id = conversation.agent_id
    agent: agent_pb2.Agent = await exchange.caller(
        exchange.backend.agents.GetAgent, agent_service_pb2.GetAgentRequest(agent_id=agent_id)
    )
    created = conversation.create_time if conversation_id else agent.create_time
    own = stored.system_message_id(conversation_id or agent.default_conversation_id)
    return SystemMessage(id=own, date=stored.date(created.seconds), content=agent.system, otid=own.partition("-")[2])


async def read(
    exchange: Exchange[Any, Any], window: Window, lead: SystemMessage | None, **scope: str
) -> list[list[LettaMessage]]:
    """The objects of each stored message in the window, oldest first."""
    if lead is not None and window.before == lead.id:
        return []
    leads = lead is not None and window.after is None
    size = window.limit - (leads and not window.descending)
    after = None if lead is not None and window.after == lead.id else window.after
    request = message_service_pb2.ListMessagesRequest(
        order_by="create_time desc" if window.descending else "create_time",
        after_message_id=after or "",
        before_message_id=window.before or "",
        page_size=size,
        **scope,  # type: ignore[arg-type]  # the one scope that is given
    )
    found = list((await exchange.caller(exchange.backend.messages.ListMessages, request)).messages) if size else []
    if window.descending:
        found.reverse()
    groups = [stored.objects(message) for message in found]
    if lead is not None and leads and len(found) < window.limit:
        groups.insert(0, [lead])
    return groups


def flat(groups: Iterable[list[LettaMessage]], types: Iterable[str] | None = None) -> list[LettaMessage]:
    """All objects in order, of these types only."""
    wanted = frozenset(types) if types is not None else None
    return [each for group in groups for each in group if wanted is None or type_of(each) in wanted]
