"""Lists of messages and runs (WIRE 1, 2.6)."""

from typing import Any

from common.ids import Prefix, new_id
from tests.gateway.client import Gateway, types
from tests.helpers.inprocess import AgentClient
from tests.helpers.models import Gate, call, say, think


def contents(messages: list[Any]) -> list[str]:
    return [each["content"] for each in messages]


async def talk(gateway: Gateway, *texts: str, **fields: Any) -> AgentClient:
    agent = await gateway.world.make_agent(**fields)
    for text in texts:
        agent.model.will(say(f"to {text}"))
        await gateway.say(agent, text)
    return agent


async def test_a_fresh_agent_has_its_system_prompt_as_a_message_and_a_cursor(gateway: Gateway) -> None:
    agent = await gateway.world.make_agent(system="be good")
    path = f"/v1/agents/{agent.id}/messages"
    listed = await gateway.get(path, limit=1)
    assert types(listed) == ["system_message"]
    assert listed[0]["content"] == "be good"
    assert await gateway.get(path, after=listed[0]["id"]) == []
    assert await gateway.get(path, before=listed[0]["id"]) == []
    assert await gateway.get(f"/v1/messages/{listed[0]['id']}") == listed
    await gateway.say(agent, "hi")
    assert contents(await gateway.get(path, after=listed[0]["id"])) == ["hi", "ok"]


async def test_messages_are_told_from_old_to_new_whichever_end_they_are_taken_from(gateway: Gateway) -> None:
    agent = await talk(gateway, "a", "b", "c", system="s")
    path = f"/v1/agents/{agent.id}/messages"
    everything = ["s", "a", "to a", "b", "to b", "c", "to c"]
    assert contents(await gateway.get(path)) == everything
    assert contents(await gateway.get(path, order="asc")) == everything
    assert contents(await gateway.get(path, limit=2)) == everything[-2:]
    assert contents(await gateway.get(path, limit=2, order="asc")) == everything[:2]
    listed = await gateway.get(path)
    assert contents(await gateway.get(path, after=listed[3]["id"])) == everything[4:]
    assert contents(await gateway.get(path, before=listed[3]["id"])) == everything[:3]
    assert contents(await gateway.get(path, before=listed[3]["id"], limit=1)) == everything[2:3]
    assert contents(await gateway.get(path, include_return_message_types=["user_message"])) == ["a", "b", "c"]
    await gateway.get(path, after=new_id(Prefix.MESSAGE), expect=404)


async def test_a_limit_counts_stored_messages_and_not_the_objects_they_become(gateway: Gateway) -> None:
    agent = await gateway.world.make_agent()
    agent.model.will((think("hm"), *say("yes")))
    await gateway.say(agent, "hi")
    listed = await gateway.get(f"/v1/agents/{agent.id}/messages", limit=1)
    assert types(listed) == ["reasoning_message", "assistant_message"]
    assert await gateway.get(f"/v1/agents/{agent.id}/messages", after=listed[0]["id"]) == []


async def test_messages_across_agents_come_newest_first_and_page_to_an_end(gateway: Gateway) -> None:
    await talk(gateway, "a")
    await talk(gateway, "b")
    assert contents(await gateway.get("/v1/messages/")) == ["to b", "b", "to a", "a"]
    seen: list[str] = []
    page = await gateway.get("/v1/messages/", limit=3)
    while page:
        seen += contents(page)
        page = await gateway.get("/v1/messages/", limit=3, after=page[-1]["id"])
    assert seen == ["to b", "b", "to a", "a"]
    await gateway.get(f"/v1/messages/{new_id(Prefix.MESSAGE)}", expect=404)


async def test_one_message_is_all_objects_it_became(gateway: Gateway) -> None:
    agent = await gateway.world.make_agent()
    agent.model.will((think("hm"), *say("yes")))
    said = (await gateway.say(agent, "hi"))["messages"]
    assert types(await gateway.get(f"/v1/messages/{said[0]['id']}")) == ["reasoning_message", "assistant_message"]


async def test_messages_are_found_by_their_words(gateway: Gateway) -> None:
    agent = await talk(gateway, "apples", "pears")
    await talk(gateway, "apples too")
    everywhere = await gateway.call("POST", "/v1/messages/search", {"query": "apples"})
    assert len(everywhere) == 4
    assert types(everywhere) == ["assistant_message", "user_message"] * 2
    one = await gateway.call("POST", f"/v1/agents/{agent.id}/messages/search", {"query": "APPLES"})
    assert [each["content"] for each in one] == ["to apples", "apples"]
    assert {each["agent_id"] for each in one} == {agent.id}
    assert await gateway.call("POST", "/v1/agents/messages/search", {"query": "apples", "agent_id": agent.id}) == one
    assert await gateway.call("POST", "/v1/messages/search", {"query": "plums"}) == []
    later = {"query": "apples", "start_date": "2100-01-01T00:00:00Z"}
    assert await gateway.call("POST", "/v1/messages/search", later) == []
    await gateway.call("POST", "/v1/messages/search", {"query": ""}, expect=422)


async def test_reset_empties_the_context_and_keeps_the_log(gateway: Gateway) -> None:
    agent = await talk(gateway, "a")
    assert await gateway.call("PATCH", f"/v1/agents/{agent.id}/reset-messages", {}) is None
    agent.model.will(say("to b"))
    await gateway.say(agent, "b")
    assert len(agent.model.calls[-1].request.messages) == 1
    assert contents(await gateway.get(f"/v1/agents/{agent.id}/messages"))[1:] == ["a", "to a", "b", "to b"]


