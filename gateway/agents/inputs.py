"""What clients say about an agent, as ours. What only the wire has is kept with it under a key of its own."""

from __future__ import annotations

from typing import Any, Final, Literal

from msgspec import UNSET, Struct, UnsetType

from common.pb.bridle.v1 import agent_pb2, model_pb2
from gateway import model_settings
from gateway.agents import rules
from gateway.agents.blocks import BlockIn
from gateway.agents.rules import RuleIn
from gateway.messages.inputs import fill
from gateway.model_settings import SettingsIn
from gateway.runs.begin import KEPT
from gateway.structs import Int32, plain

Maybe = UnsetType | None

_Effort = model_pb2.ModelSettings
_MODES: Final = {
    "all": agent_pb2.CompactionSettings.MODE_ALL,
    "self_compact_all": agent_pb2.CompactionSettings.MODE_ALL,
    "sliding_window": agent_pb2.CompactionSettings.MODE_SLIDING_WINDOW,
    "self_compact_sliding_window": agent_pb2.CompactionSettings.MODE_SLIDING_WINDOW,
}
# Fields of the wire that mean nothing here and come back as they were given.
_KEPT: Final = (
    "agent_type",
    "embedding",
    "embedding_config",
    "compaction_settings",
    "response_format",
    "enable_sleeptime",
    "max_files_open",
    "per_file_view_window_char_limit",
    "project_id",
    "template_id",
    "base_template_id",
)


class LlmConfigIn(Struct, frozen=True, kw_only=True):
    """The older way to name a model and how it is called."""

    model: str
    model_endpoint_type: str | None = None
    handle: str | None = None
    context_window: Int32 | None = None
    temperature: float | None = None
    max_tokens: Int32 | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None
    max_reasoning_tokens: Int32 | None = None


class CompactionIn(Struct, frozen=True, kw_only=True):
    """When and how old messages are summarised."""

    mode: Literal["all", "sliding_window", "self_compact_all", "self_compact_sliding_window"] | None = None
    model: str | None = None
    prompt: str | None = None
    sliding_window_percentage: float | None = None
    clip_chars: int | None = None


class AgentFields(Struct, frozen=True, kw_only=True):
    """What can be said of a new agent and of an old one."""

    name: str | Maybe = UNSET
    system: str | Maybe = UNSET
    description: str | Maybe = UNSET
    metadata: dict[str, Any] | Maybe = UNSET
    tags: list[str] | Maybe = UNSET
    model: str | Maybe = UNSET
    model_settings: SettingsIn | Maybe = UNSET
    llm_config: LlmConfigIn | Maybe = UNSET
    context_window_limit: Int32 | Maybe = UNSET
    max_tokens: Int32 | Maybe = UNSET
    max_reasoning_tokens: Int32 | Maybe = UNSET
    parallel_tool_calls: bool | Maybe = UNSET
    reasoning: bool | Maybe = UNSET
    response_format: dict[str, Any] | Maybe = UNSET
    compaction_settings: CompactionIn | Maybe = UNSET
    tool_ids: list[str] | Maybe = UNSET
    tool_rules: list[RuleIn] | Maybe = UNSET
    block_ids: list[str] | Maybe = UNSET
    secrets: dict[str, str] | Maybe = UNSET
    tool_exec_environment_variables: dict[str, str] | Maybe = UNSET
    message_buffer_autoclear: bool | Maybe = UNSET
    timezone: str | Maybe = UNSET
    hidden: bool | Maybe = UNSET
    agent_type: str | Maybe = UNSET
    embedding: str | Maybe = UNSET
    embedding_config: dict[str, Any] | Maybe = UNSET
    enable_sleeptime: bool | Maybe = UNSET
    max_files_open: int | Maybe = UNSET
    per_file_view_window_char_limit: int | Maybe = UNSET
    project_id: str | Maybe = UNSET
    template_id: str | Maybe = UNSET
    base_template_id: str | Maybe = UNSET


class InitialMessage(Struct, frozen=True):
    """A message that a new agent begins with."""

    role: Literal["user", "system", "assistant"]
    content: Any = None


class CreateBody(AgentFields, frozen=True, kw_only=True):
    """A new agent."""

    memory_blocks: list[BlockIn] | None = None
    tools: list[str] | None = None
    include_base_tools: bool = True
    initial_message_sequence: list[InitialMessage] | None = None


class UpdateBody(AgentFields, frozen=True, kw_only=True):
    """What changes about an agent; what is null goes back to its default."""


class Changes:
    """Collects an agent and the paths of it that were said, for a mask."""

    def __init__(self) -> None:
        self.agent = agent_pb2.Agent()
        self.paths: list[str] = []

    def put(self, path: str, value: Any) -> None:
        """Say one field; None clears it."""
        self.paths.append(path)
        *parents, name = path.split(".")
        target: Any = self.agent
        for parent in parents:
            target = getattr(target, parent)
        if value is not None and isinstance(value, (list, tuple)):
            getattr(target, name).extend(value)
        elif value is not None:
            setattr(target, name, value)


