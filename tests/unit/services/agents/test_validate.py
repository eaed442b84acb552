"""Every rule of the contract, at its limit and one beyond."""

from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration

from common.errors import InvalidArgument
from common.pb.bridle.v1.agent_pb2 import Agent, CompactionSettings
from common.pb.bridle.v1.agent_service_pb2 import CreateAgentRequest, UpdateAgentRequest
from common.pb.bridle.v1.model_pb2 import ModelSettings
from common.pb.bridle.v1.tool_rule_pb2 import ToolRule
from services.agents import validate
from services.wire.wellknown import to_struct

AGENT = "agent-00000000-0000-4000-8000-000000000000"
TOOL = "tool-00000000-0000-4000-8000-00000000000"
NAN = float("nan")
KIB = 1024
DECADE = 3650 * 24 * 3600


def rule(**kind: Any) -> list[ToolRule]:
    return [ToolRule(**{"tool_name": "t", **kind})]


def settings(**fields: Any) -> dict[str, Any]:
    return {"model_settings": ModelSettings(**fields)}


def compaction(**fields: Any) -> dict[str, Any]:
    return {"compaction": CompactionSettings(**fields)}


GOOD: list[dict[str, Any]] = [
    {},
    {"name": "x" * 100},
    {"name": "é" * 100},
    {"description": "x" * 10_000},
    {"system": "x" * 256 * KIB},
    {"model": "openai/meta-llama/Llama-3.1:free"},
    {"tags": [str(n) for n in range(64)]},
    {"tags": ["x" * 100]},
    {"metadata": {"x": "y" * (16 * KIB - len('{"x":""}'))}},
    {"tool_ids": [f"{TOOL}{n % 10}" for n in range(256)]},
    {"timezone": "America/Argentina/Buenos_Aires"},
    {"approval_ttl": Duration(nanos=1)},
    {"approval_ttl": Duration(seconds=DECADE)},
    {"tool_rules": rule(terminal=ToolRule.Terminal()) * 256},
    {"tool_rules": rule(**{"continue": ToolRule.Continue()})},
    settings(temperature=0),
    settings(temperature=2, max_output_tokens=1, context_window=1000, max_reasoning_tokens=0, reasoning_effort=5),
    compaction(threshold=1, keep=0.99, mode=3, model="demo/echo"),
    compaction(threshold=0.31),
]

