"""Messages of an agent: send, stream, list, cancel, search, reset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

from msgspec import Meta, Struct, structs

from common.ids import Prefix, is_id
from common.pb.bridle.v1 import agent_service_pb2, conversation_service_pb2, run_service_pb2
from gateway.endpoints.search import SearchBody, SearchResult, search
from gateway.http.endpoint import Empty, Endpoint, Exchange
from gateway.http.problems import DO_NOT_RETRY, Problem, conflict, invalid
from gateway.messages import listing
from gateway.messages.inputs import SendBody
from gateway.messages.listing import Limit, Order, Window
from gateway.messages.model import LettaMessage, LettaResponse
from gateway.runs import answer
from gateway.runs.begin import Where
from gateway.runs.model import Run, run_object

if TYPE_CHECKING:
    from gateway.http.events import EventStream

_CANCEL_SECONDS: Final = 10


class ListQuery(Struct, frozen=True, kw_only=True):
    """Which messages."""

    after: str | None = None
    before: str | None = None
    limit: Limit = 100
    order: Order = "desc"
    group_id: str | None = None
    conversation_id: str | None = None
    use_assistant_message: bool = True
    assistant_message_tool_name: str = "send_message"
    assistant_message_tool_kwarg: str = "message"
    include_err: bool | None = None
    include_return_message_types: list[str] | None = None


class CancelBody(Struct, frozen=True):
    """Which runs; none: all that have not stopped."""

    run_ids: Annotated[list[str], Meta(max_length=1000)] | None = None


class ResetBody(Struct, frozen=True):
    """How to begin anew."""

    add_default_initial_messages: bool = False


async def create(exchange: Exchange[SendBody, Empty]) -> LettaResponse | EventStream:
    """Say something; the answer is JSON, or events if the body asks for them."""
    body = exchange.body
    if body.streaming is not True:
        refuse_stream_options(body)
        return await answer.whole(exchange, Where(exchange.path["agent_id"]))
    return await stream(exchange)


def refuse_stream_options(body: SendBody) -> None:
    """What only a stream can do is refused without one."""
    for name, wrong in (
        ("stream_tokens", body.stream_tokens),
        ("include_pings", not body.include_pings),
        ("background", body.background),
    ):
        if wrong:
            raise invalid(("body", name), f"Value error, {name} can only be set if streaming is true.")


async def stream(exchange: Exchange[SendBody, Empty]) -> EventStream:
    """Say something and see the answer as it comes."""
    background = exchange.body.background
    where = Where(exchange.path["agent_id"], run_type="send_message_streaming", background=background)
    return await answer.streamed(exchange, where)


async def create_async(exchange: Exchange[SendBody, Empty]) -> Run:
    """Say something and do not wait."""
    where = Where(exchange.path["agent_id"], run_type="send_message_async", background=True)
    return run_object((await answer.begin(exchange, where)).run)


async def list_messages(exchange: Exchange[None, ListQuery]) -> list[LettaMessage]:
    """The newest messages, or the oldest ones; in either case the oldest of them comes first."""
    query, agent_id = exchange.query, exchange.path["agent_id"]
    conversation_id = query.conversation_id if query.conversation_id not in (None, "default") else ""
    lead = await listing.system_message(exchange, agent_id=agent_id, conversation_id=conversation_id or "")
    window = Window(query.limit, query.order == "desc", query.after, query.before)
    scope = {"conversation_id": conversation_id} if conversation_id else {"agent_id": agent_id}
    groups = await listing.read(exchange, window, lead, **scope)
    return listing.flat(groups, query.include_return_message_types)


async def cancel(exchange: Exchange[CancelBody, Empty]) -> dict[str, str]:
    """Stop runs, in whatever they are doing, and wait until they have."""
    agent_id = exchange.path["agent_id"]
    run_ids = exchange.body.run_ids
    if run_ids:
        return await cancel_runs(exchange, run_ids)
    # Whether there is such an agent.
    await exchange.caller(exchange.backend.agents.GetAgent, agent_service_pb2.GetAgentRequest(agent_id=agent_id))
    request = run_service_pb2.CancelRunsRequest(agent_id=agent_id)
    request.wait.FromSeconds(_CANCEL_SECONDS)
    stopped = await exchange.caller(exchange.backend.runs.CancelRuns, request)
    if not stopped.runs:
        raise conflict(f"No active runs to cancel for agent {agent_id}")
    return {run.id: "cancelled" for run in stopped.runs}


async def cancel_runs(exchange: Exchange[Any, Any], run_ids: list[str]) -> dict[str, str]:
    """Stop these; what is no run has failed to be stopped."""
    known = [run_id for run_id in run_ids if is_id(Prefix.RUN, run_id)]
    outcome = dict.fromkeys(run_ids, "failed")
    if known:
        request = run_service_pb2.CancelRunsRequest(run_ids=known)
        request.wait.FromSeconds(_CANCEL_SECONDS)
        stopped = await exchange.caller(exchange.backend.runs.CancelRuns, request)
        outcome |= {run.id: "cancelled" for run in stopped.runs}
    return outcome


async def reset(exchange: Exchange[ResetBody, Empty]) -> None:
    """Empty the context: the model is shown nothing that was said before."""
    request = agent_service_pb2.GetAgentRequest(agent_id=exchange.path["agent_id"])
    agent = await exchange.caller(exchange.backend.agents.GetAgent, request)
    await exchange.caller(
        exchange.backend.conversations.ResetConversation,
        conversation_service_pb2.ResetConversationRequest(conversation_id=agent.default_conversation_id),
    )


async def search_agent(exchange: Exchange[SearchBody, Empty]) -> list[SearchResult]:
    """Find messages of an agent."""
    return await search(exchange, structs.replace(exchange.body, agent_id=exchange.path["agent_id"]))


async def edit(_: Exchange[Any, Empty]) -> None:
    """Messages are not edited: the log is the record of what was said."""
    raise Problem(405, {"detail": "Messages cannot be edited."}, DO_NOT_RETRY)


_BASE: Final = "/v1/agents/{agent_id}"
ENDPOINTS = (
    Endpoint(
        method="POST",
        path=f"{_BASE}/messages",
        summary="Say something and wait for the answer",
        tag="messages",
        handler=create,
        body=SendBody,
        answer=LettaResponse,
        streams=True,
    ),
    Endpoint(
        method="POST",
        path=f"{_BASE}/messages/stream",
        summary="Say something and see the answer as it comes",
        tag="messages",
        handler=stream,
        body=SendBody,
        streams=True,
    ),
    Endpoint(
        method="POST",
        path=f"{_BASE}/messages/async",
        summary="Say something and do not wait",
        tag="messages",
        handler=create_async,
        body=SendBody,
        answer=Run,
    ),
    Endpoint(
        method="GET",
        path=f"{_BASE}/messages",
        summary="Messages of an agent",
        tag="messages",
        handler=list_messages,
        query=ListQuery,
        answer=list[LettaMessage],
    ),
    Endpoint(
        method="POST",
        path=f"{_BASE}/messages/cancel",
        summary="Stop the agent's runs",
        tag="messages",
        handler=cancel,
        body=CancelBody,
        answer=dict[str, str],
    ),
    Endpoint(
        method="POST",
        path=f"{_BASE}/messages/search",
        summary="Find messages of an agent",
        tag="messages",
        handler=search_agent,
        body=SearchBody,
        answer=list[SearchResult],
    ),
    Endpoint(
        method="PATCH",
        path=f"{_BASE}/messages/{{message_id}}",
        summary="Refused: messages cannot be edited",
        tag="messages",
        handler=edit,
    ),
    Endpoint(
        method="PATCH",
        path=f"{_BASE}/reset-messages",
        summary="Empty the agent's context",
        tag="messages",
        handler=reset,
        body=ResetBody,
    ),
)
