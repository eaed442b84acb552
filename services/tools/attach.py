"""What changes about one agent when its tools do. Giving it tools is `services.agents.attach`."""

from msgspec.structs import replace

from common.errors import InvalidArgument
from services.agents.attach import MAX_RULES
from services.agents.model import AgentSpec, RequiresApproval, ToolRule


def detach(spec: AgentSpec, tool_id: str) -> AgentSpec:
    """The agent without this tool. Rules stay: should it come back, it is guarded as before."""
    return replace(spec, tool_ids=tuple(each for each in spec.tool_ids if each != tool_id))


def set_approval(spec: AgentSpec, tool_name: str, required: bool) -> AgentSpec:
    """The agent with the tool behind a person, or not."""
    if not required:
        return replace(spec, tool_rules=tuple(rule for rule in spec.tool_rules if not _guards(rule, tool_name)))
    if any(_guards(rule, tool_name) for rule in spec.tool_rules):
        return spec
    if len(spec.tool_rules) >= MAX_RULES:
        raise InvalidArgument.of("agent.tool_rules", f"must be at most {MAX_RULES}, with the one that this adds")
    return replace(spec, tool_rules=(*spec.tool_rules, RequiresApproval(tool_name)))


def _guards(rule: ToolRule, tool_name: str) -> bool:
    return isinstance(rule, RequiresApproval) and rule.tool_name == tool_name
