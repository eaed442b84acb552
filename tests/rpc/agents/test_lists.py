"""Agents and tags are found, in pages, by those who may see them."""

import asyncio
from collections.abc import Awaitable
from datetime import UTC, datetime
from typing import Any

import pytest

from common.db.tables import agents
from common.ids import Prefix, new_id
from common.pb.bridle.v1 import agent_service_pb2 as api
from common.pb.bridle.v1 import stop_reason_pb2
from tests.rpc.agents.rig import (
    OTHER,
    Agent,
    Rig,
    invalid,
    not_found,
)


@pytest.mark.parametrize("agent_id", ["", "1", "agent-1", "AGENT-00000000-0000-4000-8000-000000000000", "agent-\0"])
async def test_a_malformed_id_is_named(rig: Rig, agent_id: str) -> None:
    assert await invalid(rig.get(agent_id)) == ["agent_id"]
    assert await invalid(rig.delete(agent_id)) == ["agent_id"]
    assert await invalid(rig.update(Agent(id=agent_id, name="x"))) == ["agent.id"]


async def test_an_unknown_agent_is_not_found(rig: Rig) -> None:
    missing = new_id(Prefix.AGENT)
    for call in (rig.get(missing), rig.delete(missing), rig.delete(missing, force=True), rig.update(Agent(id=missing))):
        assert await not_found(call) == ("agent", missing)
    assert rig.cancelled == []


async def test_another_organization_sees_and_touches_nothing(rig: Rig) -> None:
    agent = await rig.create(name="Ada", tags=["x"])
    theirs: Any = {"metadata": (("org", OTHER),), "timeout": 10}
    for call in (
        rig.stub.GetAgent(api.GetAgentRequest(agent_id=agent.id), **theirs),
        rig.stub.UpdateAgent(api.UpdateAgentRequest(agent=Agent(id=agent.id, name="Bea")), **theirs),
        rig.stub.DeleteAgent(api.DeleteAgentRequest(agent_id=agent.id, force=True), **theirs),
    ):
        assert await not_found(call) == ("agent", agent.id)
    assert rig.cancelled == []
    assert not (await rig.stub.ListAgents(api.ListAgentsRequest(), **theirs)).agents
    assert (await rig.stub.CountAgents(api.CountAgentsRequest(), **theirs)).count == 0
    assert not (await rig.stub.ListTags(api.ListTagsRequest(), **theirs)).tags
    assert await rig.get(agent.id) == agent


async def test_filters(rig: Rig) -> None:
    await rig.create(name="Ada", description="counts 100% of ÉTOILES", tags=["x", "y"])
    await rig.create(name="Bea", description="a_b", tags=["y"])
    await rig.create(name="Cyd", hidden=True, tags=["x"])
    assert await rig.names() == ["Ada", "Bea"]
    assert await rig.names(include_hidden=True) == ["Ada", "Bea", "Cyd"]
    assert await rig.names(name="Bea") == ["Bea"]
    assert await rig.names(name="bea") == []
    assert await rig.names(query="aDa") == ["Ada"]
    assert await rig.names(query="étoiles") == ["Ada"]
    assert await rig.names(query="0%") == ["Ada"]
    assert await rig.names(query="_") == ["Bea"]
    assert await rig.names(tags=["x", "y"]) == ["Ada", "Bea"]
    assert await rig.names(tags=["y", "x", "x"], match_all_tags=True) == ["Ada"]
    assert await rig.names(tags=["x"], include_hidden=True) == ["Ada", "Cyd"]
    assert await rig.names(tags=["z"]) == []
    assert await rig.names(tags=["y"], query="bea") == ["Bea"]


async def test_hiding_and_renaming_change_what_filters_find(rig: Rig) -> None:
    agent = await rig.create(name="Ada", tags=["x"])
    await rig.update(Agent(id=agent.id, name="Bea", tags=["y"]))
    assert await rig.names(query="ada") == []
    assert (await rig.names(query="bea"), await rig.names(tags=["x"]), await rig.names(tags=["y"])) == (
        ["Bea"],
        [],
        ["Bea"],
    )
    await rig.update(Agent(id=agent.id, hidden=True))
    assert await rig.names() == []


async def test_agents_can_be_found_by_how_their_latest_run_ended(rig: Rig) -> None:
    agent = await rig.create(name="Ada")
    await rig.create(name="Bea")
    ended = {
        "last_stop_reason": "end_turn",
        "last_run_completed_at": datetime.now(UTC),
        "last_run_duration_us": 1_500_000,
    }
    await rig.db.write(
        lambda conn: conn.execute(agents.update().where(agents.c.id == agent.id).values(**ended)) and None
    )
    assert await rig.names(last_stop_reason=stop_reason_pb2.STOP_REASON_END_TURN) == ["Ada"]
    assert await rig.names(last_stop_reason=stop_reason_pb2.STOP_REASON_ERROR) == []
    shown = await rig.get(agent.id)
    assert shown.last_stop_reason == stop_reason_pb2.STOP_REASON_END_TURN
    assert shown.last_run_duration.ToMilliseconds() == 1500
    assert shown.last_run_completion_time.ToDatetime(UTC) == ended["last_run_completed_at"]