BAD: list[tuple[str, dict[str, Any]]] = [
    ("name", {"name": "x" * 101}),
    ("name", {"name": "a\0b"}),
    ("description", {"description": "x" * 10_001}),
    ("description", {"description": "\0"}),
    ("system", {"system": "x" * (256 * KIB + 1)}),
    ("system", {"system": "é" * (128 * KIB) + "x"}),
    ("model", {"model": "echo"}),
    ("model", {"model": "/echo"}),
    ("model", {"model": "demo/"}),
    ("model", {"model": "Demo/echo"}),
    ("model", {"model": "demo/e cho"}),
    ("model", {"model": "demo/echo\n"}),
    ("tags", {"tags": [str(n) for n in range(65)]}),
    ("tags[1]", {"tags": ["a", ""]}),
    ("tags[0]", {"tags": ["x" * 101]}),
    ("tags[0]", {"tags": ["\0"]}),
    ("tags[2]", {"tags": ["a", "b", "a"]}),
    ("metadata", {"metadata": {"x": "y" * (16 * KIB - len('{"x":""}') + 1)}}),
    ("metadata", {"metadata": {"x": [{"y": NAN}]}}),
    ("metadata", {"metadata": {"x": float("inf")}}),
    ("tool_ids", {"tool_ids": [f"{TOOL}{n % 10}" for n in range(257)]}),
    ("tool_ids[1]", {"tool_ids": [f"{TOOL}0", "agent-1"]}),
    ("tool_ids[0]", {"tool_ids": [""]}),
    ("timezone", {"timezone": "Mars/Base"}),
    ("timezone", {"timezone": "Europe"}),
    ("timezone", {"timezone": "../../etc/passwd"}),
    ("timezone", {"timezone": "/etc/localtime"}),
    ("timezone", {"timezone": "a\0"}),
    ("timezone", {"timezone": "x" * 5000}),
    ("approval_ttl", {"approval_ttl": Duration()}),
    ("approval_ttl", {"approval_ttl": Duration(seconds=-1)}),
    ("approval_ttl", {"approval_ttl": Duration(seconds=DECADE, nanos=1000)}),
    ("approval_ttl", {"approval_ttl": Duration(seconds=2**62)}),
    ("approval_ttl", {"approval_ttl": Duration(seconds=5, nanos=-2_000_000_000)}),
    ("tool_rules", {"tool_rules": rule(terminal=ToolRule.Terminal()) * 257}),
    ("tool_rules[0].rule", {"tool_rules": rule()}),
    ("tool_rules[0].tool_name", {"tool_rules": rule(tool_name="", terminal=ToolRule.Terminal())}),
    ("tool_rules[0].tool_name", {"tool_rules": rule(tool_name="a b", terminal=ToolRule.Terminal())}),
    ("tool_rules[0].run_first.args", {"tool_rules": rule(run_first=ToolRule.RunFirst(args=to_struct({"x": NAN})))}),
    ("tool_rules[0].child_tools.children", {"tool_rules": rule(child_tools=ToolRule.ChildTools())}),
    ("tool_rules[0].child_tools.children[1]", {"tool_rules": rule(child_tools={"children": ["a", ""]})}),
    (
        "tool_rules[0].child_tools.child_args[a]",
        {"tool_rules": rule(child_tools={"children": ["a"], "child_args": {"a": to_struct({"x": NAN})}})},
    ),
    ("tool_rules[0].parent_tools.children", {"tool_rules": rule(parent_tools=ToolRule.ParentTools())}),
    ("tool_rules[0].conditional.child_output_mapping", {"tool_rules": rule(conditional=ToolRule.Conditional())}),
    (
        "tool_rules[0].conditional.child_output_mapping[true]",
        {"tool_rules": rule(conditional={"child_output_mapping": {"true": ""}})},
    ),
    (
        "tool_rules[0].conditional.default_child",
        {"tool_rules": rule(conditional={"child_output_mapping": {"1": "a"}, "default_child": "a b"})},
    ),
    ("tool_rules[0].max_count.limit", {"tool_rules": rule(max_count=ToolRule.MaxCount())}),
    ("model_settings.temperature", settings(temperature=2.01)),
    ("model_settings.temperature", settings(temperature=-0.01)),
    ("model_settings.temperature", settings(temperature=NAN)),
    ("model_settings.max_output_tokens", settings(max_output_tokens=0)),
    ("model_settings.context_window", settings(context_window=999)),
    ("model_settings.max_reasoning_tokens", settings(max_reasoning_tokens=-1)),
    ("model_settings.reasoning_effort", settings(reasoning_effort=99)),
    ("model_settings.response_schema", settings(response_schema={"x": NAN})),
    ("model_settings.first_token_timeout", settings(first_token_timeout=Duration())),
    ("model_settings.token_gap_timeout", settings(token_gap_timeout=Duration(seconds=-1))),
    ("model_settings.call_timeout", settings(call_timeout=Duration(seconds=2**60))),
    ("compaction.mode", compaction(mode=99)),
    ("compaction.threshold", compaction(threshold=0)),
    ("compaction.threshold", compaction(threshold=1.01)),
    ("compaction.threshold", compaction(threshold=NAN)),
    ("compaction.keep", compaction(keep=0)),
    ("compaction.keep", compaction(keep=1)),
    ("compaction.keep", compaction(keep=0.9)),
    ("compaction.keep", compaction(threshold=0.3)),
    ("compaction.keep", compaction(keep=NAN)),
    ("compaction.model", compaction(model="echo")),
]


