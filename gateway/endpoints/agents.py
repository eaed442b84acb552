"""Agents: create, read, change, delete, and what their model would be shown."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Literal

from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.json_format import MessageToDict
from msgspec import Struct

from common.ids import Prefix, is_id
from common.pb.bridle.v1 import (
    agent_service_pb2,
    conversation_pb2,
    conversation_service_pb2,
    message_pb2,
    message_service_pb2,
    stop_reason_pb2,
    tool_pb2,
    tool_service_pb2,
)
from gateway.agents import blocks, related
from gateway.agents.inputs import CompactionIn, CreateBody, UpdateBody, changes, kept_of
from gateway.agents.model import AgentState, agent_object
from gateway.agents.related import EVERYTHING, Include, get_agent, shown
from gateway.endpoints.conversations import CompactionResult, compacted
from gateway.http.endpoint import Empty, Endpoint, Exchange
from gateway.http.problems import invalid, invalid_id
from gateway.messages.listing import Limit, Order
from gateway.paging import Cursor, pages, window
from gateway.structs import plain

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from common.pb.bridle.v1 import agent_pb2

# What every agent of the wire can do unless it is told otherwise.
BASE_TOOLS: Final = ("conversation_search", "memory_insert", "memory_replace")
_Kind = conversation_pb2.ContextOverview.Section
_REASON: Final = "STOP_REASON_"


class RetrieveQuery(Struct, frozen=True):
    """What to tell besides the agent itself."""

    include: list[Include] | None = None
    include_relationships: list[str] | None = None


class ListQuery(Struct, frozen=True, kw_only=True):
    """Which agents."""

    name: str | None = None
    tags: list[str] | None = None
    match_all_tags: bool = False
    query_text: str | None = None
    last_stop_reason: str | None = None
    include: list[Include] | None = None
    include_relationships: list[str] | None = None
    before: str | None = None
    after: str | None = None
    limit: Limit = 50
    order: Order = "desc"
    order_by: Literal["created_at", "updated_at", "last_run_completion"] = "created_at"
    show_hidden_agents: bool | None = None


class Deleted(Struct, frozen=True):
    """What became of it."""

    message: str


class ContextQuery(Struct, frozen=True):
    """Of which conversation; none: the default one."""

    conversation_id: str | None = None


class ContextWindow(Struct, frozen=True, kw_only=True):
    """What the model would be shown, and what each part weighs in tokens."""

    context_window_size_max: int
    context_window_size_current: int
    num_messages: int
    num_recall_memory: int
    num_tokens_system: int
    system_prompt: str
    num_tokens_core_memory: int
    core_memory: str
    num_tokens_tool_usage_rules: int
    tool_usage_rules: str | None
    num_tokens_summary_memory: int
    summary_memory: str | None
    num_tokens_functions_definitions: int
    functions_definitions: list[dict[str, Any]]
    num_tokens_messages: int
    messages: list[dict[str, Any]]
    num_archival_memory: int = 0
    num_tokens_external_memory_summary: int = 0
    external_memory_summary: str = ""
    num_tokens_memory_filesystem: int = 0
    memory_filesystem: None = None
    num_tokens_directories: int = 0
    directories: None = None


class SummarizeBody(Struct, frozen=True):
    """How to summarise, this time."""

    compaction_settings: CompactionIn | None = None


async def create(exchange: Exchange[CreateBody, Empty]) -> AgentState:
    """Make an agent."""
    body = exchange.body
    if body.initial_message_sequence:
        raise invalid(("body", "initial_message_sequence"), "Value error, is not supported by this server")
    said = changes(body, {}, {})
    names = [*(body.tools or ()), *(BASE_TOOLS if body.include_base_tools else ())]
    request = agent_service_pb2.CreateAgentRequest(
        agent=said.agent,
        memory_blocks=[
            blocks.to_pb(block, ("body", "memory_blocks", index))
            for index, block in enumerate(body.memory_blocks or ())
        ],
        tool_names=dict.fromkeys(names),
    )
    made = await exchange.caller(exchange.backend.agents.CreateAgent, request)
    return await shown(exchange, made, EVERYTHING)


async def retrieve(exchange: Exchange[None, RetrieveQuery]) -> AgentState:
    """One agent."""
    query = exchange.query
    agent = await get_agent(exchange, exchange.path["agent_id"])
    return await shown(exchange, agent, related.wanted(exchange, query.include, query.include_relationships))


async def update(exchange: Exchange[UpdateBody, Empty]) -> AgentState:
    """Change an agent; what is not said stays."""
    agent_id = exchange.path["agent_id"]
    agent = await get_agent(exchange, agent_id)
    said = changes(exchange.body, *kept_of(agent))
    if said.paths:
        said.agent.id = agent_id
        request = agent_service_pb2.UpdateAgentRequest(agent=said.agent, update_mask=FieldMask(paths=set(said.paths)))
        agent = await exchange.caller(exchange.backend.agents.UpdateAgent, request)
    return await shown(exchange, agent, EVERYTHING)


async def list_agents(exchange: Exchange[None, ListQuery]) -> list[AgentState]:
    """Agents. The ids of their messages are only told one agent at a time."""
    query = exchange.query
    request = agent_service_pb2.ListAgentsRequest(
        filter=_filter(query), order_by="create_time" if query.order == "asc" else "create_time desc"
    )
    cursor = Cursor(query.limit, query.after, query.before)
    size = query.limit if query.after is None and query.before is None else 1000
    found: AsyncIterator[agent_pb2.Agent] = pages(exchange, exchange.backend.agents.ListAgents, request, "agents", size)
    if query.order_by != "created_at":
        found = _sorted([each async for each in found], query)
    agents = await window(found, cursor, lambda agent: agent.id)
    want = related.wanted(exchange, query.include, query.include_relationships)
    belongings = await asyncio.gather(*(related.gather(exchange, agent, want) for agent in agents))
    return [agent_object(agent, belonging) for agent, belonging in zip(agents, belongings, strict=True)]


def _filter(query: ListQuery) -> agent_service_pb2.AgentFilter:
    wanted = agent_service_pb2.AgentFilter(
        name=query.name or "",
        query=query.query_text or "",
        tags=query.tags or (),
        match_all_tags=query.match_all_tags,
        include_hidden=bool(query.show_hidden_agents),
    )
    if query.last_stop_reason:
        try:
            wanted.last_stop_reason = stop_reason_pb2.StopReason.Value(_REASON + query.last_stop_reason.upper())
        except ValueError:
            raise invalid(("query", "last_stop_reason"), "Input should be a stop reason", "enum") from None
    return wanted


async def _sorted(agents: list[agent_pb2.Agent], query: ListQuery) -> AsyncIterator[agent_pb2.Agent]:
    """By another time than that of their creation, which gRPC does not sort by."""

    def key(agent: agent_pb2.Agent) -> tuple[int, str]:
        ran = query.order_by == "last_run_completion"
        return (agent.last_run_completion_time if ran else agent.update_time).ToNanoseconds(), agent.id

    for each in sorted(agents, key=key, reverse=query.order == "desc"):
        yield each


async def count(exchange: Exchange[None, Empty]) -> int:
    """How many agents there are."""
    found = await exchange.caller(exchange.backend.agents.CountAgents, agent_service_pb2.CountAgentsRequest())
    return int(found.count)


async def delete(exchange: Exchange[None, Empty]) -> Deleted:
    """Delete an agent with all it has; what it is doing is stopped."""
    agent_id = exchange.path["agent_id"]
    request = agent_service_pb2.DeleteAgentRequest(agent_id=agent_id, force=True)
    await exchange.caller(exchange.backend.agents.DeleteAgent, request)
    return Deleted(f"Agent id={agent_id} successfully deleted")


async def context(exchange: Exchange[None, ContextQuery]) -> ContextWindow:
    """What the model would be shown now."""
    agent = await get_agent(exchange, exchange.path["agent_id"])
    conversation_id = exchange.query.conversation_id
    if conversation_id in (None, "", "default"):
        conversation_id = agent.default_conversation_id
    elif not is_id(Prefix.CONVERSATION, conversation_id):
        raise invalid_id("conversation_id", Prefix.CONVERSATION, conversation_id)
    overview, tools, messages = await asyncio.gather(
        _overview(exchange, conversation_id),
        exchange.caller(
            exchange.backend.tools.ListTools, tool_service_pb2.ListToolsRequest(agent_id=agent.id, page_size=1000)
        ),
        exchange.caller(
            exchange.backend.messages.ListMessages,
            message_service_pb2.ListMessagesRequest(conversation_id=conversation_id, in_context=True, page_size=1000),
        ),
    )
    return _window(overview, tools.tools, messages.messages)


async def _overview(exchange: Exchange[Any, Any], conversation_id: str) -> conversation_pb2.ContextOverview:
    request = conversation_service_pb2.GetContextRequest(conversation_id=conversation_id)
    found: conversation_pb2.ContextOverview = await exchange.caller(exchange.backend.conversations.GetContext, request)
    return found


def _window(overview: conversation_pb2.ContextOverview, tools: Any, messages: Any) -> ContextWindow:
    parts: dict[int, tuple[str, int]] = {section.kind: (section.text, section.tokens) for section in overview.sections}

    def text(kind: int) -> str:
        return parts.get(kind, ("", 0))[0]

    def tokens(kind: int) -> int:
        return parts.get(kind, ("", 0))[1]

    return ContextWindow(
        context_window_size_max=overview.window,
        context_window_size_current=overview.tokens,
        num_messages=overview.message_count,
        num_recall_memory=overview.total_message_count - overview.message_count,
        num_tokens_system=tokens(_Kind.KIND_SYSTEM),
        system_prompt=text(_Kind.KIND_SYSTEM),
        num_tokens_core_memory=tokens(_Kind.KIND_MEMORY),
        core_memory=text(_Kind.KIND_MEMORY),
        num_tokens_tool_usage_rules=tokens(_Kind.KIND_TOOL_RULES),
        tool_usage_rules=text(_Kind.KIND_TOOL_RULES) or None,
        num_tokens_summary_memory=tokens(_Kind.KIND_SUMMARY),
        summary_memory=text(_Kind.KIND_SUMMARY) or None,
        num_tokens_functions_definitions=tokens(_Kind.KIND_TOOLS),
        functions_definitions=[_function(tool) for tool in tools],
        num_tokens_messages=tokens(_Kind.KIND_MESSAGES),
        messages=[_internal(message) for message in messages],
    )


def _function(tool: tool_pb2.Tool) -> dict[str, Any]:
    described = {"name": tool.name, "description": tool.description, "parameters": plain(tool.parameters)}
    return {"type": "function", "function": described}


def _internal(message: message_pb2.Message) -> dict[str, Any]:
    """A stored message as it is: clients of the wire only look at how many there are, and at their ids and roles."""
    shown: dict[str, Any] = MessageToDict(message, preserving_proto_field_name=True)
    return {**shown, "role": message_pb2.Message.Role.Name(message.role).removeprefix("ROLE_").lower()}


async def recompile(exchange: Exchange[None, Empty]) -> str:
    """The system prompt as it is compiled for every call; there is nothing that could be out of date."""
    agent = await get_agent(exchange, exchange.path["agent_id"])
    overview = await _overview(exchange, agent.default_conversation_id)
    kinds = (_Kind.KIND_SYSTEM, _Kind.KIND_MEMORY, _Kind.KIND_TOOL_RULES)
    return "\n\n".join(section.text for section in overview.sections if section.kind in kinds and section.text)


async def summarize(exchange: Exchange[SummarizeBody, Empty]) -> CompactionResult:
    """Summarise older messages now."""
    agent = await get_agent(exchange, exchange.path["agent_id"])
    return await compacted(exchange, agent.default_conversation_id)


_AGENT: Final = "/v1/agents/{agent_id}"
ENDPOINTS: Final = (
    Endpoint(
        method="POST",
        path="/v1/agents",
        summary="Create an agent.",
        tag="agents",
        handler=create,
        body=CreateBody,
        answer=AgentState,
    ),
    Endpoint(
        method="GET",
        path="/v1/agents",
        summary="List agents.",
        tag="agents",
        handler=list_agents,
        query=ListQuery,
        answer=list[AgentState],
    ),
    Endpoint(method="GET", path="/v1/agents/count", summary="Count agents.", tag="agents", handler=count, answer=int),
    Endpoint(
        method="GET",
        path=_AGENT,
        summary="Retrieve an agent.",
        tag="agents",
        handler=retrieve,
        query=RetrieveQuery,
        answer=AgentState,
    ),
    Endpoint(
        method="PATCH",
        path=_AGENT,
        summary="Change an agent.",
        tag="agents",
        handler=update,
        body=UpdateBody,
        answer=AgentState,
    ),
    Endpoint(method="DELETE", path=_AGENT, summary="Delete an agent.", tag="agents", handler=delete, answer=Deleted),
    Endpoint(
        method="GET",
        path=f"{_AGENT}/context",
        summary="What the model would be shown.",
        tag="agents",
        handler=context,
        query=ContextQuery,
        answer=ContextWindow,
    ),
    Endpoint(
        method="POST",
        path=f"{_AGENT}/recompile",
        summary="The system prompt as the model is shown it.",
        tag="agents",
        handler=recompile,
        answer=str,
    ),
    Endpoint(
        method="POST",
        path=f"{_AGENT}/summarize",
        summary="Summarise older messages now.",
        tag="agents",
        handler=summarize,
        body=SummarizeBody,
        answer=CompactionResult,
    ),
)
