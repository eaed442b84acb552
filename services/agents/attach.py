"""What giving tools to an agent does to it."""

from collections.abc import Sequence

from msgspec.structs import replace

from common.errors import InvalidArgument
from services.agents.model import AgentSpec, RequiresApproval
from services.tools.api import ToolDefinition

MAX_TOOLS = 256
MAX_RULES = 256


def attach(spec: AgentSpec, added: Sequence[ToolDefinition]) -> AgentSpec:
    """The agent with these tools: each once, and behind a person if the tool says so and no rule is there yet."""
    guarded = {rule.tool_name for rule in spec.tool_rules if isinstance(rule, RequiresApproval)}
    needed = dict.fromkeys(tool.name for tool in added if tool.default_requires_approval and tool.name not in guarded)
    rules = (*spec.tool_rules, *(RequiresApproval(name) for name in needed))
    ids = tuple(dict.fromkeys((*spec.tool_ids, *(tool.id for tool in added))))
    if len(ids) > MAX_TOOLS:
        raise InvalidArgument.of("agent.tool_ids", f"must be at most {MAX_TOOLS}, with those attached by name")
    if len(rules) > MAX_RULES:
        raise InvalidArgument.of("agent.tool_rules", f"must be at most {MAX_RULES}, with those that its tools add")
    return replace(spec, tool_ids=ids, tool_rules=rules)
