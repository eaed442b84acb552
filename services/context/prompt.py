"""Compiles what the model is shown: the system prompt in a stable order, so that provider prefix caches hit."""

from collections.abc import Iterable, Sequence

from services.agents.model import Agent, ToolRule
from services.messages.model import Body, Role
from services.models.api import ContextMessage
from services.runs import rules

DEFAULT_SYSTEM = "You are a helpful assistant."


def system_prompt(agent: Agent, tool_rules: Sequence[ToolRule], override: str = "") -> str:
    """Instructions first, then the tool rules in words."""
    sections = [override or agent.spec.system or DEFAULT_SYSTEM]
    described = rules.describe(tool_rules)
    if described:
        sections.append(f"# Tool rules\n{described}")
    return "\n\n".join(sections)


def shown(messages: Iterable[tuple[Role, Body]]) -> list[ContextMessage]:
    """The log as the model is shown it: decisions are for people, their effect is in the tool returns."""
    return [ContextMessage(role, body.parts) for role, body in messages if role is not Role.APPROVAL]
