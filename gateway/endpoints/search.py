"""Finding messages by their words."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

from google.protobuf.timestamp_pb2 import Timestamp
from msgspec import Meta, Struct

from common.pb.bridle.v1 import message_service_pb2
from gateway.messages import stored
from gateway.messages.model import (
    AssistantMessage,
    LettaMessage,
    ReasoningMessage,
    SystemMessage,
    ToolReturnMessage,
    UserMessage,
    type_of,
)

if TYPE_CHECKING:
    from common.pb.bridle.v1 import message_pb2
    from gateway.http.endpoint import Exchange


class SearchBody(Struct, frozen=True, kw_only=True):
    """What to find. Every mode is a search for words: there are no vectors here."""

    query: Annotated[str, Meta(min_length=1, max_length=1000)]
    search_mode: Literal["vector", "fts", "hybrid"] = "hybrid"
    agent_id: str | None = None
    conversation_id: str | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] = 50
    start_date: datetime | None = None
    end_date: datetime | None = None


class SearchResult(Struct, frozen=True, kw_only=True):
    """One thing that was found."""

    message_id: str
    created_at: str
    agent_id: str | None
    conversation_id: str | None
    message_type: str
    content: Any = None
    reasoning: str | None = None


async def search(exchange: Exchange[Any, Any], body: SearchBody) -> list[SearchResult]:
    """Messages that contain the words, newest first."""
    request = message_service_pb2.SearchMessagesRequest(
        query=body.query,
        agent_id=body.agent_id or "",
        conversation_id=body.conversation_id or "",
        created_after=_stamp(body.start_date),
        created_before=_stamp(body.end_date),
        page_size=body.limit,
    )
    found = await exchange.caller(exchange.backend.messages.SearchMessages, request)
    results = [each for message in found.messages for each in _results(message, body.query)]
    return results[: body.limit]


def _stamp(moment: datetime | None) -> Timestamp | None:
    if moment is None:
        return None
    stamp = Timestamp()
    stamp.FromDatetime(moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC))
    return stamp


def _results(message: message_pb2.Message, query: str) -> list[SearchResult]:
    """The parts of a message that have the words; the whole of it if they are spread."""
    shown = [_result(message, each) for each in stored.objects(message)]
    results = [each for each in shown if each is not None]
    words = query.lower().split()
    hits = [each for each in results if all(word in f"{each.content} {each.reasoning}".lower() for word in words)]
    return hits or results


def _result(message: message_pb2.Message, found: LettaMessage) -> SearchResult | None:
    common: dict[str, Any] = {
        "message_id": message.id,
        "created_at": stored.moment(message.create_time),
        "agent_id": message.agent_id or None,
        "conversation_id": message.conversation_id or None,
        "message_type": type_of(found),
    }
    match found:
        case ReasoningMessage(reasoning=text):
            return SearchResult(reasoning=text, **common)
        case AssistantMessage() | UserMessage() | SystemMessage():
            return SearchResult(content=found.content, **common)
        case ToolReturnMessage(tool_return=text):
            return SearchResult(content=text, **common)
        case _:
            return None
