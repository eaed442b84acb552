"""What is converted to protobuf and back is what it was."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.pb.bridle.v1 import agent_pb2, agent_service_pb2, stop_reason_pb2
from services.agents import convert, model
from services.runs.model import StopReason
from services.wire.wellknown import to_struct

NOW = datetime(2026, 11, 1, 12, 0, 0, 123456, tzinfo=UTC)
AGENT_ID = "agent-00000000-0000-4000-8000-000000000000"

names = st.from_regex(r"[a-z_]{1,8}", fullmatch=True)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.sampled_from([0.5, -1.25, 1e300]) | st.text(),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(), children, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(st.text(), json_values, max_size=3)
children = st.lists(names, min_size=1, max_size=3).map(tuple)
seconds = st.integers(1, 10**12).map(lambda micros: micros / 1e6)
rules = st.one_of(
    st.builds(model.RunFirst, names, args=st.none() | objects),
    st.builds(model.Terminal, names),
    st.builds(model.Continue, names),
    st.builds(
        model.ChildTools,
        names,
        children=children,
        child_args=st.none() | st.dictionaries(names, objects, min_size=1, max_size=2),
    ),
    st.builds(model.ParentTools, names, children=children),
    st.builds(model.Conditional, names, child_output_mapping=st.dictionaries(st.text(), names, min_size=1, max_size=3)),
    st.builds(model.RequiredBeforeExit, names),
    st.builds(model.MaxCount, names, limit=st.integers(1, 2**31 - 1)),
    st.builds(model.RequiresApproval, names),
)
settings = st.builds(
    model.ModelSettings,
    temperature=st.none() | st.floats(0, 2),
    max_output_tokens=st.none() | st.integers(1, 2**31 - 1),
    reasoning_effort=st.none() | st.sampled_from(["none", "minimal", "low", "medium", "high"]),
    parallel_tool_calls=st.none() | st.booleans(),
    response_schema=st.none() | objects,
    call_timeout=st.none() | seconds,
)
compactions = st.builds(
    model.CompactionSettings, mode=st.sampled_from(["sliding_window", "all", "off"]), threshold=st.floats(0.5, 1)
)
specs = st.builds(
    model.AgentSpec,
    description=st.text(),
    model=st.just("demo/echo"),
    model_settings=settings,
    metadata=objects,
    tool_ids=st.lists(names, unique=True).map(tuple),
    tool_rules=st.lists(rules, max_size=3).map(tuple),
    compaction=compactions,
    approval_ttl=st.none() | seconds,
    hidden=st.booleans(),
)


def make_agent(spec: model.AgentSpec, **fields: Any) -> model.Agent:
    return model.Agent(
        **{
            "id": AGENT_ID,
            "organization_id": "org-1",
            "name": "Ada",
            "spec": spec,
            "tags": ("a", "b"),
            "default_conversation_id": "conv-1",
            "version": 7,
            "created_at": NOW,
            "updated_at": NOW,
            **fields,
        }
    )


@given(specs)
def test_an_agent_survives_protobuf_and_json(spec: model.AgentSpec) -> None:
    agent = make_agent(spec)
    wire = agent_pb2.Agent.FromString(convert.agent_to_pb(agent).SerializeToString())
    assert convert.changed_agent(agent, wire, "other/default", secrets=False) == agent
    assert msgspec.json.decode(msgspec.json.encode(spec), type=model.AgentSpec) == spec


@pytest.mark.parametrize("reason", list(StopReason))
def test_every_stop_reason_has_its_number(reason: StopReason) -> None:
    pb = convert.agent_to_pb(make_agent(model.AgentSpec(), last_stop_reason=reason.value))
    assert stop_reason_pb2.StopReason.Name(pb.last_stop_reason) == f"STOP_REASON_{reason.name}"
    wanted = agent_service_pb2.AgentFilter(last_stop_reason=pb.last_stop_reason)
    assert convert.filter_from_pb(wanted).last_stop_reason == reason.value


def test_whole_numbers_come_back_as_ints() -> None:
    pb = agent_pb2.Agent(metadata=to_struct({"a": 3, "b": 3.5, "c": [1], "d": {"e": -2}, "huge": 1e300}))
    metadata = convert.spec_from_pb(pb, "").metadata
    assert metadata == {"a": 3, "b": 3.5, "c": [1], "d": {"e": -2}, "huge": 1e300}
    assert [type(metadata[key]) for key in ("a", "b", "huge")] == [int, float, float]
    assert type(metadata["c"][0]) is type(metadata["d"]["e"]) is int


def test_times_are_exact() -> None:
    agent = make_agent(model.AgentSpec(), last_run_completed_at=NOW, last_run_duration_us=1)
    pb = convert.agent_to_pb(agent)
    assert pb.create_time.ToDatetime(UTC) == pb.last_run_completion_time.ToDatetime(UTC) == NOW
    assert pb.last_run_duration.ToMicroseconds() == 1


def test_a_new_agent_has_its_defaults() -> None:
    agent = convert.new_agent(agent_pb2.Agent(tags=["b", "a"]), AGENT_ID, "conv-1", "org-1", "demo/echo", NOW)
    assert agent.spec == model.AgentSpec(model="demo/echo")
    assert agent.tags == ("a", "b")
    assert (agent.version, agent.created_at, agent.updated_at) == (1, NOW, NOW)
    again = convert.new_agent(agent_pb2.Agent(), AGENT_ID, "conv-2", "org-1", "demo/echo", NOW)
    assert again.name == agent.name != ""


def test_every_version_has_its_own_etag() -> None:
    assert len({convert.etag(version) for version in range(1, 100)}) == 99
