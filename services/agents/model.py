"""What an agent is. Values only: no storage, no transport."""

from datetime import datetime
from typing import Any

from msgspec import Struct


class ModelSettings(Struct, frozen=True, omit_defaults=True):
    """How the model is called; None leaves the choice to the provider."""

    temperature: float | None = None
    max_output_tokens: int | None = None
    context_window: int | None = None
    reasoning_effort: str | None = None
    max_reasoning_tokens: int | None = None
    parallel_tool_calls: bool | None = None
    response_schema: dict[str, Any] | None = None
    first_token_timeout: float | None = None
    token_gap_timeout: float | None = None
    call_timeout: float | None = None


class CompactionSettings(Struct, frozen=True, omit_defaults=True):
    """When and how old messages are summarised."""

    mode: str = "sliding_window"
    threshold: float = 0.9
    keep: float = 0.3
    model: str = ""
    prompt: str = ""


class _Rule(Struct, frozen=True, tag_field="type", omit_defaults=True):
    """A rule about one tool, by name."""

    tool_name: str


class RunFirst(_Rule, frozen=True, tag="run_first"):
    """Offered alone, and forced, while no tool has been called in the run."""

    args: dict[str, Any] | None = None


class Terminal(_Rule, frozen=True, tag="exit_loop"):
    """After this tool has run, the run stops."""


class Continue(_Rule, frozen=True, tag="continue_loop"):
    """The run goes on after this tool, as it does anyway."""


class ChildTools(_Rule, frozen=True, tag="constrain_child_tools"):
    """If this was the last tool called, only its children may be called next."""

    children: tuple[str, ...]
    child_args: dict[str, dict[str, Any]] | None = None


class ParentTools(_Rule, frozen=True, tag="parent_last_tool"):
    """The children may only be called directly after this tool, and then only they."""

    children: tuple[str, ...]


class Conditional(_Rule, frozen=True, tag="conditional"):
    """What this tool returned picks the one tool that may be called next."""

    child_output_mapping: dict[str, str]
    default_child: str = ""
    require_output_mapping: bool = False


class RequiredBeforeExit(_Rule, frozen=True, tag="required_before_exit"):
    """The run may not end before this tool was called."""


class MaxCount(_Rule, frozen=True, tag="max_count_per_step"):
    """No longer offered once it was called this often in the run."""

    limit: int


class RequiresApproval(_Rule, frozen=True, tag="requires_approval"):
    """Not executed before a person approved the call."""


ToolRule = (
    RunFirst
    | Terminal
    | Continue
    | ChildTools
    | ParentTools
    | Conditional
    | RequiredBeforeExit
    | MaxCount
    | RequiresApproval
)


class AgentSpec(Struct, frozen=True, omit_defaults=True):
    """What a caller can set, apart from what has rows or columns of its own (name, tags, blocks)."""

    description: str = ""
    system: str = ""
    model: str = ""
    model_settings: ModelSettings = ModelSettings()
    metadata: dict[str, Any] = {}
    tool_ids: tuple[str, ...] = ()
    tool_rules: tuple[ToolRule, ...] = ()
    compaction: CompactionSettings = CompactionSettings()
    timezone: str = ""
    # Only their names: the values are in a table of their own, sealed.
    secret_keys: tuple[str, ...] = ()
    approval_ttl: float | None = None
    forget_between_runs: bool = False
    hidden: bool = False


class Agent(Struct, frozen=True):
    """An agent as it is stored."""

    id: str
    organization_id: str
    name: str
    spec: AgentSpec
    tags: tuple[str, ...]
    default_conversation_id: str
    version: int
    created_at: datetime
    updated_at: datetime
    # In prompt order.
    block_ids: tuple[str, ...] = ()
    last_stop_reason: str | None = None
    last_run_completed_at: datetime | None = None
    last_run_duration_us: int | None = None


class AgentFilter(Struct, frozen=True):
    """Which agents are meant; every condition that is set must hold."""

    name: str = ""
    query: str = ""
    tags: tuple[str, ...] = ()
    match_all_tags: bool = False
    last_stop_reason: str | None = None
    include_hidden: bool = False
