"""What giving tools to an agent does to it."""

import pytest

from common.errors import InvalidArgument
from services.agents.attach import MAX_RULES, MAX_TOOLS, attach
from services.agents.model import AgentSpec, MaxCount, RequiresApproval
from services.tools.api import ToolDefinition


def tool(name: str, dangerous: bool = False) -> ToolDefinition:
    return ToolDefinition(f"tool-{name}", name, "", {}, default_requires_approval=dangerous)


def test_nothing_added_changes_nothing() -> None:
    spec = AgentSpec(tool_ids=("tool-a",), tool_rules=(MaxCount("a", limit=1),))
    assert attach(spec, []) == spec


def test_tools_come_after_those_there_and_each_once() -> None:
    assert attach(AgentSpec(tool_ids=("tool-a",)), [tool("b"), tool("a"), tool("b")]).tool_ids == ("tool-a", "tool-b")


def test_a_dangerous_tool_brings_one_rule_unless_it_is_there() -> None:
    spec = AgentSpec(tool_rules=(MaxCount("b", limit=1), RequiresApproval("a")))
    rules = attach(spec, [tool("a", True), tool("b", True), tool("b", True), tool("c")]).tool_rules
    assert rules == (MaxCount("b", limit=1), RequiresApproval("a"), RequiresApproval("b"))


def test_limits_count_what_was_added() -> None:
    full = AgentSpec(tool_ids=tuple(f"tool-{n}" for n in range(MAX_TOOLS)))
    with pytest.raises(InvalidArgument, match=r"agent\.tool_ids"):
        attach(full, [tool("x")])
    full = AgentSpec(tool_rules=tuple(MaxCount("x", limit=1) for _ in range(MAX_RULES)))
    assert attach(full, [tool("x")]).tool_ids == ("tool-x",)
    with pytest.raises(InvalidArgument, match=r"agent\.tool_rules"):
        attach(full, [tool("x", True)])
