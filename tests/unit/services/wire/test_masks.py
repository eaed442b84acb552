"""Which paths an update changes, and that exactly those are copied."""

import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from common.pb.bridle.v1.agent_pb2 import Agent, CompactionSettings
from common.pb.bridle.v1.model_pb2 import ModelSettings
from services.wire import masks
from services.wire.wellknown import to_struct


def paths(agent: Agent, *mask: str) -> set[str]:
    return set(masks.changed_paths(agent, FieldMask(paths=mask)))


def test_without_a_mask_the_populated_leaves_count() -> None:
    agent = Agent(
        id="agent-1",
        etag="v1",
        name="Ada",
        secret_keys=["k"],
        default_conversation_id="conv-1",
        model_settings=ModelSettings(temperature=0, response_schema=to_struct({"a": 1})),
        compaction=CompactionSettings(),
        metadata=to_struct({"a": {"b": 1}}),
    )
    agent.create_time.GetCurrentTime()
    expected = {"name", "model_settings.temperature", "model_settings.response_schema", "metadata"}
    assert paths(agent) == expected


def test_a_star_means_all_that_can_be_set() -> None:
    everything = paths(Agent(), "*")
    assert {"name", "tags", "secrets", "block_ids", "compaction"} <= everything
    assert everything.isdisjoint({"id", "etag", "create_time", "secret_keys", "last_stop_reason"})


def test_a_mask_is_taken_as_it_is() -> None:
    assert paths(Agent(description="d"), "name", "model_settings.temperature") == {"name", "model_settings.temperature"}
    assert masks.top_level(["name", "model_settings.temperature", "model_settings"]) == {"name", "model_settings"}


@pytest.mark.parametrize("path", ["name", "model_settings", "model_settings.temperature", "compaction.keep", "*"])
def test_good_paths(path: str) -> None:
    assert not list(masks.problems(Agent.DESCRIPTOR, FieldMask(paths=[path])))


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        ("nothing", "does not exist"),
        ("", "does not exist"),
        ("name.", "does not exist"),
        ("metadata.fields", "does not exist"),
        ("tool_rules.tool_name", "does not exist"),
        ("approval_ttl.seconds", "does not exist"),
        ("etag", "cannot be changed"),
        ("id", "cannot be changed"),
        ("update_time", "cannot be changed"),
    ],
)
def test_bad_paths(path: str, complaint: str) -> None:
    (problem,) = masks.problems(Agent.DESCRIPTOR, FieldMask(paths=[path]))
    assert problem.field == "update_mask"
    assert f"'{path}'" in problem.description
    assert problem.description.endswith(complaint)


def test_copying_sets_and_unsets() -> None:
    source = Agent(name="new", tags=["c"], compaction=CompactionSettings(keep=0.1))
    target = Agent(
        name="old",
        description="stays",
        system="goes",
        tags=["a", "b"],
        metadata=to_struct({"goes": 1}),
        model_settings=ModelSettings(temperature=1, context_window=2000),
        compaction=CompactionSettings(threshold=0.5, keep=0.4),
    )
    masks.copy(source, target, ["name", "system", "tags", "metadata", "model_settings.temperature", "compaction.keep"])
    assert target == Agent(
        name="new",
        description="stays",
        tags=["c"],
        model_settings=ModelSettings(context_window=2000),
        compaction=CompactionSettings(threshold=0.5, keep=0.1),
    )


def test_copying_a_whole_message_replaces_it() -> None:
    target = Agent(model_settings=ModelSettings(temperature=1))
    masks.copy(Agent(model_settings=ModelSettings(context_window=2000)), target, ["model_settings"])
    assert target == Agent(model_settings=ModelSettings(context_window=2000))
    masks.copy(Agent(), target, ["model_settings"])
    assert target == Agent()


def test_a_path_into_what_neither_has_leaves_no_trace() -> None:
    assert masks.copy(Agent(), Agent(), ["model_settings.temperature"]) == Agent()
