"""Agents are created whole or not at all, and once."""

import asyncio
from datetime import UTC, datetime, timedelta

import grpc
import grpc.aio
from sqlalchemy import select

from common.db.tables import agents, conversations
from common.ids import DEFAULT_ORGANIZATION, Prefix, is_id, new_id
from common.pb.bridle.v1 import agent_pb2
from common.pb.bridle.v1 import agent_service_pb2 as api
from common.pb.bridle.v1.tool_rule_pb2 import ToolRule
from tests.rpc.agents.rig import (
    APPROVE_DELETE,
    DELETE,
    OTHER,
    SEARCH,
    Agent,
    Rig,
    invalid,
    not_found,
    refused,
    rows,
)


async def test_an_agent_created_with_nothing_gets_its_defaults(rig: Rig) -> None:
    before = datetime.now(UTC)
    agent = await rig.create()
    assert is_id(Prefix.AGENT, agent.id)
    assert is_id(Prefix.CONVERSATION, agent.default_conversation_id)
    assert (agent.model, agent.etag) == ("demo/echo", "v1")
    assert len(agent.name.split("-")) == 2
    assert not agent.HasField("last_run_completion_time")
    assert before <= agent.create_time.ToDatetime(UTC) <= before + timedelta(seconds=10)
    assert agent.create_time == agent.update_time
    assert await rig.get(agent.id) == agent


async def test_the_default_conversation_is_empty_and_belongs_to_the_agent(rig: Rig) -> None:
    agent = await rig.create()
    row = await rig.db.read(lambda conn: conn.execute(select(conversations)).one())
    assert (row.id, row.agent_id, row.organization_id) == (
        agent.default_conversation_id,
        agent.id,
        DEFAULT_ORGANIZATION,
    )
    assert (row.spec, row.context_floor, row.next_message_seq, row.next_run_no, row.version) == ("{}", 0, 1, 1, 1)


async def test_everything_that_was_set_comes_back(rig: Rig) -> None:
    wanted = Agent(
        name="Ada", description="Counts.", system="Be brief.\0", model="demo/tools", tags=["b", "a"],
        timezone="Europe/Paris", forget_between_runs=True, hidden=True, tool_ids=[SEARCH.id],
        tool_rules=[ToolRule(tool_name="search", max_count=ToolRule.MaxCount(limit=3))],
    )  # fmt: skip
    wanted.metadata.update({"whole": 3, "half": 0.5, "deep": {"list": [1, None, True, "x"]}, "nul": "\0"})
    wanted.model_settings.temperature = 0
    wanted.model_settings.call_timeout.FromMilliseconds(1500)
    wanted.compaction.mode = agent_pb2.CompactionSettings.MODE_ALL
    wanted.approval_ttl.FromSeconds(3600)
    agent = await rig.get((await rig.create(**{field.name: value for field, value in wanted.ListFields()})).id)
    wanted.tags[:] = ["a", "b"]
    wanted.compaction.threshold, wanted.compaction.keep = 0.9, 0.3
    for name in ("id", "etag", "default_conversation_id", "create_time", "update_time"):
        agent.ClearField(name)
    assert agent == wanted


async def test_output_fields_of_a_request_are_ignored(rig: Rig) -> None:
    given = new_id(Prefix.AGENT)
    agent = await rig.create(
        id=given, etag="x", default_conversation_id="conv-1", secret_keys=["a"], last_stop_reason=3
    )
    assert agent.id != given
    assert (agent.etag, list(agent.secret_keys), agent.last_stop_reason) == ("v1", [], 0)
    assert agent.default_conversation_id != "conv-1"


async def test_tools_are_attached_by_id_and_by_name_each_once(rig: Rig) -> None:
    request = api.CreateAgentRequest(agent=Agent(tool_ids=[SEARCH.id]), tool_names=["delete_files", "search"])
    agent = await rig.stub.CreateAgent(request)
    assert list(agent.tool_ids) == [SEARCH.id, DELETE.id]
    assert list(agent.tool_rules) == [APPROVE_DELETE]


async def test_an_approval_rule_that_is_there_is_not_added_again(rig: Rig) -> None:
    agent = await rig.create(tool_ids=[DELETE.id], tool_rules=[APPROVE_DELETE])
    assert list(agent.tool_rules) == [APPROVE_DELETE]


