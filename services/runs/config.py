"""What a run is given when an owner takes it up."""

from collections.abc import Iterable
from datetime import timedelta

from services.agents.model import AgentSpec
from services.runs.model import ClientTool, RunOptions
from services.runs.protocol import Config
from services.runs.store.claim import Claim
from services.tools.api import ToolDefinition


def configure(
    claim: Claim, default_model: str, approval_ttl: float, client_tools: tuple[ClientTool, ...] = ()
) -> Config:
    """The run's own options over its agent's settings over the server's; an answer's client tools first."""
    options = claim.run.request.options
    client_tools = client_tools or claim.state.client_tools or options.client_tools
    return settle(options, claim.agent.spec, claim.tools, client_tools, default_model, approval_ttl)


def settle(
    options: RunOptions,
    spec: AgentSpec,
    attached: Iterable[ToolDefinition],
    client_tools: tuple[ClientTool, ...],
    default_model: str,
    approval_ttl: float = 0.0,
) -> Config:
    """The same for a run that has no owner, or that nobody has asked for yet."""
    tools = {tool.name: tool for tool in attached}
    tools |= {tool.name: _definition(tool) for tool in client_tools}
    ttl = approval_ttl if spec.approval_ttl is None else spec.approval_ttl
    return Config(
        model=options.model or spec.model or default_model,
        max_steps=options.max_steps,
        rules=spec.tool_rules,
        tools=tools,
        client_tools=frozenset(tool.name for tool in client_tools),
        parallel_calls=spec.model_settings.parallel_tool_calls is not False,
        approval_ttl=timedelta(seconds=ttl) if ttl else None,
        compaction=spec.compaction,
    )


def _definition(tool: ClientTool) -> ToolDefinition:
    return ToolDefinition(id="", name=tool.name, description=tool.description, parameters=tool.parameters)
