"""What a model is asked, made from values that are loaded already: a run sends it, a preview shows it."""

from collections.abc import Iterable, Sequence

from services.agents.model import Agent, ToolRule
from services.blocks.model import Block
from services.context.prompt import shown, system_prompt
from services.messages.model import InContext
from services.models.api import ModelRequest, ToolSpec
from services.tools.api import ToolDefinition


def model_request(
    agent: Agent,
    *,
    model: str,
    context: Iterable[InContext],
    tools: Sequence[ToolDefinition],
    blocks: Sequence[Block] = (),
    rules: Sequence[ToolRule] = (),
    system: str = "",
    forced: bool = False,
    parallel: bool = True,
) -> ModelRequest:
    """One call. `system` stands in for the agent's own instructions if it is given."""
    return ModelRequest(
        model=model,
        system=system_prompt(agent, rules, blocks, system),
        messages=tuple(shown((entry.role, entry.body) for entry in context)),
        tools=tuple(ToolSpec(tool.name, tool.description, tool.parameters) for tool in tools),
        forced=forced,
        parallel=parallel,
        settings=agent.spec.model_settings,
    )
