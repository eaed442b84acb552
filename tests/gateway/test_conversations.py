"""Conversations (WIRE 8.6, 9)."""

import asyncio
from typing import Any

from common.ids import Prefix, new_id
from tests.gateway.client import Gateway, types
from tests.gateway.test_streams import END
from tests.helpers.inprocess import AgentClient
from tests.helpers.models import Gate, call, say

HI = {"messages": [{"role": "user", "content": "hi"}]}


async def opened(gateway: Gateway, **fields: Any) -> tuple[AgentClient, Any]:
    agent = await gateway.world.make_agent(system="be good", **fields)
    body = {"summary": "about it"}
    made = await gateway.call("POST", "/v1/conversations/", body, params={"agent_id": agent.id})
    return agent, made


async def test_a_conversation_from_creation_to_deletion(gateway: Gateway) -> None:
    agent, made = await opened(gateway)
    path = f"/v1/conversations/{made['id']}"
    assert (made["agent_id"], made["summary"]) == (agent.id, "about it")
    assert types(await gateway.get(f"{path}/messages")) == ["system_message"]
    assert len(made["in_context_message_ids"]) == 1
    answer = await gateway.call("POST", f"{path}/messages", {**HI, "streaming": False})
    assert types(answer["messages"]) == ["assistant_message"]
    assert types(await gateway.get(f"{path}/messages")) == ["assistant_message", "user_message", "system_message"]
    assert types(await gateway.get(f"/v1/agents/{agent.id}/messages")) == ["system_message"]
    found = await gateway.get(path)
    assert len(found["in_context_message_ids"]) == 3
    assert found["last_message_at"] is not None
    changed = await gateway.call("PATCH", path, {"summary": "else", "model_settings": {"temperature": 0.5}})
    assert (changed["summary"], changed["model_settings"]["temperature"]) == ("else", 0.5)
    assert (await gateway.call("PATCH", path, {"summary": None}))["summary"] is None
    assert await gateway.call("PATCH", path, {}) == await gateway.get(path)
    assert await gateway.call("DELETE", path) is None
    await gateway.get(path, expect=404)


async def test_conversations_are_listed_newest_first_without_the_default_one(gateway: Gateway) -> None:
    agent, first = await opened(gateway)
    second = await gateway.call("POST", "/v1/conversations/", {}, params={"agent_id": agent.id})

    async def found(**query: Any) -> list[str]:
        return [each["id"] for each in await gateway.get("/v1/conversations/", agent_id=agent.id, **query)]

    assert await found() == [second["id"], first["id"]]
    assert await found(order="asc") == [first["id"], second["id"]]
    assert await found(limit=1) == [second["id"]]
    assert await found(after=second["id"]) == [first["id"]]
    assert await found(after=first["id"]) == []
    assert await found(after=first["id"], order="asc") == [second["id"]]


async def test_messages_of_a_conversation_page_to_an_end(gateway: Gateway) -> None:
    _, made = await opened(gateway)
    path = f"/v1/conversations/{made['id']}/messages"
    await gateway.frames(path, HI)
    seen: list[str] = []
    page = await gateway.get(path, limit=1)
    while page:
        seen += types(page)
        page = await gateway.get(path, limit=1, after=page[-1]["id"])
    assert seen == ["assistant_message", "user_message", "system_message"]


async def test_sending_streams_unless_told_otherwise_and_a_live_run_refuses_another(gateway: Gateway) -> None:
    agent, made = await opened(gateway)
    path = f"/v1/conversations/{made['id']}/messages"
    gate = Gate()
    agent.model.will(say("one ", gate, "two"))
    async with gateway.open(path, {**HI, "stream_tokens": True}) as frames:
        run_id = (await anext(frames)).data["run_id"]
        refused = await gateway.call("POST", path, HI, expect=409)
        assert refused["run_id"] == run_id
        assert run_id in refused["detail"]
        gate.open()
        assert types([frame async for frame in frames]) == ["assistant_message", *END]
    assert types(await gateway.frames(path, HI)) == ["assistant_message", *END]


