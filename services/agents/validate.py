"""The rules that the comments of agent.proto and agent_service.proto state, with every broken one named at once."""

import re
from collections.abc import Callable, Collection, Sequence

from common.errors import FieldViolation, InvalidArgument
from common.ids import Prefix
from common.pb.bridle.v1 import agent_pb2, agent_service_pb2, model_pb2, stop_reason_pb2, tool_rule_pb2
from services.agents.attach import MAX_RULES, MAX_TOOLS
from services.agents.model import CompactionSettings
from services.blocks import validate as blocks
from services.blocks.model import MAX_BLOCKS, clash
from services.wire import checks, masks
from services.wire.checks import Found, require
from services.wire.wellknown import present

Agent = agent_pb2.Agent

_MAX_SYSTEM_BYTES = 256 * 1024
_MAX_METADATA_BYTES = 16 * 1024
_MAX_TAGS = 64
_MAX_SECRETS = 64
_MAX_SECRET_BYTES = 32 * 1024
_SHOWN_KEY = 40
_ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_MAX_QUERY = 1_000
_DEFAULTS = CompactionSettings()
_ORDERS = {"": True, "create_time desc": True, "create_time": False}


def create(request: agent_service_pb2.CreateAgentRequest) -> None:
    """Refuse a creation that breaks a rule."""
    agent = request.agent
    found = [] if request.HasField("agent") else [FieldViolation("agent", "is required")]
    # An agent without a name gets one.
    found += _fields(agent, _CHECKS.keys() if agent.name else _CHECKS.keys() - {"name"})
    found += _shares(agent.compaction)
    found += checks.count("tool_names", request.tool_names, MAX_TOOLS)
    found += _each("tool_names", request.tool_names, checks.tool_name)
    found += _request_id(request.request_id)
    found += _memory(request)
    require(found)


def update(request: agent_service_pb2.UpdateAgentRequest) -> tuple[str, ...]:
    """Refuse an update that breaks a rule by itself, and give the paths that it changes."""
    found = [*checks.identifier("agent.id", Prefix.AGENT, request.agent.id), *_request_id(request.request_id)]
    wrong = list(masks.problems(Agent.DESCRIPTOR, request.update_mask))
    if wrong:
        raise InvalidArgument([*found, *wrong])
    paths = masks.changed_paths(request.agent, request.update_mask)
    fields = masks.top_level(paths)
    # What the mask leaves out is not looked at.
    found += _fields(masks.copy(request.agent, Agent(), paths), fields)
    require(found)
    # `*` names them too, and means to change nothing about them if they are empty.
    everything = masks.EVERYTHING in request.update_mask.paths
    if everything and not request.agent.secrets:
        # Who has read the agent cannot give them back: they are never returned.
        paths = tuple(path for path in paths if path != "secrets")
    return paths


def merged(agent: Agent) -> None:
    """Refuse an update whose new values do not fit those that stay."""
    require(_shares(agent.compaction))


def agent_id(text: str) -> None:
    """Refuse what cannot be the id of an agent."""
    require(checks.identifier("agent_id", Prefix.AGENT, text))


def agent_filter(pb: agent_service_pb2.AgentFilter) -> None:
    """Refuse a filter that can mean nothing."""
    found = list(checks.text("filter.name", pb.name, most=100))
    found += checks.text("filter.query", pb.query, most=_MAX_QUERY)
    found += checks.count("filter.tags", pb.tags, _MAX_TAGS)
    found += _each("filter.tags", pb.tags, _tag)
    found += checks.enum("filter.last_stop_reason", stop_reason_pb2.StopReason, pb.last_stop_reason)
    require(found)


def newest_first(order_by: str) -> bool:
    """Which way an order goes; refuse one that is not offered."""
    descending = _ORDERS.get(" ".join(order_by.split()))
    if descending is None:
        raise InvalidArgument.of("order_by", "must be 'create_time desc' or 'create_time'")
    return descending


def tag_query(text: str) -> None:
    """Refuse a text that no tag can contain."""
    require(checks.text("query", text, most=_MAX_QUERY))