def broken(check: Callable[[Any], object], request: object) -> list[str]:
    with pytest.raises(InvalidArgument) as caught:
        check(request)
    return [each.field for each in caught.value.fields]


@pytest.mark.parametrize("fields", GOOD)
def test_what_the_contract_allows(fields: dict[str, Any]) -> None:
    validate.create(CreateAgentRequest(agent=Agent(**fields)))


@pytest.mark.parametrize(("field", "fields"), BAD)
def test_what_it_does_not_allow_is_named_once(field: str, fields: dict[str, Any]) -> None:
    assert broken(validate.create, CreateAgentRequest(agent=Agent(**fields))) == [f"agent.{field}"]


def test_every_mistake_of_a_request_is_found() -> None:
    request = CreateAgentRequest(
        agent=Agent(description="\0" * 10_001, tags=["", "a", "a"]),
        tool_names=["ok", "", "a b"],
        request_id="\0",
    )
    in_agent = ["agent.description", "agent.description", "agent.tags[0]", "agent.tags[2]"]
    assert broken(validate.create, request) == [*in_agent, "tool_names[1]", "tool_names[2]", "request_id"]
    assert broken(validate.create, CreateAgentRequest(tool_names=["a"] * 257)) == ["agent", "tool_names"]


@pytest.mark.parametrize("text", ["agent-1", "", "run-00000000-0000-4000-8000-000000000000"])
def test_ids(text: str) -> None:
    assert broken(validate.agent_id, text) == ["agent_id"]


def test_an_update_looks_only_at_what_it_changes() -> None:
    agent = Agent(id=AGENT, name="ok", model_settings=ModelSettings(temperature=9))
    request = UpdateAgentRequest(agent=agent)
    request.update_mask.paths[:] = ["name", "model_settings.context_window"]
    assert validate.update(request) == ("name", "model_settings.context_window")
    request.update_mask.paths[:] = ["model_settings"]
    assert broken(validate.update, request) == ["agent.model_settings.temperature"]


@pytest.mark.parametrize(
    ("secrets", "field"),
    [
        ({"": "x"}, "agent.secrets[]"),
        ({"1ST": "x"}, "agent.secrets[1ST]"),
        ({"A-B": "x"}, "agent.secrets[A-B]"),
        ({"A=B": "x"}, "agent.secrets[A=B]"),
        ({"GROSS_Ä": "x"}, "agent.secrets[GROSS_Ä]"),
        ({"A" * 129: "x"}, f"agent.secrets[{'A' * 40}]"),
        ({"A": "x" * (32 * 1024 + 1)}, "agent.secrets[A]"),
        ({"A": "x\0y"}, "agent.secrets[A]"),
        ({f"A{number}": "x" for number in range(65)}, "agent.secrets"),
    ],
)
def test_secrets_are_an_environment(secrets: dict[str, str], field: str) -> None:
    assert broken(validate.create, CreateAgentRequest(agent=Agent(secrets=secrets))) == [field]
    assert broken(validate.update, UpdateAgentRequest(agent=Agent(id=AGENT, secrets=secrets))) == [field]


def test_a_star_without_secrets_leaves_them_alone() -> None:
    request = UpdateAgentRequest(agent=Agent(id=AGENT, name="ok"))
    request.update_mask.paths[:] = ["*"]
    assert "secrets" not in validate.update(request)
    request.agent.secrets["A"] = "b"
    assert "secrets" in validate.update(request)
    request = UpdateAgentRequest(agent=Agent(id=AGENT))
    request.update_mask.paths[:] = ["secrets"]
    assert validate.update(request) == ("secrets",)


def test_values_that_stay_and_values_that_come_must_fit() -> None:
    validate.merged(Agent(compaction=CompactionSettings(threshold=0.5, keep=0.4)))
    assert broken(validate.merged, Agent(compaction=CompactionSettings(threshold=0.4, keep=0.4))) == [
        "agent.compaction.keep"
    ]
