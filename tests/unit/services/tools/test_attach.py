"""What changes about an agent when its tools do."""

from services.agents.model import AgentSpec, MaxCount, RequiresApproval
from services.tools.attach import detach, set_approval


def test_detaching_takes_the_tool_and_leaves_its_rules() -> None:
    spec = AgentSpec(tool_ids=("a", "b"), tool_rules=(RequiresApproval("t"),))
    assert detach(spec, "a") == AgentSpec(tool_ids=("b",), tool_rules=(RequiresApproval("t"),))
    assert detach(spec, "c") == spec


def test_approval_is_one_rule_or_none() -> None:
    spec = AgentSpec(tool_rules=(MaxCount("t", limit=1), RequiresApproval("u")))
    guarded = set_approval(spec, "t", True)
    assert guarded.tool_rules == (*spec.tool_rules, RequiresApproval("t"))
    assert set_approval(guarded, "t", True) == guarded
    assert set_approval(guarded, "t", False) == spec