def _fields(agent: Agent, names: Collection[str]) -> Found:
    for name, check in _CHECKS.items():
        if name in names:
            yield from check(f"agent.{name}", agent)


def _each(field: str, values: Sequence[str], check: Callable[[str, str], Found]) -> Found:
    for number, value in enumerate(values):
        yield from check(f"{field}[{number}]", value)


def _request_id(value: str) -> Found:
    return checks.text("request_id", value, most=128)


def _tag(field: str, value: str) -> Found:
    return checks.text(field, value, least=1, most=100)


def _tags(field: str, agent: Agent) -> Found:
    yield from checks.count(field, agent.tags, _MAX_TAGS)
    yield from _each(field, agent.tags, _tag)
    yield from checks.no_duplicates(field, agent.tags)


def _tool_ids(field: str, agent: Agent) -> Found:
    yield from checks.count(field, agent.tool_ids, MAX_TOOLS)
    yield from _each(field, agent.tool_ids, lambda at, value: checks.identifier(at, Prefix.TOOL, value))


def _secrets(field: str, agent: Agent) -> Found:
    yield from checks.count(field, agent.secrets, _MAX_SECRETS)
    for key, value in agent.secrets.items():
        # An error is logged and shown: it names the key and never quotes the value.
        if not _ENVIRONMENT_NAME.fullmatch(key):
            shown = key[:_SHOWN_KEY]
            yield FieldViolation(f"{field}[{shown}]", "must be a name of 1 to 128 letters, digits and underscores")
        yield from checks.size_in_bytes(f"{field}[{key[:_SHOWN_KEY]}]", value, _MAX_SECRET_BYTES)
        # An environment cannot hold it.
        if "\0" in value:
            yield FieldViolation(f"{field}[{key[:_SHOWN_KEY]}]", "must not contain a NUL character")


def _block_ids(field: str, agent: Agent) -> Found:
    yield from checks.count(field, agent.block_ids, MAX_BLOCKS)
    yield from _each(field, agent.block_ids, lambda at, value: checks.identifier(at, Prefix.BLOCK, value))
    yield from checks.no_duplicates(field, agent.block_ids)


def _memory(request: agent_service_pb2.CreateAgentRequest) -> Found:
    made = request.memory_blocks
    if made and len(request.agent.block_ids) + len(made) > MAX_BLOCKS:
        yield FieldViolation("memory_blocks", f"must have at most {MAX_BLOCKS} elements, with those of agent.block_ids")
    for number, block in enumerate(made):
        yield from blocks.new_block(f"memory_blocks[{number}]", block)
    place = clash([block.label for block in made])
    if place is not None:
        yield FieldViolation(f"memory_blocks[{place}].label", "is the label of an earlier block")


def _approval_ttl(field: str, agent: Agent) -> Found:
    if agent.HasField("approval_ttl"):
        yield from checks.duration(field, agent.approval_ttl)


def model_settings(field: str, settings: model_pb2.ModelSettings) -> Found:
    """How a model is called, by an agent or in a conversation."""
    given = present(settings)
    # Written so that NaN, which compares with nothing, is refused.
    if not 0 <= settings.temperature <= 2:
        yield FieldViolation(f"{field}.temperature", "must be 0 to 2")
    for name, least in (("max_output_tokens", 1), ("context_window", 1_000), ("max_reasoning_tokens", 0)):
        if name in given:
            yield from checks.at_least(f"{field}.{name}", getattr(settings, name), least)
    effort = model_pb2.ModelSettings.ReasoningEffort
    yield from checks.enum(f"{field}.reasoning_effort", effort, settings.reasoning_effort)
    yield from checks.json(f"{field}.response_schema", settings.response_schema)
    for name in ("first_token_timeout", "token_gap_timeout", "call_timeout"):
        if name in given:
            yield from checks.duration(f"{field}.{name}", getattr(settings, name))


