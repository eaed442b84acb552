"""People in the loop, through messages (WIRE 8)."""

from typing import Any

import pytest

from services.models.errors import ModelErrorType
from tests.gateway.client import Gateway, approval, approve, deny, returned, text_of, types
from tests.helpers.inprocess import AgentClient
from tests.helpers.models import Gate, ProbeTool, call, calls, fail, say, think

PENDING = "Please approve or deny the pending request before continuing"


async def asking(gateway: Gateway, *turns: Any) -> AgentClient:
    """An agent that asks before it calls `secret` (once, as call_1), then takes these turns."""
    agent = await gateway.world.make_agent(["secret", "dice"], approval=["secret"])
    agent.model.will((think("hm"), *call("secret", "call_1", text="a")), *turns)
    return agent


async def test_a_call_that_needs_approval_stops_the_answer(gateway: Gateway, secret: ProbeTool) -> None:
    agent = await asking(gateway)
    answer = await gateway.say(agent, "do it")
    assert types(answer["messages"]) == ["reasoning_message", "approval_request_message"]
    request = answer["messages"][-1]
    assert request["tool_call"] == {"name": "secret", "arguments": '{"text": "a"}', "tool_call_id": "call_1"}
    assert request["tool_calls"] == [request["tool_call"]]
    assert answer["stop_reason"]["stop_reason"] == "requires_approval"
    run = await gateway.get(f"/v1/runs/{request['run_id']}")
    assert (run["status"], run["stop_reason"]) == ("completed", "requires_approval")
    assert run["completed_at"] is not None
    assert secret.started == []


async def test_an_approved_call_runs_and_its_return_comes_first(gateway: Gateway, secret: ProbeTool) -> None:
    agent = await asking(gateway, say("thanks"))
    asked = await gateway.say(agent, "do it")
    answer = await gateway.answer(agent, approve("call_1"))
    assert types(answer["messages"]) == ["tool_return_message", "assistant_message"]
    assert answer["messages"][0]["tool_call_id"] == "call_1"
    assert answer["messages"][0]["status"] == "success"
    assert answer["usage"]["step_count"] == 1
    assert secret.started == [{"text": "a"}]
    listed = await gateway.get(f"/v1/agents/{agent.id}/messages", after=asked["messages"][0]["id"])
    assert types(listed) == ["approval_response_message", "tool_return_message", "assistant_message"]
    decided = listed[0]
    assert (decided["approve"], decided["approval_request_id"], decided["otid"]) == (True, "call_1", None)
    assert decided["approvals"] == [{"type": "approval", "tool_call_id": "call_1", "approve": True, "reason": None}]


@pytest.mark.parametrize("tokens", [False, True])
async def test_the_stream_after_an_approval_begins_with_the_return(gateway: Gateway, tokens: bool) -> None:
    agent = await asking(gateway, say("thanks"))
    await gateway.say(agent, "do it")
    body = {"messages": [approval(approve("call_1"))], "stream_tokens": tokens}
    frames = await gateway.frames(f"/v1/agents/{agent.id}/messages/stream", body)
    assert types(frames) == [
        "tool_return_message",
        "assistant_message",
        "stop_reason",
        "usage_statistics",
        "[DONE]",
    ]


async def test_a_denial_is_an_error_return_with_its_reason(gateway: Gateway, secret: ProbeTool) -> None:
    agent = await asking(gateway, say("a pity"), say("next"))
    await gateway.say(agent, "do it")
    answer = await gateway.answer(agent, deny("call_1", "it is 42"))
    came = answer["messages"][0]
    assert (came["status"], came["tool_return"]) == (
        "error",
        "Error: request to call tool denied. User reason: it is 42",
    )
    listed = await gateway.get(f"/v1/agents/{agent.id}/messages")
    decided = next(each for each in listed if each["message_type"] == "approval_response_message")
    assert decided["approvals"][0]["reason"] == "it is 42"
    assert (decided["approve"], decided["reason"]) == (False, "it is 42")
    assert secret.started == []
    assert (await gateway.say(agent, "go on"))["messages"][0]["content"] == "next"


async def test_a_client_may_have_run_the_call_itself(gateway: Gateway, secret: ProbeTool) -> None:
    agent = await asking(gateway, say("thanks"))
    await gateway.say(agent, "do it")
    answer = await gateway.answer(agent, returned("call_1", "42"))
    assert answer["messages"][0]["tool_return"] == "42"
    listed = await gateway.get(f"/v1/agents/{agent.id}/messages")
    decided = next(each for each in listed if each["message_type"] == "approval_response_message")
    assert decided["approvals"] == [
        {
            "type": "tool",
            "tool_call_id": "call_1",
            "tool_return": "42",
            "status": "success",
            "stdout": None,
            "stderr": None,
        }
    ]
    assert (decided["approve"], decided["approval_request_id"]) == (None, None)
    assert secret.started == []


