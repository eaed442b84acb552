"""What a conversation is. Values only: no storage, no transport."""

from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from services.agents.model import AgentSpec, ModelSettings


class ConversationSpec(Struct, frozen=True, omit_defaults=True):
    """What a caller can set; what is not set is the agent's business."""

    summary: str = ""
    model: str = ""
    model_settings: ModelSettings | None = None

    def over(self, agent: AgentSpec) -> AgentSpec:
        """The agent as it is in this conversation."""
        settings = agent.model_settings if self.model_settings is None else self.model_settings
        return replace(agent, model=self.model or agent.model, model_settings=settings)


class Conversation(Struct, frozen=True):
    """A conversation as it is stored."""

    id: str
    organization_id: str
    agent_id: str
    spec: ConversationSpec
    is_default: bool
    context_floor: int
    # Stands for everything below the floor; empty: nothing does.
    summary_message_id: str
    next_message_seq: int
    last_message_at: datetime | None
    version: int
    created_at: datetime
    updated_at: datetime
