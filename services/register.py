"""The only place that adds servicers to a server."""

from typing import Any

from google.protobuf.descriptor import ServiceDescriptor
from msgspec import Struct

from common.pb.bridle.v1 import (
    agent_service_pb2,
    agent_service_pb2_grpc,
    approval_service_pb2,
    approval_service_pb2_grpc,
    block_service_pb2,
    block_service_pb2_grpc,
    conversation_service_pb2,
    conversation_service_pb2_grpc,
    message_service_pb2,
    message_service_pb2_grpc,
    model_service_pb2,
    model_service_pb2_grpc,
    run_service_pb2,
    run_service_pb2_grpc,
    tool_service_pb2,
    tool_service_pb2_grpc,
)
from services.agents.servicer import AgentServicer
from services.blocks.servicer import BlockServicer
from services.conversations.servicer import ConversationServicer
from services.messages.servicer import MessageServicer
from services.models.servicer import ModelServicer
from services.runs.approval_servicer import ApprovalServicer
from services.runs.servicer import RunServicer
from services.tools.servicer import ToolServicer


class Servicers(Struct, frozen=True):
    """Everything this program can serve."""

    agents: AgentServicer
    blocks: BlockServicer
    conversations: ConversationServicer
    tools: ToolServicer
    models: ModelServicer
    messages: MessageServicer
    runs: RunServicer
    approvals: ApprovalServicer


def register(server: Any, servicers: Servicers, roles: tuple[str, ...]) -> list[str]:
    """Add what these roles host; the full names of the services, for reflection."""
    if "agents" in roles:
        agent_service_pb2_grpc.add_AgentServiceServicer_to_server(servicers.agents, server)
        conversation_service_pb2_grpc.add_ConversationServiceServicer_to_server(servicers.conversations, server)
        tool_service_pb2_grpc.add_ToolServiceServicer_to_server(servicers.tools, server)
        model_service_pb2_grpc.add_ModelServiceServicer_to_server(servicers.models, server)
        block_service_pb2_grpc.add_BlockServiceServicer_to_server(servicers.blocks, server)
    if "messages" in roles:
        message_service_pb2_grpc.add_MessageServiceServicer_to_server(servicers.messages, server)
    if "runs" in roles:
        run_service_pb2_grpc.add_RunServiceServicer_to_server(servicers.runs, server)
        approval_service_pb2_grpc.add_ApprovalServiceServicer_to_server(servicers.approvals, server)
    return [f"bridle.v1.{name}" for role in roles for name in _SERVICES.get(role, ())]


_SERVICES = {
    "agents": ("AgentService", "BlockService", "ConversationService", "ModelService", "ToolService"),
    "messages": ("MessageService",),
    "runs": ("ApprovalService", "RunService"),
}

# What a client may call, for the retries of its reads.
SERVICES: tuple[ServiceDescriptor, ...] = tuple(
    service
    for module in (
        agent_service_pb2,
        approval_service_pb2,
        block_service_pb2,
        conversation_service_pb2,
        message_service_pb2,
        model_service_pb2,
        run_service_pb2,
        tool_service_pb2,
    )
    for service in module.DESCRIPTOR.services_by_name.values()
)
