"""What a run is given when an owner takes it up."""

from datetime import timedelta

from services.runs.model import ClientTool
from services.runs.protocol import Config
from services.runs.store.claim import Claim
from services.tools.api import ToolDefinition


def configure(
    claim: Claim, default_model: str, approval_ttl: float, client_tools: tuple[ClientTool, ...] = ()
) -> Config:
    """The run's own options over its agent's settings over the server's; an answer's client tools first."""
    options, spec = claim.run.request.options, claim.agent.spec
    client_tools = client_tools or claim.state.client_tools or options.client_tools
    tools = {tool.name: tool for tool in claim.tools}
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
    )


def _definition(tool: ClientTool) -> ToolDefinition:
    return ToolDefinition(id="", name=tool.name, description=tool.description, parameters=tool.parameters)
