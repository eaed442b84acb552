"""Messages across agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc
import grpc.aio
from msgspec import Struct

from common.ids import Prefix, is_id
from common.pb.bridle.v1 import message_service_pb2
from gateway.endpoints.search import SearchBody, SearchResult, search
from gateway.http.endpoint import Empty, Endpoint, Exchange
from gateway.messages import listing, stored
from gateway.messages.listing import Limit, Order, Window
from gateway.messages.model import LettaMessage

if TYPE_CHECKING:
    from gateway.messages.model import SystemMessage


class ListQuery(Struct, frozen=True, kw_only=True):
    """Which messages."""

    after: str | None = None
    before: str | None = None
    limit: Limit = 100
    order: Order = "desc"
    agent_id: str | None = None
    conversation_id: str | None = None


async def list_messages(exchange: Exchange[None, ListQuery]) -> list[LettaMessage]:
    """Messages of all agents."""
    query = exchange.query
    scope: dict[str, str] = {}
    if query.conversation_id:
        scope["conversation_id"] = query.conversation_id
    elif query.agent_id:
        scope["agent_id"] = query.agent_id
    window = Window.in_order(query.limit, query.order, query.after, query.before)
    groups = await listing.read(exchange, window, None, **scope)
    return listing.flat(reversed(groups) if window.descending else groups)


async def retrieve(exchange: Exchange[None, Empty]) -> list[LettaMessage]:
    """The objects of one stored message."""
    message_id = exchange.path["message_id"]
    try:
        request = message_service_pb2.GetMessageRequest(message_id=message_id)
        return stored.objects(await exchange.caller(exchange.backend.messages.GetMessage, request))
    except grpc.aio.AioRpcError as error:
        lead = await _lead(exchange, message_id) if error.code() is grpc.StatusCode.NOT_FOUND else None
        if lead is None:
            raise
        return [lead]


async def _lead(exchange: Exchange[None, Empty], message_id: str) -> SystemMessage | None:
    """The system prompt, if this is the id that lists give it."""
    conversation_id = f"{Prefix.CONVERSATION}-{message_id.partition('-')[2]}"
    if not is_id(Prefix.CONVERSATION, conversation_id):
        return None
    try:
        return await listing.system_message(exchange, conversation_id=conversation_id)
    except grpc.aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.NOT_FOUND:
            return None
        raise


async def search_all(exchange: Exchange[SearchBody, Empty]) -> list[SearchResult]:
    """Find messages of all agents."""
    return await search(exchange, exchange.body)


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/v1/messages",
        summary="Messages of all agents",
        tag="messages",
        handler=list_messages,
        query=ListQuery,
        answer=list[LettaMessage],
    ),
    Endpoint(
        method="GET",
        path="/v1/messages/{message_id}",
        summary="One message",
        tag="messages",
        handler=retrieve,
        answer=list[LettaMessage],
    ),
    *(
        Endpoint(
            method="POST",
            path=path,
            summary="Find messages",
            tag="messages",
            handler=search_all,
            body=SearchBody,
            answer=list[SearchResult],
        )
        for path in ("/v1/messages/search", "/v1/agents/messages/search")
    ),
)
