"""Agents between protobuf and the domain: the only file here that knows both."""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp
from msgspec.structs import replace

from common.pb.bridle.v1 import agent_pb2, agent_service_pb2, model_pb2, stop_reason_pb2, tool_rule_pb2
from services.agents import model
from services.agents.names import made_up_name
from services.wire.wellknown import enum_number, enum_text, present, to_dict, to_duration, to_seconds, to_struct

_EFFORT = (model_pb2.ModelSettings.ReasoningEffort, "REASONING_EFFORT_")
_MODE = (agent_pb2.CompactionSettings.Mode, "MODE_")
_REASON = (stop_reason_pb2.StopReason, "STOP_REASON_")

_SETTINGS_SCALARS = (
    "temperature",
    "max_output_tokens",
    "context_window",
    "max_reasoning_tokens",
    "parallel_tool_calls",
)
_SETTINGS_DURATIONS = ("first_token_timeout", "token_gap_timeout", "call_timeout")

Rule = tool_rule_pb2.ToolRule


def etag(version: int) -> str:
    """What callers compare; they must not read anything into it."""
    return f"v{version}"


def new_agent(
    pb: agent_pb2.Agent, agent_id: str, conversation_id: str, organization_id: str, default_model: str, now: datetime
) -> model.Agent:
    """A first version of an agent from what a caller asked for."""
    return model.Agent(
        id=agent_id,
        organization_id=organization_id,
        name=pb.name or made_up_name(agent_id),
        spec=_with_secrets(spec_from_pb(pb, default_model), pb.secrets),
        tags=tuple(sorted(pb.tags)),
        default_conversation_id=conversation_id,
        version=1,
        created_at=now,
        updated_at=now,
        block_ids=tuple(pb.block_ids),
    )


def changed_agent(current: model.Agent, pb: agent_pb2.Agent, default_model: str, *, secrets: bool) -> model.Agent:
    """The agent with everything that a caller can set taken from `pb`; its secrets only if they are meant."""
    keys = pb.secrets if secrets else current.spec.secret_keys
    return replace(
        current,
        name=pb.name,
        tags=tuple(sorted(pb.tags)),
        block_ids=tuple(pb.block_ids),
        spec=_with_secrets(spec_from_pb(pb, default_model), keys),
    )


def _with_secrets(spec: model.AgentSpec, keys: Iterable[str]) -> model.AgentSpec:
    return replace(spec, secret_keys=tuple(sorted(keys)))


def spec_from_pb(pb: agent_pb2.Agent, default_model: str) -> model.AgentSpec:
    """What a caller can set, apart from name, tags and blocks."""
    return model.AgentSpec(
        description=pb.description,
        system=pb.system,
        model=pb.model or default_model,
        model_settings=settings_from_pb(pb.model_settings),
        metadata=to_dict(pb.metadata),
        tool_ids=tuple(dict.fromkeys(pb.tool_ids)),
        tool_rules=tuple(rule_from_pb(rule) for rule in pb.tool_rules),
        compaction=compaction_from_pb(pb.compaction),
        timezone=pb.timezone,
        approval_ttl=to_seconds(pb.approval_ttl) if pb.HasField("approval_ttl") else None,
        forget_between_runs=pb.forget_between_runs,
        hidden=pb.hidden,
    )


def agent_to_pb(agent: model.Agent) -> agent_pb2.Agent:
    """An agent as callers see it."""
    spec = agent.spec
    pb = agent_pb2.Agent(
        id=agent.id,
        name=agent.name,
        description=spec.description,
        system=spec.system,
        model=spec.model,
        tags=agent.tags,
        tool_ids=spec.tool_ids,
        tool_rules=[rule_to_pb(rule) for rule in spec.tool_rules],
        block_ids=agent.block_ids,
        compaction=_compaction_to_pb(spec.compaction),
        timezone=spec.timezone,
        secret_keys=spec.secret_keys,
        forget_between_runs=spec.forget_between_runs,
        hidden=spec.hidden,
        default_conversation_id=agent.default_conversation_id,
        etag=etag(agent.version),
        create_time=_timestamp(agent.created_at),
        update_time=_timestamp(agent.updated_at),
    )
    # What is not set stays absent, so that callers can tell.
    if spec.model_settings != model.ModelSettings():
        pb.model_settings.CopyFrom(settings_to_pb(spec.model_settings))
    if spec.metadata:
        pb.metadata.CopyFrom(to_struct(spec.metadata))
    if spec.approval_ttl is not None:
        pb.approval_ttl.CopyFrom(to_duration(spec.approval_ttl))
    _add_last_run(pb, agent)
    return pb


def filter_from_pb(pb: agent_service_pb2.AgentFilter) -> model.AgentFilter:
    """Which agents a caller means."""
    return model.AgentFilter(
        name=pb.name,
        query=pb.query,
        tags=tuple(sorted(set(pb.tags))),
        match_all_tags=pb.match_all_tags,
        last_stop_reason=enum_text(*_REASON, pb.last_stop_reason) if pb.last_stop_reason else None,
        include_hidden=pb.include_hidden,
    )


def compaction_from_pb(pb: agent_pb2.CompactionSettings) -> model.CompactionSettings:
    """Compaction settings; what is unset gets its default."""
    default = model.CompactionSettings()
    return model.CompactionSettings(
        mode=enum_text(*_MODE, pb.mode) if pb.mode else default.mode,
        threshold=pb.threshold if pb.HasField("threshold") else default.threshold,
        keep=pb.keep if pb.HasField("keep") else default.keep,
        model=pb.model,
        prompt=pb.prompt,
    )