@pytest.mark.parametrize(
    ("order_by", "newest_first"),
    [("", True), ("create_time desc", True), ("create_time", False), ("create_time  desc ", True)],
)
async def test_pages_hold_every_agent_once_in_order_while_others_come(
    rig: Rig, order_by: str, newest_first: bool
) -> None:
    first = [(await rig.create(tags=["old"])).id for _ in range(7)]
    seen, token, wanted = [], "", api.AgentFilter(tags=["old"])
    while True:
        request = api.ListAgentsRequest(filter=wanted, order_by=order_by, page_size=2, page_token=token)
        page, _ = await asyncio.gather(rig.stub.ListAgents(request), rig.create(tags=["old"]))
        seen += [agent.id for agent in page.agents]
        token = page.next_page_token
        if not token or len(seen) > 30:
            break
        assert len(page.agents) == 2
        if not newest_first and len(seen) > len(first):
            break
    assert len(set(seen)) == len(seen)
    old = [each for each in seen if each in first]
    assert old == (first[::-1] if newest_first else first)


async def test_a_page_has_50_agents_unless_asked_otherwise(rig: Rig) -> None:
    await asyncio.gather(*(rig.create() for _ in range(51)))
    page = await rig.stub.ListAgents(api.ListAgentsRequest())
    assert (len(page.agents), bool(page.next_page_token)) == (50, True)
    page = await rig.stub.ListAgents(api.ListAgentsRequest(page_size=100_000))
    assert (len(page.agents), page.next_page_token) == (51, "")


async def test_a_page_token_belongs_to_its_list(rig: Rig) -> None:
    for _ in range(2):
        await rig.create(tags=["a", "b"])
    token = (await rig.stub.ListAgents(api.ListAgentsRequest(page_size=1))).next_page_token
    tag_token = (await rig.stub.ListTags(api.ListTagsRequest(page_size=1))).next_page_token
    filtered = api.AgentFilter(include_hidden=True)
    for call in (
        rig.stub.ListAgents(api.ListAgentsRequest(page_token=token, filter=filtered)),
        rig.stub.ListAgents(api.ListAgentsRequest(page_token=token, order_by="create_time")),
        rig.stub.ListAgents(api.ListAgentsRequest(page_token=tag_token)),
        rig.stub.ListAgents(api.ListAgentsRequest(page_token="nonsense")),
        rig.stub.ListAgents(api.ListAgentsRequest(page_token=token), metadata=(("org", OTHER),)),
        rig.stub.ListTags(api.ListTagsRequest(page_token=token)),
        rig.stub.ListTags(api.ListTagsRequest(page_token=tag_token, query="a")),
    ):
        assert await invalid(call) == ["page_token"]


async def test_bad_list_arguments_are_named(rig: Rig) -> None:
    def listing(**fields: Any) -> Awaitable[Any]:
        answer: Awaitable[Any] = rig.stub.ListAgents(api.ListAgentsRequest(**fields))
        return answer

    assert await invalid(listing(page_size=-1)) == ["page_size"]
    assert await invalid(listing(order_by="name")) == ["order_by"]
    wrong = api.AgentFilter(name="\0", query="q" * 1001, tags=["a", ""], last_stop_reason=99)  # type: ignore[arg-type]
    fields = ["filter.name", "filter.query", "filter.tags[1]", "filter.last_stop_reason"]
    assert await invalid(listing(filter=wrong)) == fields
    assert await invalid(rig.stub.CountAgents(api.CountAgentsRequest(filter=wrong))) == fields
    assert await invalid(rig.stub.ListTags(api.ListTagsRequest(page_size=-1))) == ["page_size"]
    assert await invalid(rig.stub.ListTags(api.ListTagsRequest(query="\0"))) == ["query"]


async def test_tags_in_use_are_listed_once_sorted_and_in_pages(rig: Rig) -> None:
    await rig.create(tags=["Étage", "b", "a"])
    agent = await rig.create(tags=["B", "b"], hidden=True)
    seen, token = [], ""
    while True:
        page = await rig.stub.ListTags(api.ListTagsRequest(page_size=2, page_token=token))
        seen.append(list(page.tags))
        token = page.next_page_token
        if not token:
            break
    assert seen == [["B", "a"], ["b", "Étage"]]
    assert (await rig.stub.ListTags(api.ListTagsRequest(query="éTA"))).tags == ["Étage"]
    assert (await rig.stub.ListTags(api.ListTagsRequest(query="b"))).tags == ["B", "b"]
    await rig.delete(agent.id)
    assert (await rig.stub.ListTags(api.ListTagsRequest(query="b"))).tags == ["b"]