async def test_older_clients_decide_with_three_fields(gateway: Gateway, secret: ProbeTool) -> None:
    agent = await asking(gateway, say("thanks"))
    asked = await gateway.say(agent, "do it")
    said = {"approve": True, "approval_request_id": asked["messages"][-1]["id"]}
    answer = await gateway.call("POST", f"/v1/agents/{agent.id}/messages", {"messages": [said]})
    assert answer["messages"][0]["status"] == "success"
    assert secret.started == [{"text": "a"}]


async def test_follow_ups_join_before_the_next_turn(gateway: Gateway) -> None:
    agent = await asking(gateway, say("thanks"))
    await gateway.say(agent, "do it")
    said = [approval(approve("call_1")), {"role": "user", "content": "and be brief"}]
    await gateway.call("POST", f"/v1/agents/{agent.id}/messages", {"messages": said})
    listed = await gateway.get(f"/v1/agents/{agent.id}/messages")
    assert types(listed)[-3:] == ["tool_return_message", "user_message", "assistant_message"]
    assert listed[-2]["content"] == "and be brief"


async def test_a_mixed_turn_waits_as_a_whole_and_is_answered_in_order(gateway: Gateway, dice: ProbeTool) -> None:
    agent = await gateway.world.make_agent(
        ["secret", "dice"], approval=["secret"], model_settings={"parallel_tool_calls": True}
    )
    wanted: list[tuple[str, str, dict[str, Any]]] = [
        ("secret", "s1", {}),
        ("secret", "s2", {}),
        ("secret", "s3", {}),
        ("dice", "d", {}),
    ]
    agent.model.will((think("hm"), *say("let me")[:1], *calls(*wanted)), say("done"))
    messages = (await gateway.say(agent, "do it"))["messages"]
    assert types(messages)[-2:] == ["tool_call_message", "approval_request_message"]
    assert [each["tool_call_id"] for each in messages[-2]["tool_calls"]] == ["d"]
    assert [each["tool_call_id"] for each in messages[-1]["tool_calls"]] == ["s1", "s2", "s3"]
    assert dice.started == []
    answer = await gateway.answer(agent, approve("s1"), deny("s2"), returned("s3", "42"))
    came = answer["messages"][0]["tool_returns"]
    assert [(each["tool_call_id"], each["status"]) for each in came] == [
        ("s3", "success"),
        ("s2", "error"),
        ("s1", "success"),
        ("d", "success"),
    ]
    listed = await gateway.get(f"/v1/agents/{agent.id}/messages")
    assert types(listed)[1:8] == [
        "user_message",
        "reasoning_message",
        "assistant_message",
        "tool_call_message",
        "approval_request_message",
        "approval_response_message",
        "tool_return_message",
    ]


async def test_while_pending_a_message_is_refused_for_good(gateway: Gateway) -> None:
    agent = await asking(gateway, say("thanks"))
    asked = await gateway.say(agent, "do it")
    answer = await gateway.http.post(f"/v1/agents/{agent.id}/messages", json={"input": "hi"})
    assert answer.status_code == 409
    assert answer.headers["x-should-retry"] == "false"
    detail = answer.json()["detail"]
    assert detail["code"] == "PENDING_APPROVAL"
    assert PENDING in detail["message"]
    assert detail["pending_request_id"] == asked["messages"][-1]["id"]
    assert answer.json()["reason"] == "PENDING_APPROVAL"
    frames = await gateway.stream(agent, "hi")
    assert types(frames) == ["stop_reason", "error_message", "[DONE]"]
    assert frames[1].event == "error"
    assert PENDING in frames[1].data["detail"]


async def test_answers_to_nothing_and_to_other_calls_are_refused(gateway: Gateway) -> None:
    agent = await asking(gateway, say("thanks"))
    nothing = await gateway.answer(agent, approve("call_1"), expect=400)
    assert "No tool call is currently awaiting approval" in nothing["detail"]
    frames = await gateway.frames(f"/v1/agents/{agent.id}/messages/stream", {"messages": [approval(approve("call_1"))]})
    assert "No tool call is currently awaiting approval" in frames[1].data["detail"]
    await gateway.say(agent, "do it")
    wrong = await gateway.answer(agent, approve("call_2"), expect=400)
    assert "Invalid tool call IDs" in wrong["detail"]
    none = await gateway.answer(agent, expect=400)
    assert "does not contain any approvals" in none["detail"]
    assert (await gateway.answer(agent, approve("call_1")))["messages"]


async def test_an_answer_that_comes_twice_is_taken_once(gateway: Gateway, secret: ProbeTool) -> None:
    agent = await asking(gateway, say("thanks"))
    await gateway.say(agent, "do it")
    await gateway.answer(agent, approve("call_1"))
    again = await gateway.answer(agent, approve("call_1"))
    assert again["stop_reason"]["stop_reason"] == "end_turn"
    assert again["messages"] == []
    assert len(secret.started) == 1


