"""Every endpoint, in one table."""

from gateway.endpoints import (
    agent_messages,
    agents,
    blocks,
    chat,
    conversations,
    health,
    messages,
    models,
    runs,
    steps,
    tools,
)
from gateway.endpoints.later import LATER
from gateway.http.endpoint import Endpoint

ENDPOINTS: tuple[Endpoint, ...] = (
    *health.ENDPOINTS,
    *agents.ENDPOINTS,
    *tools.ENDPOINTS,
    *blocks.ENDPOINTS,
    *models.ENDPOINTS,
    *steps.ENDPOINTS,
    *agent_messages.ENDPOINTS,
    *runs.ENDPOINTS,
    *conversations.ENDPOINTS,
    *messages.ENDPOINTS,
    *chat.ENDPOINTS,
)

__all__ = ["ENDPOINTS", "LATER"]
