"""Compiles what the model is shown: the system prompt in a stable order, so that provider prefix caches hit."""

from collections.abc import Iterable, Sequence
from enum import StrEnum

from msgspec import Struct

from services.agents.model import Agent, ToolRule
from services.blocks.model import Block
from services.context.memory import memory_section
from services.messages.model import Body, Role
from services.models.api import ContextMessage
from services.runs import rules

DEFAULT_SYSTEM = "You are a helpful assistant."


class Kind(StrEnum):
    """What a piece of the context is."""

    SYSTEM = "system"
    MEMORY = "memory"
    TOOL_RULES = "tool_rules"
    METADATA = "metadata"
    TOOLS = "tools"
    SUMMARY = "summary"
    MESSAGES = "messages"


class Section(Struct, frozen=True):
    """A piece of the system prompt."""

    kind: Kind
    text: str


def prompt_sections(
    agent: Agent, tool_rules: Sequence[ToolRule], blocks: Sequence[Block], override: str = ""
) -> list[Section]:
    """The system prompt in pieces. None of them tells the time or counts anything: each call begins like the last."""
    described = rules.describe(tool_rules)
    sections = (
        Section(Kind.SYSTEM, override or agent.spec.system or DEFAULT_SYSTEM),
        Section(Kind.MEMORY, memory_section(blocks)),
        Section(Kind.TOOL_RULES, f"# Tool rules\n{described}" if described else ""),
        Section(Kind.METADATA, f"# Settings\nYour time zone is {agent.spec.timezone}." if agent.spec.timezone else ""),
    )
    return [section for section in sections if section.text]


def system_prompt(
    agent: Agent, tool_rules: Sequence[ToolRule], blocks: Sequence[Block] = (), override: str = ""
) -> str:
    """Instructions first, then memory, the tool rules in words, and what is set once and for all."""
    return "\n\n".join(section.text for section in prompt_sections(agent, tool_rules, blocks, override))


def shown(messages: Iterable[tuple[Role, Body]]) -> list[ContextMessage]:
    """The log as the model is shown it: decisions are for people, their effect is in the tool returns."""
    return [ContextMessage(role, body.parts) for role, body in messages if role is not Role.APPROVAL]