async def test_messages_cannot_be_edited(gateway: Gateway) -> None:
    agent = await gateway.world.make_agent()
    path = f"/v1/agents/{agent.id}/messages/{new_id(Prefix.MESSAGE)}"
    await gateway.call("PATCH", path, {"content": "other"}, expect=405)


async def test_runs_can_be_filtered(gateway: Gateway) -> None:
    agent = await gateway.world.make_agent(["secret"], approval=["secret"])
    gate = Gate()
    agent.model.will(say("done"), call("secret"))
    done = (await gateway.say(agent, "a"))["messages"][0]["run_id"]
    waits = (await gateway.say(agent, "b"))["messages"][0]["run_id"]
    other = await gateway.world.make_agent()
    other.model.will(say("x", gate))
    body = {"messages": [{"role": "user", "content": "c"}]}
    live = (await gateway.call("POST", f"/v1/agents/{other.id}/messages/async", body))["id"]
    await gate.reached()

    async def found(**query: Any) -> list[str]:
        return [run["id"] for run in await gateway.get("/v1/runs/", **query)]

    assert await found() == [live, waits, done]
    assert await found(order="asc") == await found(ascending=True) == [done, waits, live]
    assert await found(agent_id=agent.id) == await found(agent_ids=[agent.id]) == [waits, done]
    assert await found(statuses=["completed"]) == [waits, done]
    assert await found(statuses=["running", "cancelled"]) == [live]
    assert await found(statuses=["expired"]) == []
    assert await found(active=True) == [live]
    assert [run["id"] for run in await gateway.get("/v1/runs/active")] == [live]
    assert await found(background=True) == [live]
    assert await found(background=False) == [waits, done]
    assert await found(stop_reason="requires_approval") == [waits]
    assert await found(conversation_id=agent.conversation_id) == [waits, done]
    assert await found(limit=1) == [live]
    assert await found(limit=1, after=live) == [waits]
    assert await found(after=done) == []
    assert await found(before=done, limit=1) == [waits]
    assert await found(before=done, after=live) == [waits]
    assert await found(after=waits, order="asc") == [live]
    await gateway.get("/v1/runs/", after=new_id(Prefix.RUN), expect=404)
    await gateway.get("/v1/runs/", stop_reason="bored", expect=422)
    await gateway.get("/v1/runs/", statuses=["odd"], expect=422)
    gate.open()


async def test_a_run_tells_its_messages_steps_usage_and_metrics(gateway: Gateway) -> None:
    agent = await gateway.world.make_agent(["dice"])
    agent.model.will(call("dice"), say("done"))
    run_id = (await gateway.say(agent, "roll"))["messages"][0]["run_id"]
    path = f"/v1/runs/{run_id}"
    assert types(await gateway.get(f"{path}/messages")) == [
        "user_message",
        "tool_call_message",
        "tool_return_message",
        "assistant_message",
    ]
    assert types(await gateway.get(f"{path}/messages", order="desc", limit=2)) == [
        "assistant_message",
        "tool_return_message",
    ]
    steps = await gateway.get(f"{path}/steps")
    assert len(steps) == 2
    assert steps[0]["model_handle"] == agent.model.handle
    assert (steps[0]["status"], steps[0]["total_tokens"]) == ("success", 15)
    assert [each["id"] for each in await gateway.get(f"{path}/steps", order="asc")] == [
        each["id"] for each in reversed(steps)
    ]
    assert await gateway.get(f"{path}/steps", after=steps[1]["id"]) == []
    assert await gateway.get(f"{path}/steps", after=steps[0]["id"]) == steps[1:]
    assert await gateway.get(f"{path}/steps", before=steps[1]["id"]) == steps[:1]
    assert (await gateway.get(f"{path}/usage"))["total_tokens"] == 30
    metrics = await gateway.get(f"{path}/metrics")
    assert (metrics["id"], metrics["num_steps"], metrics["tools_used"]) == (run_id, 2, ["dice"])
    assert metrics["run_ns"] > 0
    assert await gateway.call("DELETE", path) is None
    await gateway.get(path, expect=404)
    await gateway.get(f"{path}/steps", expect=404)


async def test_a_run_that_is_live_is_not_deleted(gateway: Gateway) -> None:
    agent = await gateway.world.make_agent(["secret"], approval=["secret"])
    agent.model.will(call("secret"))
    run_id = (await gateway.say(agent, "b"))["messages"][0]["run_id"]
    body = await gateway.call("DELETE", f"/v1/runs/{run_id}", expect=409)
    assert body["reason"] == "ILLEGAL_TRANSITION"


async def test_cancel_says_what_became_of_each_run(gateway: Gateway) -> None:
    agent = await gateway.world.make_agent()
    path = f"/v1/agents/{agent.id}/messages/cancel"
    answer = await gateway.http.post(path, json={})
    assert answer.status_code == 409
    assert answer.json()["detail"] == f"No active runs to cancel for agent {agent.id}"
    assert answer.headers["x-should-retry"] == "false"
    done = (await gateway.say(agent, "a"))["messages"][0]["run_id"]
    unknown = new_id(Prefix.RUN)
    assert await gateway.call("POST", path, {"run_ids": [done, unknown, "odd"]}) == {
        done: "cancelled",
        unknown: "failed",
        "odd": "failed",
    }
    # No body at all is as good as an empty one.
    assert (await gateway.http.post(path)).status_code == 409
    await gateway.call("POST", f"/v1/agents/{new_id(Prefix.AGENT)}/messages/cancel", {}, expect=404)
