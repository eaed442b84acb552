"""Messages in, answers out (WIRE 2.4, 2.5, 4)."""

import asyncio

from services.models.errors import ModelErrorType
from tests.gateway.client import Gateway, types
from tests.helpers.inprocess import Run
from tests.helpers.models import Gate, call, calls, fail, say, think
from tests.helpers.wait import eventually

USAGE = {"completion_tokens": 5, "prompt_tokens": 10, "total_tokens": 15, "step_count": 1}


async def test_an_answer_has_what_the_request_generated(gateway: Gateway) -> None:
    agent = await gateway.world.make_agent()
    agent.model.will((think("hm"), *say("hello ", "you")))
    answer = await gateway.say(agent, "hi")
    assert types(answer["messages"]) == ["reasoning_message", "assistant_message"]
    reasoning, said = answer["messages"]
    assert reasoning["reasoning"] == "hm"
    assert said["content"] == "hello you"
    assert reasoning["id"] == said["id"]
    assert reasoning["otid"] != said["otid"]
    assert said["date"].endswith("+00:00")
    assert "." not in said["date"]
    assert said["run_id"].startswith("run-")
    assert said["step_id"].startswith("step-")
    assert said["seq_id"] is None
    assert answer["stop_reason"] == {"message_type": "stop_reason", "stop_reason": "end_turn"}
    assert answer["usage"].items() >= USAGE.items()
    assert answer["usage"]["run_ids"] == [said["run_id"]]


async def test_input_is_short_for_one_user_message(gateway: Gateway) -> None:
    agent = await gateway.world.make_agent()
    await gateway.call("POST", f"/v1/agents/{agent.id}/messages", {"input": "hi"})
    listed = await gateway.get(f"/v1/agents/{agent.id}/messages")
    assert [each.get("content") for each in listed[1:]] == ["hi", "ok"]


async def test_calls_and_returns_have_the_shapes_that_unions_are_taken_apart_by(gateway: Gateway) -> None:
    agent = await gateway.world.make_agent(["dice"])
    agent.model.will(call("dice", "call_1", sides=6), say("done"))
    messages = (await gateway.say(agent, "roll"))["messages"]
    assert types(messages) == ["tool_call_message", "tool_return_message", "assistant_message"]
    made, came, _ = messages
    assert made["tool_call"] == {"name": "dice", "arguments": '{"sides": 6}', "tool_call_id": "call_1"}
    assert made["tool_calls"] == [made["tool_call"]]
    assert (came["tool_return"], came["status"], came["tool_call_id"]) == ("dice ran", "success", "call_1")
    assert came["tool_returns"] == [
        {
            "type": "tool",
            "tool_call_id": "call_1",
            "tool_return": "dice ran",
            "status": "success",
            "stdout": None,
            "stderr": None,
        }
    ]
    assert came["name"] == "dice"
    assert made["id"] != came["id"]


async def test_types_can_be_chosen(gateway: Gateway) -> None:
    agent = await gateway.world.make_agent(["dice"])
    agent.model.will(call("dice"), say("done"))
    answer = await gateway.say(agent, "roll", include_return_message_types=["assistant_message"])
    assert types(answer["messages"]) == ["assistant_message"]
    run_id = answer["messages"][0]["run_id"]
    assert types(await gateway.get(f"/v1/runs/{run_id}/messages")) == ["assistant_message"]


async def test_images_go_in_and_come_back(gateway: Gateway) -> None:
    agent = await gateway.world.make_agent()
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk=", "detail": None}}
    content = [{"type": "text", "text": "look"}, picture]
    body = {"messages": [{"role": "user", "content": content, "otid": "mine"}]}
    await gateway.call("POST", f"/v1/agents/{agent.id}/messages", body)
    listed = await gateway.get(f"/v1/agents/{agent.id}/messages")
    assert listed[1]["content"] == content
    assert listed[1]["otid"] == "mine"


async def test_the_model_of_one_request_can_be_another_one(gateway: Gateway) -> None:
    agent = await gateway.world.make_agent()
    other = gateway.world.models.make()
    other.will(say("from the other"))
    answer = await gateway.say(agent, "hi", override_model=other.handle, override_system="be other")
    assert answer["messages"][0]["content"] == "from the other"
    assert other.calls[0].request.system.startswith("be other")