def rule_from_pb(pb: Rule) -> model.ToolRule:
    """One tool rule."""
    kind = pb.WhichOneof("rule")
    if kind is None:
        raise ValueError("a rule that was validated says something")
    return _RULE_FROM_PB[kind](pb)


def rule_to_pb(rule: model.ToolRule) -> Rule:
    """One tool rule."""
    kind, body = _rule_body(rule)
    # One of the names is a Python keyword.
    return Rule(tool_name=rule.tool_name, **{kind: body})


def _child_tools(pb: Rule) -> model.ToolRule:
    args = {name: to_dict(struct) for name, struct in pb.child_tools.child_args.items()}
    return model.ChildTools(pb.tool_name, children=tuple(pb.child_tools.children), child_args=args or None)


def _run_first(pb: Rule) -> model.ToolRule:
    return model.RunFirst(pb.tool_name, args=to_dict(pb.run_first.args) if pb.run_first.HasField("args") else None)


def _conditional(pb: Rule) -> model.ToolRule:
    return model.Conditional(
        pb.tool_name,
        child_output_mapping=dict(pb.conditional.child_output_mapping),
        default_child=pb.conditional.default_child,
        require_output_mapping=pb.conditional.require_output_mapping,
    )


_RULE_FROM_PB: dict[str, Callable[[Rule], model.ToolRule]] = {
    "run_first": _run_first,
    "terminal": lambda pb: model.Terminal(pb.tool_name),
    "continue": lambda pb: model.Continue(pb.tool_name),
    "child_tools": _child_tools,
    "parent_tools": lambda pb: model.ParentTools(pb.tool_name, children=tuple(pb.parent_tools.children)),
    "conditional": _conditional,
    "required_before_exit": lambda pb: model.RequiredBeforeExit(pb.tool_name),
    "max_count": lambda pb: model.MaxCount(pb.tool_name, limit=pb.max_count.limit),
    "requires_approval": lambda pb: model.RequiresApproval(pb.tool_name),
}


def _rule_body(rule: model.ToolRule) -> tuple[str, Any]:
    match rule:
        case model.RunFirst(args=args):
            return "run_first", Rule.RunFirst(args=None if args is None else to_struct(args))
        case model.Terminal():
            return "terminal", Rule.Terminal()
        case model.Continue():
            return "continue", Rule.Continue()
        case model.ChildTools(children=children, child_args=child_args):
            structs = {name: to_struct(args) for name, args in (child_args or {}).items()}
            return "child_tools", Rule.ChildTools(children=children, child_args=structs)
        case model.ParentTools(children=children):
            return "parent_tools", Rule.ParentTools(children=children)
        case model.Conditional():
            return "conditional", _conditional_body(rule)
        case model.RequiredBeforeExit():
            return "required_before_exit", Rule.RequiredBeforeExit()
        case model.MaxCount(limit=limit):
            return "max_count", Rule.MaxCount(limit=limit)
        case model.RequiresApproval():
            return "requires_approval", Rule.RequiresApproval()


def _conditional_body(rule: model.Conditional) -> Rule.Conditional:
    return Rule.Conditional(
        child_output_mapping=rule.child_output_mapping,
        default_child=rule.default_child,
        require_output_mapping=rule.require_output_mapping,
    )


def settings_from_pb(pb: model_pb2.ModelSettings) -> model.ModelSettings:
    """How the model is called; what is unset stays the provider's choice."""
    given = present(pb)
    values: dict[str, Any] = {name: getattr(pb, name) for name in _SETTINGS_SCALARS if name in given}
    values |= {name: to_seconds(getattr(pb, name)) for name in _SETTINGS_DURATIONS if name in given}
    if pb.reasoning_effort:
        values["reasoning_effort"] = enum_text(*_EFFORT, pb.reasoning_effort)
    if pb.HasField("response_schema"):
        values["response_schema"] = to_dict(pb.response_schema)
    return model.ModelSettings(**values)


def settings_to_pb(settings: model.ModelSettings) -> model_pb2.ModelSettings:
    """How the model is called."""
    pb = model_pb2.ModelSettings(**{name: getattr(settings, name) for name in _SETTINGS_SCALARS})
    for name in _SETTINGS_DURATIONS:
        seconds = getattr(settings, name)
        if seconds is not None:
            getattr(pb, name).CopyFrom(to_duration(seconds))
    if settings.reasoning_effort is not None:
        pb.reasoning_effort = enum_number(*_EFFORT, settings.reasoning_effort)
    if settings.response_schema is not None:
        pb.response_schema.CopyFrom(to_struct(settings.response_schema))
    return pb


def _compaction_to_pb(settings: model.CompactionSettings) -> agent_pb2.CompactionSettings:
    return agent_pb2.CompactionSettings(
        mode=enum_number(*_MODE, settings.mode),
        threshold=settings.threshold,
        keep=settings.keep,
        model=settings.model,
        prompt=settings.prompt,
    )


def _add_last_run(pb: agent_pb2.Agent, agent: model.Agent) -> None:
    if agent.last_stop_reason is not None:
        pb.last_stop_reason = enum_number(*_REASON, agent.last_stop_reason)
    if agent.last_run_completed_at is not None:
        pb.last_run_completion_time.CopyFrom(_timestamp(agent.last_run_completed_at))
    if agent.last_run_duration_us is not None:
        pb.last_run_duration.FromMicroseconds(agent.last_run_duration_us)


def _timestamp(moment: datetime) -> Timestamp:
    stamp = Timestamp()
    stamp.FromDatetime(moment)
    return stamp