async def test_the_same_otid_in_the_background_finds_the_first_run(gateway: Gateway) -> None:
    agent, made = await opened(gateway)
    path = f"/v1/conversations/{made['id']}"
    body = {"messages": [{"role": "user", "content": "hi", "otid": "mine"}], "background": True}
    first = await gateway.frames(f"{path}/messages", body)
    assert await gateway.frames(f"{path}/messages", body) == first
    assert len(agent.model.calls) == 1
    assert await gateway.frames(f"{path}/stream", {"otid": "mine"}) == first
    assert await gateway.frames(f"{path}/stream", {"run_id": first[0].data["run_id"]}) == first


async def test_a_stream_is_resumed_and_cancelled_by_conversation(gateway: Gateway) -> None:
    agent, made = await opened(gateway)
    path = f"/v1/conversations/{made['id']}"
    nothing = await gateway.call("POST", f"{path}/stream", {}, expect=400)
    assert nothing["detail"] == "No active runs found for this conversation."
    await gateway.call("POST", f"{path}/cancel", expect=409)
    gate = Gate()
    agent.model.will(say("one ", gate))
    sending = asyncio.ensure_future(gateway.frames(f"{path}/messages", {**HI, "background": True}))
    await gate.reached()
    async with gateway.open(f"{path}/stream", {}) as resumed:
        stopped = await gateway.call("POST", f"{path}/cancel")
        assert list(stopped.values()) == ["cancelled"]
        rest = [frame async for frame in resumed]
    for frames in (await sending, rest):
        assert types(frames)[-2:] == ["stop_reason", "[DONE]"]
    await gateway.call("POST", f"{path}/stream", {"run_id": next(iter(stopped))[:-1]}, expect=400)


async def test_approvals_in_a_conversation_are_its_own(gateway: Gateway) -> None:
    agent, made = await opened(gateway, tools=["secret"], approval=["secret"])
    path = f"/v1/conversations/{made['id']}/messages"
    approval = {"type": "approval", "approvals": [{"approve": True, "tool_call_id": "call_1"}]}
    nothing = await gateway.call("POST", path, {"messages": [approval], "streaming": False}, expect=400)
    assert "No tool call is currently awaiting approval" in nothing["detail"]
    agent.model.will(call("secret", "call_1"), say("default"), say("done"))
    asked = await gateway.call("POST", path, {**HI, "streaming": False})
    assert asked["stop_reason"]["stop_reason"] == "requires_approval"
    # The agent's own conversation does not wait.
    assert (await gateway.say(agent, "hi"))["messages"][0]["content"] == "default"
    answer = await gateway.call("POST", path, {"messages": [approval], "streaming": False})
    assert types(answer["messages"]) == ["tool_return_message", "assistant_message"]


async def test_the_default_conversation_is_named_by_its_agent(gateway: Gateway) -> None:
    agent = await gateway.world.make_agent()
    named = {"agent_id": agent.id}
    by_body = await gateway.call("POST", "/v1/conversations/default/messages", {**HI, **named, "streaming": False})
    assert types(by_body["messages"]) == ["assistant_message"]
    assert len(await gateway.get("/v1/conversations/default/messages", agent_id=agent.id)) == 3
    assert len(await gateway.get(f"/v1/conversations/{agent.id}/messages")) == 3
    await gateway.get("/v1/conversations/default/messages", expect=422)
    await gateway.get("/v1/conversations/odd/messages", expect=422)
    await gateway.get(f"/v1/conversations/{new_id(Prefix.CONVERSATION)}/messages", expect=404)
    await gateway.call("POST", "/v1/conversations/", {}, expect=422)
    await gateway.call("POST", "/v1/conversations/", {}, expect=422, params={"agent_id": "odd"})


async def test_a_fork_has_the_messages_so_far(gateway: Gateway) -> None:
    agent, made = await opened(gateway)
    await gateway.frames(f"/v1/conversations/{made['id']}/messages", HI)
    copy = await gateway.call("POST", f"/v1/conversations/{made['id']}/fork")
    assert copy["id"] != made["id"]
    assert types(await gateway.get(f"/v1/conversations/{copy['id']}/messages", order="asc")) == [
        "system_message",
        "user_message",
        "assistant_message",
    ]
    assert copy["agent_id"] == agent.id
