"""The system prompt: its order, and that it begins like the last one for as long as it can."""

from datetime import UTC, datetime
from typing import Any

from services.agents.model import Agent, AgentSpec, MaxCount
from services.blocks.model import Block, BlockSpec
from services.context.prompt import DEFAULT_SYSTEM, prompt_sections, system_prompt

NOW = datetime(2026, 11, 1, tzinfo=UTC)
RULES = (MaxCount("look", 2),)


def make_agent(**spec: Any) -> Agent:
    return Agent("agent-1", "org-1", "Ada", AgentSpec(**spec), (), "conv-1", 1, NOW, NOW)


def make_block(label: str, value: str, version: int = 1, **spec: Any) -> Block:
    return Block(f"block-{label}", "org-1", label, value, BlockSpec(**spec), (), version, NOW, NOW)


def test_nothing_but_instructions() -> None:
    assert system_prompt(make_agent(), ()) == DEFAULT_SYSTEM
    assert system_prompt(make_agent(system="Be kind."), (), (), "Be brief.") == "Be brief."


def test_the_whole_of_it() -> None:
    agent = make_agent(system="Be kind.", timezone="Europe/Paris")
    human = make_block("human", "Ada\nLikes tea", limit=500, description="Who you talk to.")
    rules = make_block('a "label"', "", read_only=True)
    prompt = system_prompt(agent, RULES, (human, rules))
    assert [section.kind for section in prompt_sections(agent, RULES, (human, rules))] == [
        "system", "memory", "tool_rules", "metadata",
    ]  # fmt: skip
    head, _, tail = prompt.partition("<memory_blocks>\n")
    assert head.startswith("Be kind.\n\n# Memory\n")
    assert tail == (
        '<block label="human" limit="500">\n'
        "<description>\nWho you talk to.\n</description>\n"
        "<value>\nAda\nLikes tea\n</value>\n"
        "</block>\n"
        '<block label="a &quot;label&quot;" limit="100000" read_only="true">\n'
        "<value>\n\n</value>\n"
        "</block>\n"
        "</memory_blocks>\n\n"
        "# Tool rules\nRules for calling tools:\n- Call look at most 2 times.\n\n"
        "# Settings\nYour time zone is Europe/Paris."
    )


def test_a_prompt_begins_like_the_last_up_to_the_first_change() -> None:
    agent = make_agent(system="Be kind.")
    first, second = make_block("a", "stays"), make_block("b", "old value")
    before = system_prompt(agent, RULES, (first, second))
    assert system_prompt(agent, RULES, (first, second)) == before
    touched = make_block("b", "old value", version=7)
    assert system_prompt(agent, RULES, (first, touched)) == before, "what only counts changes is not shown"
    after = system_prompt(agent, RULES, (first, make_block("b", "new value")))
    place = before.index("old value")
    assert after[:place] == before[:place]
    assert after[place:].removeprefix("new") == before[place:].removeprefix("old")