def changes(given: AgentFields, kept: dict[str, Any], metadata: dict[str, Any]) -> Changes:
    """What is said of an agent. `kept` and `metadata` are what it has of them now."""
    found = Changes()
    for name in ("name", "system", "description", "timezone", "hidden"):
        _plain(found, given, name)
    for name in ("tags", "tool_ids", "block_ids"):
        _plain(found, given, name)
    _plain(found, given, "message_buffer_autoclear", "forget_between_runs")
    if given.tool_rules is not UNSET:
        said = [rules.to_pb(rule, ("body", "tool_rules", index)) for index, rule in enumerate(given.tool_rules or ())]
        found.put("tool_rules", said)
    _secrets(found, given)
    _model(found, given)
    _compaction(found, given)
    _metadata(found, given, kept, metadata)
    return found


def _plain(found: Changes, given: AgentFields, name: str, ours: str = "") -> None:
    value = getattr(given, name)
    if value is not UNSET:
        found.put(ours or name, value)


def _secrets(found: Changes, given: AgentFields) -> None:
    # Two names of the same thing; the newer one wins.
    said = given.secrets if given.secrets is not UNSET else given.tool_exec_environment_variables
    if said is not UNSET:
        found.paths.append("secrets")
        found.agent.secrets.update(said or {})


def _model(found: Changes, given: AgentFields) -> None:
    config = given.llm_config
    if isinstance(config, LlmConfigIn):
        found.put("model", config.handle or f"{config.model_endpoint_type or 'openai'}/{config.model}")
        for name, ours in (
            ("context_window", "context_window"),
            ("temperature", "temperature"),
            ("max_tokens", "max_output_tokens"),
            ("parallel_tool_calls", "parallel_tool_calls"),
            ("max_reasoning_tokens", "max_reasoning_tokens"),
        ):
            if getattr(config, name) is not None:
                found.put(f"model_settings.{ours}", getattr(config, name))
        if config.reasoning_effort is not None:
            found.put("model_settings.reasoning_effort", model_settings.effort(config.reasoning_effort))
    _plain(found, given, "model")
    if isinstance(given.model_settings, SettingsIn):
        _settings(found, given.model_settings)
    for name, ours in (
        ("context_window_limit", "context_window"),
        ("max_tokens", "max_output_tokens"),
        ("max_reasoning_tokens", "max_reasoning_tokens"),
        ("parallel_tool_calls", "parallel_tool_calls"),
    ):
        _plain(found, given, name, f"model_settings.{ours}")
    if given.reasoning is False:
        found.put("model_settings.reasoning_effort", _Effort.REASONING_EFFORT_NONE)
    if given.response_format is not UNSET:
        found.paths.append("model_settings.response_schema")
        schema = model_settings.schema_of(given.response_format)
        if schema:
            fill(found.agent.model_settings.response_schema, schema, ("body", "response_format"))


def _settings(found: Changes, given: SettingsIn) -> None:
    said = model_settings.to_pb(given)
    found.agent.model_settings.MergeFrom(said)
    found.paths += [f"model_settings.{field.name}" for field, _ in said.ListFields()]


def _compaction(found: Changes, given: AgentFields) -> None:
    said = given.compaction_settings
    if said is UNSET:
        return
    found.paths.append("compaction")
    if isinstance(said, CompactionIn):
        found.agent.compaction.MergeFrom(compaction(said))


def compaction(given: CompactionIn) -> agent_pb2.CompactionSettings:
    """How old messages are summarised, as ours."""
    return agent_pb2.CompactionSettings(
        mode=_MODES[given.mode] if given.mode else 0,  # type: ignore[arg-type]  # an enum is a number
        model=given.model or "",
        prompt=given.prompt or "",
    )


def _metadata(found: Changes, given: AgentFields, kept: dict[str, Any], metadata: dict[str, Any]) -> None:
    said = {name: _simple(getattr(given, name)) for name in _KEPT if getattr(given, name) is not UNSET}
    if given.metadata is UNSET and not said:
        return
    own = (given.metadata or {}) if given.metadata is not UNSET else metadata
    keep = {name: value for name, value in {**kept, **said}.items() if value is not None}
    found.paths.append("metadata")
    fill(found.agent.metadata, {**own, **({KEPT: keep} if keep else {})}, ("body", "metadata"))


def _simple(value: Any) -> Any:
    if isinstance(value, CompactionIn):
        return {name: getattr(value, name) for name in value.__struct_fields__ if getattr(value, name) is not None}
    return value


def kept_of(agent: agent_pb2.Agent) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the wire kept with an agent, and the agent's own metadata."""
    metadata: dict[str, Any] = plain(agent.metadata)
    kept = metadata.pop(KEPT, {})
    return (kept if isinstance(kept, dict) else {}), metadata