async def test_unknown_tools_and_models_are_named(rig: Rig) -> None:
    missing = new_id(Prefix.TOOL)
    assert await not_found(rig.create(tool_ids=[missing])) == ("tool", missing)
    by_name = api.CreateAgentRequest(agent=Agent(), tool_names=["nothing"])
    assert await not_found(rig.stub.CreateAgent(by_name)) == ("tool", "nothing")
    assert await not_found(rig.create(model="openai/gpt-x")) == ("model", "openai/gpt-x")
    compaction = agent_pb2.CompactionSettings(model="openai/gpt-y")
    assert await not_found(rig.create(compaction=compaction)) == ("model", "openai/gpt-y")
    assert await rows(rig.db, agents) == 0


async def test_all_broken_rules_are_reported_together_and_nothing_is_made(rig: Rig) -> None:
    request = api.CreateAgentRequest(
        agent=Agent(name="x" * 101, model="gpt", tags=["a", "b", ""], tool_ids=["tool-1"], timezone="Mars/Base"),
        request_id="r" * 129,
    )
    fields = ["agent.name", "agent.model", "agent.tags[2]", "agent.tool_ids[0]", "agent.timezone", "request_id"]
    assert await invalid(rig.stub.CreateAgent(request)) == fields
    assert await invalid(rig.stub.CreateAgent(api.CreateAgentRequest())) == ["agent"]
    assert await rows(rig.db, agents) == 0


async def test_a_repeated_creation_gives_the_agent_as_it_is_now(rig: Rig) -> None:
    request = api.CreateAgentRequest(agent=Agent(name="Ada"), request_id="once")
    first = await rig.stub.CreateAgent(request)
    changed = await rig.update(Agent(id=first.id, name="Bea"))
    assert await rig.stub.CreateAgent(request) == changed
    assert await rows(rig.db, agents) == 1


async def test_twenty_identical_creations_at_once_make_one_agent(rig: Rig) -> None:
    request = api.CreateAgentRequest(agent=Agent(name="Ada", tags=["x"]), request_id="once")
    made = await asyncio.gather(*(rig.stub.CreateAgent(request, timeout=10) for _ in range(20)))
    assert len({agent.id for agent in made}) == 1
    assert (await rows(rig.db, agents), await rows(rig.db, conversations)) == (1, 1)


async def test_a_request_id_with_other_content_is_refused(rig: Rig) -> None:
    await rig.stub.CreateAgent(api.CreateAgentRequest(agent=Agent(name="Ada"), request_id="once"))
    other = rig.stub.CreateAgent(api.CreateAgentRequest(agent=Agent(name="Bea"), request_id="once"))
    metadata = await refused(other, grpc.StatusCode.ALREADY_EXISTS, "REQUEST_ID_REUSED")
    assert metadata == {"request_id": "once"}
    assert await rig.names() == ["Ada"]


async def test_a_refused_creation_does_not_use_up_its_request_id(rig: Rig) -> None:
    request = api.CreateAgentRequest(agent=Agent(), tool_names=["nothing"], request_id="once")
    await not_found(rig.stub.CreateAgent(request))
    await rig.stub.CreateAgent(api.CreateAgentRequest(agent=Agent(), request_id="once"))


async def test_request_ids_are_per_organization_and_method(rig: Rig) -> None:
    request = api.CreateAgentRequest(agent=Agent(name="Ada"), request_id="once")
    mine = await rig.stub.CreateAgent(request)
    theirs = await rig.stub.CreateAgent(request, metadata=(("org", OTHER),))
    assert mine.id != theirs.id
    assert (await rig.update(Agent(id=mine.id, name="Bea"), request_id="once")).name == "Bea"


async def test_a_repeated_update_changes_nothing_more(rig: Rig) -> None:
    agent = await rig.create(name="Ada")
    wanted = Agent(id=agent.id, name="Bea", etag=agent.etag)
    first = await rig.update(wanted, request_id="once")
    later = await rig.update(Agent(id=agent.id, name="Cyd"))
    assert await rig.update(wanted, request_id="once") == later
    assert first.etag != later.etag