async def test_a_failing_model_is_an_error_that_must_not_be_repeated(gateway: Gateway) -> None:
    for kind, status in (
        (ModelErrorType.TIMEOUT, 504),
        (ModelErrorType.RATE_LIMIT, 429),
        (ModelErrorType.AUTHENTICATION, 401),
        (ModelErrorType.BAD_REQUEST, 400),
        (ModelErrorType.ERROR, 500),
    ):
        agent = await gateway.world.make_agent()
        agent.model.will(fail(kind, message="no"))
        body = {"messages": [{"role": "user", "content": "hi"}]}
        answer = await gateway.http.post(f"/v1/agents/{agent.id}/messages", json=body)
        assert answer.status_code == status, answer.text
        assert answer.json()["error"] == {"type": str(kind), "message": "no", "detail": "as told"}
        assert answer.headers["x-should-retry"] == "false"


async def test_an_answer_that_was_cut_is_still_an_answer(gateway: Gateway) -> None:
    agent = await gateway.world.make_agent(["dice"])
    agent.model.will(call("dice"), call("dice"), call("dice"))
    answer = await gateway.say(agent, "roll", max_steps=2)
    assert answer["stop_reason"]["stop_reason"] == "max_steps"
    assert answer["usage"]["step_count"] == 2


async def test_an_answer_whose_run_is_cancelled_has_what_was_done_before(gateway: Gateway) -> None:
    agent = await gateway.world.make_agent(["dice"])
    gate = Gate()
    agent.model.will(call("dice"), say("one", gate))
    sending = asyncio.ensure_future(gateway.say(agent, "roll"))
    await gate.reached()
    await gateway.call("POST", f"/v1/agents/{agent.id}/messages/cancel", {})
    answer = await sending
    assert answer["stop_reason"]["stop_reason"] == "cancelled"
    assert types(answer["messages"])[:2] == ["tool_call_message", "tool_return_message"]


async def test_a_client_that_hangs_up_is_not_waited_for(gateway: Gateway) -> None:
    agent = await gateway.world.make_agent()
    gate = Gate()
    agent.model.will(say("one", gate))
    sending = asyncio.ensure_future(gateway.say(agent, "go"))
    await gate.reached()
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)

    async def page() -> str:
        return (await gateway.http.get("/metrics")).text

    await eventually(page, until=lambda text: 'route="/v1/agents/{agent_id}/messages",status="499"' in text)
    gate.open()
    run_id = (await gateway.get("/v1/runs/", agent_id=agent.id))[0]["id"]
    assert (await gateway.world.wait_for(run_id)).state == Run.STATE_COMPLETED


async def test_async_gives_the_run_at_once(gateway: Gateway) -> None:
    agent = await gateway.world.make_agent()
    body = {"messages": [{"role": "user", "content": "hi"}]}
    run = await gateway.call("POST", f"/v1/agents/{agent.id}/messages/async", body)
    assert (run["status"], run["background"], run["agent_id"]) == ("created", True, agent.id)
    assert run["metadata"] == {"run_type": "send_message_async"}
    await gateway.world.wait_for(run["id"])
    run = await gateway.get(f"/v1/runs/{run['id']}")
    assert (run["status"], run["stop_reason"]) == ("completed", "end_turn")
    assert run["completed_at"] is not None


async def test_several_calls_of_a_turn_are_one_message(gateway: Gateway) -> None:
    agent = await gateway.world.make_agent(["dice"], model_settings={"parallel_tool_calls": True})
    agent.model.will(calls(("dice", "a", {}), ("dice", "b", {})), say("done"))
    messages = (await gateway.say(agent, "roll"))["messages"]
    assert types(messages) == ["tool_call_message", "tool_return_message", "assistant_message"]
    assert [each["tool_call_id"] for each in messages[0]["tool_calls"]] == ["a", "b"]
    assert [each["tool_call_id"] for each in messages[1]["tool_returns"]] == ["a", "b"]
