"""Every endpoint, in one table."""

from gateway.endpoints import agent_messages, conversations, health, messages, runs
from gateway.endpoints.later import LATER
from gateway.http.endpoint import Endpoint

ENDPOINTS: tuple[Endpoint, ...] = (
    *health.ENDPOINTS,
    *agent_messages.ENDPOINTS,
    *runs.ENDPOINTS,
    *conversations.ENDPOINTS,
    *messages.ENDPOINTS,
)

__all__ = ["ENDPOINTS", "LATER"]