async def test_what_is_said_with_an_answer_that_was_taken_before_is_new(gateway: Gateway) -> None:
    agent = await asking(gateway, say("thanks"), say("to more"))
    await gateway.say(agent, "do it")
    await gateway.answer(agent, approve("call_1"))
    said = [approval(approve("call_1")), {"role": "user", "content": "more"}]
    answer = await gateway.call("POST", f"/v1/agents/{agent.id}/messages", {"messages": said})
    assert answer["messages"][0]["content"] == "to more"


async def test_an_answer_after_the_end_finds_nothing_that_waits(gateway: Gateway) -> None:
    agent = await asking(gateway, say("thanks"))
    await gateway.say(agent, "do it")
    await gateway.answer(agent, approve("call_1"))
    for late in (approve("call_2"), deny("call_1")):
        found = await gateway.answer(agent, late, expect=400)
        assert "No tool call is currently awaiting approval" in found["detail"]


async def test_a_repeat_does_not_wait_for_the_next_question(gateway: Gateway) -> None:
    agent = await asking(gateway, call("secret", "call_2"), say("thanks"))
    await gateway.say(agent, "do it")
    answer = await gateway.answer(agent, approve("call_1"))
    assert types(answer["messages"]) == ["tool_return_message", "approval_request_message"]
    assert (await gateway.answer(agent, approve("call_2")))["stop_reason"]["stop_reason"] == "end_turn"


async def test_a_model_that_fails_after_the_approval_leaves_a_usable_agent(gateway: Gateway) -> None:
    agent = await asking(gateway, fail(ModelErrorType.ERROR, message="TEST: Mocked error"), say("fine"))
    await gateway.say(agent, "do it")
    body = {"messages": [approval(approve("call_1"))], "stream_tokens": True}
    frames = await gateway.frames(f"/v1/agents/{agent.id}/messages/stream", body)
    assert types(frames) == ["tool_return_message", "stop_reason", "error_message", "[DONE]"]
    assert frames[2].data["message"] == "TEST: Mocked error"
    assert text_of(await gateway.stream(agent, "go on")) == "fine"


async def test_cancel_while_pending_denies_and_frees_the_agent(gateway: Gateway, secret: ProbeTool) -> None:
    agent = await asking(gateway, say("fine"))
    asked = await gateway.say(agent, "do it")
    run_id = asked["messages"][0]["run_id"]
    assert await gateway.call("POST", f"/v1/agents/{agent.id}/messages/cancel", {}) == {run_id: "cancelled"}
    run = await gateway.get(f"/v1/runs/{run_id}")
    assert (run["status"], run["stop_reason"]) == ("cancelled", "cancelled")
    listed = await gateway.get(f"/v1/agents/{agent.id}/messages", after=asked["messages"][0]["id"])
    assert types(listed) == ["approval_response_message", "tool_return_message"]
    assert "The user cancelled the request" in listed[1]["tool_return"]
    assert (await gateway.say(agent, "go on"))["messages"][0]["content"] == "fine"
    assert secret.started == []


async def test_cancel_strikes_while_an_approved_call_runs(gateway: Gateway, secret: ProbeTool) -> None:
    secret.gate = Gate()
    agent = await asking(gateway)
    await gateway.say(agent, "do it")
    body = {"messages": [approval(approve("call_1"))], "stream_tokens": True}
    async with gateway.open(f"/v1/agents/{agent.id}/messages/stream", body) as frames:
        await secret.gate.reached()
        await gateway.call("POST", f"/v1/agents/{agent.id}/messages/cancel", {})
        rest = [frame async for frame in frames]
    assert types(rest) == ["tool_return_message", "stop_reason", "[DONE]"]
    assert rest[1].data["stop_reason"] == "cancelled"
    latest = (await gateway.get("/v1/runs/", agent_ids=[agent.id]))[0]
    assert latest["status"] == "cancelled"


async def test_client_tools_pause_and_are_answered(gateway: Gateway) -> None:
    agent = await gateway.world.make_agent()
    agent.model.will(call("screenshot", "call_1", screen=1), say("I see"))
    tools = [{"name": "screenshot", "description": "Look.", "parameters": {"type": "object", "properties": {}}}]
    asked = await gateway.say(agent, "look", client_tools=tools)
    assert types(asked["messages"]) == ["approval_request_message"]
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk=", "detail": None}}
    content = [{"type": "text", "text": "here"}, picture]
    said = {"type": "tool_return", "tool_returns": [returned("call_1", content)]}
    body = {"messages": [said], "client_tools": tools}
    answer = await gateway.call("POST", f"/v1/agents/{agent.id}/messages", body)
    came = answer["messages"][0]
    assert came["tool_return"] == "here\n[Image omitted]"
    assert came["tool_returns"][0]["tool_return"] == content
    assert answer["messages"][1]["content"] == "I see"
