"""Agents as objects of the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from gateway import model_settings
from gateway.agents import rules
from gateway.agents.blocks import Block
from gateway.agents.inputs import kept_of
from gateway.agents.tools import Tool
from gateway.messages.ending import stop_reason
from gateway.messages.model import ApprovalRequestMessage
from gateway.messages.stored import moment
from gateway.model_settings import SettingsOut

if TYPE_CHECKING:
    from common.pb.bridle.v1 import agent_pb2

# What a model's window is taken for where nobody said, and what embeddings are shown as: there are none here.
_WINDOW: Final = 128_000
_AGENT_TYPE: Final = "letta_v1_agent"


class LlmConfig(Struct, frozen=True, kw_only=True):
    """The older way to show a model and how it is called."""

    model: str
    model_endpoint_type: str
    context_window: int
    handle: str
    provider_name: str
    provider_category: str = "base"
    model_endpoint: None = None
    model_wrapper: None = None
    temperature: float = 1.0
    max_tokens: int | None = None
    parallel_tool_calls: bool = False
    put_inner_thoughts_in_kwargs: bool = False
    enable_reasoner: bool = True
    reasoning_effort: str | None = None
    max_reasoning_tokens: int = 0
    strict: bool = False


class Memory(Struct, frozen=True, kw_only=True):
    """What the agent remembers in every context."""

    blocks: list[Block] = []
    file_blocks: list[Any] = []
    agent_type: str = _AGENT_TYPE
    git_enabled: bool = False
    prompt_template: str = ""


class Secret(Struct, frozen=True, kw_only=True):
    """A secret, of which only the name is ever told."""

    key: str
    agent_id: str
    value: str = ""
    id: None = None
    description: None = None


class Related(Struct, frozen=True, kw_only=True):
    """What belongs to an agent and is only told when it is asked for."""

    blocks: list[Block] = []
    tools: list[Tool] = []
    tags: list[str] = []
    secrets: list[str] = []
    message_ids: list[str] = []
    pending_approval: ApprovalRequestMessage | None = None


class AgentState(Struct, frozen=True, kw_only=True):
    """An agent."""

    id: str
    name: str
    system: str
    agent_type: str
    llm_config: LlmConfig
    memory: Memory
    blocks: list[Block]
    tools: list[Tool]
    tags: list[str]
    tool_rules: list[dict[str, Any]]
    message_ids: list[str]
    model: str
    embedding: str | None
    model_settings: SettingsOut
    embedding_config: dict[str, Any] | None
    compaction_settings: dict[str, Any] | None
    response_format: dict[str, Any] | None
    description: str | None
    metadata: dict[str, Any]
    secrets: list[Secret]
    tool_exec_environment_variables: list[Secret]
    pending_approval: ApprovalRequestMessage | None
    message_buffer_autoclear: bool
    enable_sleeptime: bool | None
    last_run_completion: str | None
    last_run_duration_ms: int | None
    last_stop_reason: str | None
    timezone: str
    max_files_open: int | None
    per_file_view_window_char_limit: int | None
    hidden: bool
    created_at: str
    updated_at: str
    project_id: str | None
    template_id: str | None
    base_template_id: str | None
    sources: list[Any] = []
    deployment_id: None = None
    entity_id: None = None
    identity_ids: list[str] = []
    identities: list[Any] = []
    multi_agent_group: None = None
    managed_group: None = None
    created_by_id: None = None
    last_updated_by_id: None = None


def agent_object(agent: agent_pb2.Agent, related: Related) -> AgentState:
    """An agent, with what was asked for."""
    kept, metadata = kept_of(agent)
    settings = model_settings.from_pb(agent.model_settings, agent.model)
    secrets = [Secret(key=key, agent_id=agent.id) for key in related.secrets]
    agent_type = str(kept.get("agent_type", _AGENT_TYPE))
    completed = agent.HasField("last_run_completion_time")
    return AgentState(
        id=agent.id,
        name=agent.name,
        system=agent.system,
        agent_type=agent_type,
        llm_config=_llm_config(agent, settings),
        memory=Memory(blocks=related.blocks, agent_type=agent_type),
        blocks=related.blocks,
        tools=related.tools,
        tags=related.tags,
        tool_rules=[rules.from_pb(rule) for rule in agent.tool_rules],
        message_ids=related.message_ids,
        model=agent.model,
        embedding=kept.get("embedding"),
        model_settings=settings,
        embedding_config=kept.get("embedding_config"),
        compaction_settings=kept.get("compaction_settings"),
        response_format=kept.get("response_format"),
        description=agent.description or None,
        metadata=metadata,
        secrets=secrets,
        tool_exec_environment_variables=secrets,
        pending_approval=related.pending_approval,
        message_buffer_autoclear=agent.forget_between_runs,
        enable_sleeptime=kept.get("enable_sleeptime"),
        last_run_completion=moment(agent.last_run_completion_time) if completed else None,
        last_run_duration_ms=agent.last_run_duration.ToMilliseconds() if completed else None,
        last_stop_reason=stop_reason(agent.last_stop_reason),
        timezone=agent.timezone or "UTC",
        max_files_open=kept.get("max_files_open"),
        per_file_view_window_char_limit=kept.get("per_file_view_window_char_limit"),
        hidden=agent.hidden,
        created_at=moment(agent.create_time),
        updated_at=moment(agent.update_time),
        project_id=kept.get("project_id"),
        template_id=kept.get("template_id"),
        base_template_id=kept.get("base_template_id"),
    )


def _llm_config(agent: agent_pb2.Agent, settings: SettingsOut) -> LlmConfig:
    provider, _, name = agent.model.partition("/")
    ours = agent.model_settings
    return LlmConfig(
        model=name,
        model_endpoint_type=provider,
        context_window=ours.context_window or _WINDOW,
        handle=agent.model,
        provider_name=provider,
        temperature=1.0 if settings.temperature is None else settings.temperature,
        max_tokens=settings.max_output_tokens,
        parallel_tool_calls=bool(settings.parallel_tool_calls),
        reasoning_effort=settings.reasoning["reasoning_effort"] if settings.reasoning else None,
        max_reasoning_tokens=ours.max_reasoning_tokens,
    )