def _compaction(field: str, agent: Agent) -> Found:
    settings = agent.compaction
    yield from checks.enum(f"{field}.mode", agent_pb2.CompactionSettings.Mode, settings.mode)
    if settings.HasField("threshold") and not 0 < settings.threshold <= 1:
        yield FieldViolation(f"{field}.threshold", "must be above 0 and at most 1")
    if settings.HasField("keep") and not 0 < settings.keep < 1:
        yield FieldViolation(f"{field}.keep", "must be above 0 and below threshold")
    yield from checks.handle(f"{field}.model", settings.model)


def _shares(settings: agent_pb2.CompactionSettings) -> Found:
    threshold = settings.threshold if settings.HasField("threshold") else _DEFAULTS.threshold
    keep = settings.keep if settings.HasField("keep") else _DEFAULTS.keep
    # Values that are wrong by themselves are not reported twice.
    if 0 < threshold <= keep < 1:
        yield FieldViolation("agent.compaction.keep", f"is {keep:g} and must be below threshold, {threshold:g}")


def _tool_rules(field: str, agent: Agent) -> Found:
    yield from checks.count(field, agent.tool_rules, MAX_RULES)
    for number, rule in enumerate(agent.tool_rules):
        yield from _tool_rule(f"{field}[{number}]", rule)


def _tool_rule(field: str, rule: tool_rule_pb2.ToolRule) -> Found:
    yield from checks.tool_name(f"{field}.tool_name", rule.tool_name)
    kind = rule.WhichOneof("rule")
    if kind is None:
        yield FieldViolation(f"{field}.rule", "is required: one of its kinds must be set")
    elif kind in _RULE_CHECKS:
        yield from _RULE_CHECKS[kind](f"{field}.{kind}", rule)


def _children(field: str, names: Sequence[str]) -> Found:
    if not names:
        yield FieldViolation(field, "must have at least one element")
    yield from _each(field, names, checks.tool_name)


def _child_tools(field: str, rule: tool_rule_pb2.ToolRule) -> Found:
    yield from _children(f"{field}.children", rule.child_tools.children)
    for name, args in rule.child_tools.child_args.items():
        yield from checks.json(f"{field}.child_args[{name}]", args)


def _conditional(field: str, rule: tool_rule_pb2.ToolRule) -> Found:
    mapping = rule.conditional.child_output_mapping
    if not mapping:
        yield FieldViolation(f"{field}.child_output_mapping", "must have at least one element")
    for output, name in mapping.items():
        yield from checks.tool_name(f"{field}.child_output_mapping[{output}]", name)
    if rule.conditional.default_child:
        yield from checks.tool_name(f"{field}.default_child", rule.conditional.default_child)


_RULE_CHECKS: dict[str, Callable[[str, tool_rule_pb2.ToolRule], Found]] = {
    "run_first": lambda field, rule: checks.json(f"{field}.args", rule.run_first.args),
    "child_tools": _child_tools,
    "parent_tools": lambda field, rule: _children(f"{field}.children", rule.parent_tools.children),
    "conditional": _conditional,
    "max_count": lambda field, rule: checks.at_least(f"{field}.limit", rule.max_count.limit, 1),
}

_CHECKS: dict[str, Callable[[str, Agent], Found]] = {
    "name": lambda field, agent: checks.text(field, agent.name, least=1, most=100),
    "description": lambda field, agent: checks.text(field, agent.description, most=10_000),
    "system": lambda field, agent: checks.size_in_bytes(field, agent.system, _MAX_SYSTEM_BYTES),
    "model": lambda field, agent: checks.handle(field, agent.model),
    "model_settings": lambda field, agent: model_settings(field, agent.model_settings),
    "tags": _tags,
    "metadata": lambda field, agent: checks.json(field, agent.metadata, _MAX_METADATA_BYTES),
    "tool_ids": _tool_ids,
    "tool_rules": _tool_rules,
    "block_ids": _block_ids,
    "compaction": _compaction,
    "secrets": _secrets,
    "timezone": lambda field, agent: checks.timezone(field, agent.timezone),
    "approval_ttl": _approval_ttl,
}
