"""Gathers what belongs to an agent, as far as a client wants to see it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Literal

from common.pb.bridle.v1 import (
    agent_service_pb2,
    approval_service_pb2,
    block_service_pb2,
    message_service_pb2,
    tool_service_pb2,
)
from gateway.agents.blocks import Block, block_object
from gateway.agents.model import AgentState, Related, agent_object
from gateway.agents.tools import Tool, tool_object
from gateway.messages import stored
from gateway.messages.model import ApprovalRequestMessage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from common.pb.bridle.v1 import agent_pb2
    from gateway.http.endpoint import Exchange

Include = Literal[
    "agent.blocks",
    "agent.identities",
    "agent.managed_group",
    "agent.pending_approval",
    "agent.secrets",
    "agent.sources",
    "agent.tags",
    "agent.tools",
]

EVERYTHING: Final = frozenset({"blocks", "tools", "tags", "secrets"})
_MOST: Final = 1000


def wanted(exchange: Exchange[Any, Any], include: Iterable[str] | None, older: Iterable[str] | None) -> frozenset[str]:
    """What to tell: what is asked for, else nothing to an SDK of version 1 and everything to older clients."""
    if include is not None or older is not None:
        return frozenset(each.removeprefix("agent.") for each in (*(include or ()), *(older or ())))
    lean = "x-stainless-package-version" in exchange.headers or "user-agent" not in exchange.headers
    return frozenset() if lean else EVERYTHING


async def get_agent(exchange: Exchange[Any, Any], agent_id: str) -> agent_pb2.Agent:
    """The agent, or 404."""
    request = agent_service_pb2.GetAgentRequest(agent_id=agent_id)
    found: agent_pb2.Agent = await exchange.caller(exchange.backend.agents.GetAgent, request)
    return found


async def shown(exchange: Exchange[Any, Any], agent: agent_pb2.Agent, want: frozenset[str]) -> AgentState:
    """One agent, with the ids of the messages in its context."""
    related, ids = await asyncio.gather(gather(exchange, agent, want), message_ids(exchange, agent))
    return agent_object(agent, _with_ids(related, ids))


def _with_ids(related: Related, ids: list[str]) -> Related:
    return Related(
        blocks=related.blocks,
        tools=related.tools,
        tags=related.tags,
        secrets=related.secrets,
        pending_approval=related.pending_approval,
        message_ids=ids,
    )


async def gather(exchange: Exchange[Any, Any], agent: agent_pb2.Agent, want: frozenset[str]) -> Related:
    """What is wanted, asked for at the same time."""
    blocks, tools, pending = await asyncio.gather(
        blocks_of(exchange, agent.id) if "blocks" in want and agent.block_ids else _nothing(),
        tools_of(exchange, agent.id) if "tools" in want and agent.tool_ids else _nothing(),
        pending_approval(exchange, agent) if "pending_approval" in want else _none(),
    )
    return Related(
        blocks=blocks,
        tools=tools,
        pending_approval=pending,
        tags=list(agent.tags) if "tags" in want else [],
        secrets=list(agent.secret_keys) if "secrets" in want else [],
    )


async def _nothing() -> list[Any]:
    return []


async def _none() -> None:
    return None


async def blocks_of(exchange: Exchange[Any, Any], agent_id: str) -> list[Block]:
    """An agent's blocks, in the order of its prompt."""
    request = block_service_pb2.ListBlocksRequest(agent_id=agent_id, page_size=_MOST)
    return [block_object(each) for each in (await exchange.caller(exchange.backend.blocks.ListBlocks, request)).blocks]


async def tools_of(exchange: Exchange[Any, Any], agent_id: str) -> list[Tool]:
    """An agent's tools."""
    request = tool_service_pb2.ListToolsRequest(agent_id=agent_id, page_size=_MOST)
    return [tool_object(each) for each in (await exchange.caller(exchange.backend.tools.ListTools, request)).tools]


async def message_ids(exchange: Exchange[Any, Any], agent: agent_pb2.Agent) -> list[str]:
    """The messages in the context of the agent's default conversation: a view of the log."""
    request = message_service_pb2.ListMessagesRequest(agent_id=agent.id, in_context=True, page_size=_MOST)
    found = await exchange.caller(exchange.backend.messages.ListMessages, request)
    return [stored.system_message_id(agent.default_conversation_id), *(each.id for each in found.messages)]


async def pending_approval(exchange: Exchange[Any, Any], agent: agent_pb2.Agent) -> ApprovalRequestMessage | None:
    """The question that the agent's default conversation waits with, if it does."""
    request = approval_service_pb2.ListApprovalsRequest(agent_id=agent.id, page_size=_MOST)
    approvals = (await exchange.caller(exchange.backend.approvals.ListApprovals, request)).approvals
    open_one = next((each for each in approvals if each.conversation_id == agent.default_conversation_id), None)
    if open_one is None:
        return None
    get = message_service_pb2.GetMessageRequest(message_id=open_one.message_id)
    message = await exchange.caller(exchange.backend.messages.GetMessage, get)
    found = (each for each in stored.objects(message) if isinstance(each, ApprovalRequestMessage))
    return next(found, None)
