"""Conversations of an agent, and what is said in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET, Struct, UnsetType

from common.ids import Prefix, is_id
from common.pb.bridle.v1 import (
    agent_service_pb2,
    conversation_pb2,
    conversation_service_pb2,
    message_service_pb2,
    run_service_pb2,
)
from gateway import model_settings
from gateway.endpoints.agent_messages import cancel_runs, refuse_stream_options
from gateway.endpoints.runs import StreamBody, follow_run
from gateway.http.endpoint import Empty, Endpoint, Exchange
from gateway.http.problems import bad_request, conflict, invalid, invalid_id
from gateway.messages import listing, stored
from gateway.messages.inputs import SendBody
from gateway.messages.listing import Limit, Order, Window
from gateway.messages.model import LettaMessage, LettaResponse
from gateway.model_settings import SettingsIn, SettingsOut
from gateway.runs import answer
from gateway.runs.begin import Where
from gateway.runs.follow import WAITING, get_run
from gateway.runs.model import STATUSES

if TYPE_CHECKING:
    from gateway.http.events import EventStream

_DEFAULT: Final = "default"
_LIVE: Final = (*STATUSES["created"], *STATUSES["running"], WAITING)
_MOST: Final = 1000


class Conversation(Struct, frozen=True, kw_only=True):
    """A thread of messages with an agent."""

    id: str
    agent_id: str
    summary: str | None
    created_at: str
    updated_at: str
    last_message_at: str | None
    model: str | None
    model_settings: SettingsOut | None
    in_context_message_ids: list[str] = []
    isolated_block_ids: list[str] = []
    created_by_id: str | None = None
    last_updated_by_id: str | None = None


class CreateBody(Struct, frozen=True, kw_only=True):
    """A new conversation."""

    summary: str | None = None
    isolated_block_labels: list[str] | None = None
    model: str | None = None
    model_settings: SettingsIn | None = None


class CreateQuery(Struct, frozen=True):
    """Whose it is."""

    agent_id: str


class UpdateBody(Struct, frozen=True, kw_only=True):
    """What changes; null clears a value."""

    summary: str | UnsetType | None = UNSET
    model: str | UnsetType | None = UNSET
    model_settings: SettingsIn | UnsetType | None = UNSET


class ListQuery(Struct, frozen=True, kw_only=True):
    """Which conversations."""

    agent_id: str | None = None
    after: str | None = None
    limit: Limit = 50
    order: Order = "desc"


class MessagesQuery(Struct, frozen=True, kw_only=True):
    """Which messages."""

    after: str | None = None
    before: str | None = None
    limit: Limit = 100
    order: Order = "desc"
    agent_id: str | None = None
    group_id: str | None = None
    include_err: bool | None = None
    include_return_message_types: list[str] | None = None


class AgentQuery(Struct, frozen=True):
    """Whose default conversation is meant."""

    agent_id: str | None = None


class CompactionResult(Struct, frozen=True):
    """What a compaction did."""

    summary: str
    num_messages_before: int
    num_messages_after: int


async def create(exchange: Exchange[CreateBody, CreateQuery]) -> Conversation:
    """Open a conversation."""
    body, agent_id = exchange.body, exchange.query.agent_id
    if not is_id(Prefix.AGENT, agent_id):
        raise invalid_id("agent_id", Prefix.AGENT, agent_id)
    wanted = conversation_pb2.Conversation(
        agent_id=agent_id,
        summary=body.summary or "",
        model=body.model or "",
        model_settings=model_settings.to_pb(body.model_settings) if body.model_settings else None,
        isolated_block_labels=body.isolated_block_labels or (),
    )
    request = conversation_service_pb2.CreateConversationRequest(conversation=wanted)
    return await _shown(exchange, await exchange.caller(exchange.backend.conversations.CreateConversation, request))


async def list_conversations(exchange: Exchange[None, ListQuery]) -> list[Conversation]:
    """Conversations of an agent, without the default one."""
    query = exchange.query
    request = conversation_service_pb2.ListConversationsRequest(agent_id=query.agent_id or "", page_size=_MOST)
    found: list[conversation_pb2.Conversation] = []
    passed = query.after is None or query.order == "asc"
    while True:
        page = await exchange.caller(exchange.backend.conversations.ListConversations, request)
        for each in page.conversations:
            if passed and not each.is_default:
                found.append(each)
            passed = passed or each.id == query.after
        if not page.next_page_token or (query.order == "desc" and len(found) >= query.limit):
            break
        request.page_token = page.next_page_token
    if query.order == "asc":
        found.reverse()
        names = [each.id for each in found]
        found = found[names.index(query.after) + 1 :] if query.after in names else ([] if query.after else found)
    return [_object(each) for each in found[: query.limit]]


async def retrieve(exchange: Exchange[None, AgentQuery]) -> Conversation:
    """One conversation."""
    return await _shown(exchange, await _get(exchange, exchange.query.agent_id))


async def update(exchange: Exchange[UpdateBody, AgentQuery]) -> Conversation:
    """Change a conversation."""
    body = exchange.body
    current = await _get(exchange, exchange.query.agent_id)
    wanted = conversation_pb2.Conversation(id=current.id)
    request = conversation_service_pb2.UpdateConversationRequest()
    if body.summary is not UNSET:
        wanted.summary = body.summary or ""
        request.update_mask.paths.append("summary")
    if body.model is not UNSET:
        wanted.model = body.model or ""
        request.update_mask.paths.append("model")
    if body.model_settings is not UNSET:
        if body.model_settings is not None:
            wanted.model_settings.CopyFrom(model_settings.to_pb(body.model_settings))
        request.update_mask.paths.append("model_settings")
    if not request.update_mask.paths:
        return await _shown(exchange, current)
    request.conversation.CopyFrom(wanted)
    return await _shown(exchange, await exchange.caller(exchange.backend.conversations.UpdateConversation, request))


async def delete(exchange: Exchange[None, AgentQuery]) -> None:
    """Delete a conversation."""
    conversation = await _get(exchange, exchange.query.agent_id)
    request = conversation_service_pb2.DeleteConversationRequest(conversation_id=conversation.id)
    await exchange.caller(exchange.backend.conversations.DeleteConversation, request)


async def list_messages(exchange: Exchange[None, MessagesQuery]) -> list[LettaMessage]:
    """Messages of a conversation, newest first unless asked otherwise."""
    query = exchange.query
    conversation = await _get(exchange, query.agent_id)
    lead = await listing.system_message(exchange, conversation_id=conversation.id)
    window = Window.in_order(query.limit, query.order, query.after, query.before)
    groups = await listing.read(exchange, window, lead, conversation_id=conversation.id)
    return listing.flat(reversed(groups) if window.descending else groups, query.include_return_message_types)


async def send(exchange: Exchange[SendBody, AgentQuery]) -> LettaResponse | EventStream:
    """Say something; the answer is a stream unless the body asks for JSON. Refused while a run is live."""
    body = exchange.body
    conversation = await _get(exchange, exchange.query.agent_id or body.agent_id)
    where = Where(
        conversation.agent_id,
        conversation.id,
        run_type="send_conversation_message",
        background=body.background,
        reject_if_busy=True,
        repeatable=body.background,
    )
    if body.streaming is False:
        refuse_stream_options(body)
        return await answer.whole(exchange, where)
    return await answer.streamed(exchange, where)


async def stream(exchange: Exchange[StreamBody, AgentQuery]) -> EventStream:
    """Follow a run of the conversation: the one that is named, else the newest that has not stopped."""
    body = exchange.body
    conversation = await _get(exchange, exchange.query.agent_id or body.agent_id)
    if body.run_id:
        run = await get_run(exchange, body.run_id)
        if run.conversation_id != conversation.id:
            raise bad_request("The run is not one of this conversation.")
        return await follow_run(exchange, run)
    request = run_service_pb2.ListRunsRequest(conversation_id=conversation.id, background=True, page_size=1)
    if body.otid:
        found = await _run_of(exchange, conversation.id, body.otid)
    else:
        request.states.extend(_LIVE)  # type: ignore[arg-type]
        found = list((await exchange.caller(exchange.backend.runs.ListRuns, request)).runs)
    if not found:
        raise bad_request("No active runs found for this conversation.")
    return await follow_run(exchange, found[0])


async def _run_of(exchange: Exchange[Any, Any], conversation_id: str, otid: str) -> list[Any]:
    """The run that was started by a message with this otid, among the newest messages."""
    request = message_service_pb2.ListMessagesRequest(
        conversation_id=conversation_id, order_by="create_time desc", page_size=_MOST
    )
    for message in (await exchange.caller(exchange.backend.messages.ListMessages, request)).messages:
        if message.otid == otid and message.run_id:
            return [await get_run(exchange, message.run_id)]
    return []


async def cancel(exchange: Exchange[Empty, AgentQuery]) -> dict[str, str]:
    """Stop what the conversation is doing."""
    conversation = await _get(exchange, exchange.query.agent_id)
    request = run_service_pb2.ListRunsRequest(
        conversation_id=conversation.id,
        states=_LIVE,  # type: ignore[arg-type]
        page_size=_MOST,
    )
    found = await exchange.caller(exchange.backend.runs.ListRuns, request)
    if not found.runs:
        raise conflict(f"No active runs to cancel for conversation {conversation.id}")
    return await cancel_runs(exchange, [run.id for run in found.runs])


async def fork(exchange: Exchange[Empty, AgentQuery]) -> Conversation:
    """Copy a conversation up to now."""
    conversation = await _get(exchange, exchange.query.agent_id)
    request = conversation_service_pb2.ForkConversationRequest(conversation_id=conversation.id)
    return await _shown(exchange, await exchange.caller(exchange.backend.conversations.ForkConversation, request))


async def compact(exchange: Exchange[Empty, AgentQuery]) -> CompactionResult:
    """Summarise older messages now."""
    return await compacted(exchange, (await _get(exchange, exchange.query.agent_id)).id)


async def compacted(exchange: Exchange[Any, Any], conversation_id: str) -> CompactionResult:
    """What a compaction of this conversation came to."""
    request = conversation_service_pb2.CompactConversationRequest(conversation_id=conversation_id)
    done = await exchange.caller(exchange.backend.conversations.CompactConversation, request, _COMPACT_SECONDS)
    return CompactionResult(done.summary, done.messages_before, done.messages_after)


async def _get(exchange: Exchange[Any, Any], agent_id: str | None) -> conversation_pb2.Conversation:
    """The conversation of the path: by its id, or the default one of an agent."""
    named = exchange.path["conversation_id"]
    if named == _DEFAULT:
        if not agent_id:
            raise invalid(("query", "agent_id"), "Field required: the default conversation of which agent?", "missing")
        named = agent_id
    if is_id(Prefix.AGENT, named):
        request = agent_service_pb2.GetAgentRequest(agent_id=named)
        named = (await exchange.caller(exchange.backend.agents.GetAgent, request)).default_conversation_id
    if not is_id(Prefix.CONVERSATION, named):
        raise invalid_id("conversation_id", Prefix.CONVERSATION, named)
    found: conversation_pb2.Conversation = await exchange.caller(
        exchange.backend.conversations.GetConversation,
        conversation_service_pb2.GetConversationRequest(conversation_id=named),
    )
    return found


async def _shown(exchange: Exchange[Any, Any], conversation: conversation_pb2.Conversation) -> Conversation:
    """With the messages that the model is shown."""
    ids = [stored.system_message_id(conversation.id)]
    request = message_service_pb2.ListMessagesRequest(conversation_id=conversation.id, in_context=True, page_size=_MOST)
    while True:
        page = await exchange.caller(exchange.backend.messages.ListMessages, request)
        ids += [message.id for message in page.messages]
        if not page.next_page_token:
            return _object(conversation, ids)
        request.page_token = page.next_page_token


def _object(found: conversation_pb2.Conversation, in_context: list[str] | None = None) -> Conversation:
    settings = found.model_settings if found.HasField("model_settings") else None
    return Conversation(
        id=found.id,
        agent_id=found.agent_id,
        summary=found.summary or None,
        created_at=stored.moment(found.create_time),
        updated_at=stored.moment(found.update_time),
        last_message_at=stored.moment(found.last_message_time) if found.HasField("last_message_time") else None,
        model=found.model or None,
        model_settings=model_settings.from_pb(settings, found.model) if settings is not None else None,
        in_context_message_ids=in_context or [],
    )


_COMPACT_SECONDS: Final = 300.0
_ALL: Final = "/v1/conversations"
_ONE: Final = "/v1/conversations/{conversation_id}"


def _endpoint(method: str, path: str, summary: str, handler: Any, **more: Any) -> Endpoint:
    return Endpoint(method=method, path=path, summary=summary, tag="conversations", handler=handler, **more)


ENDPOINTS = (
    _endpoint("POST", _ALL, "Open a conversation", create, body=CreateBody, query=CreateQuery, answer=Conversation),
    _endpoint("GET", _ALL, "Conversations", list_conversations, query=ListQuery, answer=list[Conversation]),
    _endpoint("GET", _ONE, "One conversation", retrieve, query=AgentQuery, answer=Conversation),
    _endpoint("PATCH", _ONE, "Change a conversation", update, body=UpdateBody, query=AgentQuery, answer=Conversation),
    _endpoint("DELETE", _ONE, "Delete a conversation", delete, query=AgentQuery),
    _endpoint("GET", f"{_ONE}/messages", "Messages", list_messages, query=MessagesQuery, answer=list[LettaMessage]),
    _endpoint(
        "POST",
        f"{_ONE}/messages",
        "Say something",
        send,
        body=SendBody,
        query=AgentQuery,
        answer=LettaResponse,
        streams=True,
    ),
    _endpoint("POST", f"{_ONE}/stream", "Follow a run", stream, body=StreamBody, query=AgentQuery, streams=True),
    _endpoint("POST", f"{_ONE}/cancel", "Stop its runs", cancel, body=Empty, query=AgentQuery, answer=dict[str, str]),
    _endpoint("POST", f"{_ONE}/fork", "Copy a conversation", fork, body=Empty, query=AgentQuery, answer=Conversation),
    _endpoint(
        "POST",
        f"{_ONE}/compact",
        "Summarise older messages",
        compact,
        body=Empty,
        query=AgentQuery,
        answer=CompactionResult,
    ),
)
