"""Event streams (WIRE 3)."""

import asyncio

import pytest

from services.models.errors import ModelErrorType
from services.runs.store.retention import sweep
from tests.gateway.client import Gateway, text_of, types
from tests.gateway.conftest import MakeGateway
from tests.helpers.inprocess import Run
from tests.helpers.models import Gate, ProbeTool, call, fail, say, think
from tests.helpers.wait import eventually

END = ["stop_reason", "usage_statistics", "[DONE]"]


async def test_steps_are_whole_messages_and_end_with_reason_and_usage(gateway: Gateway) -> None:
    agent = await gateway.world.make_agent(["dice"])
    agent.model.will((think("hm"), *call("dice", "call_1", sides=6)), say("it is ", "4"))
    frames = await gateway.stream(agent, "roll")
    assert types(frames) == [
        "reasoning_message",
        "tool_call_message",
        "tool_return_message",
        "assistant_message",
        *END,
    ]
    assert all(frame.event == "" for frame in frames)
    assert frames[1].data["tool_calls"] == [frames[1].data["tool_call"]]
    assert text_of(frames) == "it is 4"
    assert frames[-3].data == {"message_type": "stop_reason", "stop_reason": "end_turn"}
    assert frames[-2].data["step_count"] == 2
    assert {frame.data["run_id"] for frame in frames[:-3]} == {frames[0].data["run_id"]}
    assert {frame.data["seq_id"] for frame in frames[:-3]} == {None}


async def test_tokens_are_deltas_that_merge_by_id_type_and_otid(gateway: Gateway) -> None:
    agent = await gateway.world.make_agent(["dice"])
    agent.model.will((think("h"), think("m"), *call("dice", "call_1", sides=6)), say("it ", "is ", "4"))
    frames = await gateway.stream(agent, "roll", stream_tokens=True)
    assert types(frames) == [
        *["reasoning_message"] * 2,
        *["tool_call_message"] * 2,
        "tool_return_message",
        *["assistant_message"] * 3,
        *END,
    ]
    first, second = frames[2].data, frames[3].data
    assert first["tool_call"] == {"name": "dice", "arguments": None, "tool_call_id": "call_1"}
    assert first["tool_calls"] == first["tool_call"]
    assert second["tool_call"] == {"name": "dice", "arguments": '{"sides": 6}', "tool_call_id": "call_1"}
    keys = [(frame.data["id"], frame.data["message_type"], frame.data["otid"]) for frame in frames[:-3]]
    assert len(set(keys)) == 4
    assert keys[0] == keys[1]
    assert keys[2] == keys[3]
    assert keys[0][0] == keys[2][0]
    stored = {each["id"]: each for each in await gateway.get(f"/v1/agents/{agent.id}/messages")}
    assert stored.keys() >= {key[0] for key in keys}
    assert text_of(frames) == "it is 4"


async def test_a_stored_message_has_the_ids_that_its_deltas_had(gateway: Gateway) -> None:
    agent = await gateway.world.make_agent()
    agent.model.will((think("hm"), *say("yes")))
    frames = await gateway.stream(agent, "go", stream_tokens=True)
    listed = await gateway.get(f"/v1/agents/{agent.id}/messages")
    assert [(each["id"], each["otid"]) for each in listed[-2:]] == [
        (frame.data["id"], frame.data["otid"]) for frame in frames[:2]
    ]


async def test_a_call_without_an_id_has_the_one_it_is_stored_with(gateway: Gateway) -> None:
    agent = await gateway.world.make_agent(["dice"])
    agent.model.will(call("dice"), say("done"))
    frames = await gateway.stream(agent, "roll", stream_tokens=True)
    came = next(frame.data for frame in frames if frame.type == "tool_return_message")
    assert frames[0].data["tool_call"]["tool_call_id"] == came["tool_call_id"] != ""


async def test_messages_with_streaming_true_is_the_same_stream(gateway: Gateway) -> None:
    agent = await gateway.world.make_agent()
    body = {"messages": [{"role": "user", "content": "hi"}], "streaming": True}
    frames = await gateway.frames(f"/v1/agents/{agent.id}/messages", body)
    assert types(frames) == ["assistant_message", *END]


async def test_a_failing_model_ends_with_an_error_frame_and_no_usage(gateway: Gateway) -> None:
    agent = await gateway.world.make_agent()
    agent.model.will(fail(ModelErrorType.RATE_LIMIT, *say("so far")[:1], message="too many"))
    frames = await gateway.stream(agent, "hi", stream_tokens=True)
    assert types(frames) == ["assistant_message", "stop_reason", "error_message", "[DONE]"]
    assert frames[1].data["stop_reason"] == "llm_api_error"
    error = frames[2]
    assert error.event == "error"
    assert error.data["error_type"] == "llm_rate_limit"
    assert (error.data["message"], error.data["detail"]) == ("too many", "as told")
    assert error.data["run_id"] == frames[0].data["run_id"]


async def test_cancel_is_one_stop_reason_and_the_end(gateway: Gateway) -> None:
    agent = await gateway.world.make_agent()
    gate = Gate()
    agent.model.will(say("one ", gate, "two"))
    body = {"messages": [{"role": "user", "content": "hi"}], "stream_tokens": True}
    async with gateway.open(f"/v1/agents/{agent.id}/messages/stream", body) as frames:
        first = await anext(frames)
        stopped = await gateway.call("POST", f"/v1/agents/{agent.id}/messages/cancel", {})
        assert stopped == {first.data["run_id"]: "cancelled"}
        rest = [frame async for frame in frames]
    assert types(rest) == ["stop_reason", "[DONE]"]
    assert rest[0].data["stop_reason"] == "cancelled"
    run = await gateway.get(f"/v1/runs/{first.data['run_id']}")
    assert (run["status"], run["stop_reason"]) == ("cancelled", "cancelled")
    replay = await gateway.frames(f"/v1/runs/{first.data['run_id']}/stream", {"starting_after": 0})
    assert types(replay) == ["assistant_message", "stop_reason", "[DONE]"]


async def test_a_client_that_hangs_up_does_not_stop_the_run(gateway: Gateway) -> None:
    agent = await gateway.world.make_agent()
    gate = Gate()
    agent.model.will(say("one ", gate, "two"))
    body = {"messages": [{"role": "user", "content": "hi"}], "stream_tokens": True}
    async with gateway.open(f"/v1/agents/{agent.id}/messages/stream", body) as frames:
        run_id = (await anext(frames)).data["run_id"]
    await eventually(lambda: _open_streams(gateway), until=lambda open_now: open_now == 0)
    gate.open()
    assert (await gateway.world.wait_for(run_id)).state == Run.STATE_COMPLETED


async def _open_streams(gateway: Gateway) -> float:
    page = (await gateway.http.get("/metrics")).text
    return next(float(line.split()[1]) for line in page.splitlines() if line.startswith("bridle_http_streams_open "))


async def test_a_quiet_stream_pings_in_full_shape_and_not_at_its_start(make_gateway: MakeGateway) -> None:
    gateway = await make_gateway(settings={"BRIDLE_HEARTBEAT_SECONDS": "0.05"})
    agent = await gateway.world.make_agent()
    gate = Gate()
    agent.model.will(say("one ", gate, "two"))
    body = {"messages": [{"role": "user", "content": "hi"}], "stream_tokens": True, "background": True}
    async with gateway.open(f"/v1/agents/{agent.id}/messages/stream", body) as frames:
        first, ping = await anext(frames), await anext(frames)
        gate.open()
        rest = [frame async for frame in frames]
    assert first.type == "assistant_message"
    assert ping.type == "ping"
    assert ping.data["id"].startswith("ping-")
    assert ping.data["run_id"] == first.data["run_id"]
    assert ping.data["seq_id"] == first.data["seq_id"]
    assert ping.data["date"]
    assert types(rest)[-4:] == ["assistant_message", *END]


async def test_without_pings_a_quiet_stream_is_kept_alive_by_comments(make_gateway: MakeGateway) -> None:
    gateway = await make_gateway(settings={"BRIDLE_HEARTBEAT_SECONDS": "0.05"})
    agent = await gateway.world.make_agent()
    gate = Gate()
    agent.model.will(say("one ", gate, "two"))
    body = {"messages": [{"role": "user", "content": "hi"}], "stream_tokens": True, "include_pings": False}
    path = f"/v1/agents/{agent.id}/messages/stream"
    raw = b""
    async with gateway.http.stream("POST", path, json=body) as answer:
        async for piece in answer.aiter_raw():
            raw += piece
            if b": keep-alive\n\n" in raw:
                gate.open()
    assert b'"ping"' not in raw
    assert raw.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("tokens", [False, True])
async def test_a_background_run_is_numbered_and_resumed_from_every_chunk(gateway: Gateway, tokens: bool) -> None:
    agent = await gateway.world.make_agent(["dice"])
    agent.model.will((think("hm"), *say("let me see: ")[:1], *call("dice", "call_1", sides=6)), say("it ", "is ", "4"))
    frames = await gateway.stream(agent, "roll", background=True, stream_tokens=tokens)
    content = frames[:-3]
    numbers = [frame.data["seq_id"] for frame in content]
    assert numbers == sorted(set(numbers))
    path = f"/v1/runs/{content[0].data['run_id']}/stream"
    assert await gateway.frames(path, {}) == frames
    for index, number in enumerate(numbers):
        rest = await gateway.frames(path, {"starting_after": number})
        assert [(f.type, f.data and f.data.get("seq_id")) for f in rest] == [
            (f.type, f.data and f.data.get("seq_id")) for f in frames[index + 1 :]
        ]
    resumed = await gateway.frames(path, {}, headers={"Last-Event-ID": str(numbers[-1])})
    assert types(resumed) == END


async def test_a_live_run_can_be_followed_by_several(gateway: Gateway) -> None:
    agent = await gateway.world.make_agent()
    gate = Gate()
    agent.model.will(say("one ", gate, "two"))
    body = {"messages": [{"role": "user", "content": "hi"}]}
    run = await gateway.call("POST", f"/v1/agents/{agent.id}/messages/async", body)
    readers = [asyncio.ensure_future(gateway.frames(f"/v1/runs/{run['id']}/stream", {})) for _ in range(3)]
    await gate.reached()
    gate.open()
    for frames in await asyncio.gather(*readers):
        assert types(frames) == ["assistant_message", *END]


async def test_events_that_are_no_longer_kept_are_gone(gateway: Gateway) -> None:
    agent = await gateway.world.make_agent()
    run_id = (await gateway.say(agent, "hi"))["messages"][0]["run_id"]
    await sweep(gateway.world.node.db, gateway.world.node.clock.now())
    await gateway.call("POST", f"/v1/runs/{run_id}/stream", {}, expect=410)
    assert types(await gateway.get(f"/v1/runs/{run_id}/messages")) == ["user_message", "assistant_message"]


async def test_a_cursor_beyond_the_log_is_refused(gateway: Gateway) -> None:
    agent = await gateway.world.make_agent()
    run_id = (await gateway.say(agent, "hi"))["messages"][0]["run_id"]
    body = await gateway.call("POST", f"/v1/runs/{run_id}/stream", {"starting_after": 10**9}, expect=400)
    assert body["reason"] == "CURSOR_OUT_OF_RANGE"


async def test_a_call_that_waits_says_so_in_its_first_delta(gateway: Gateway, secret: ProbeTool) -> None:
    agent = await gateway.world.make_agent(["secret"], approval=["secret"])
    agent.model.will(call("secret", "call_1", text="a"), say("done"))
    frames = await gateway.stream(agent, "do it", stream_tokens=True)
    assert types(frames) == ["approval_request_message"] * 2 + END
    assert frames[0].data["tool_call"]["name"] == "secret"
    assert frames[0].data["tool_call"]["tool_call_id"] == "call_1"
    assert frames[2].data["stop_reason"] == "requires_approval"
    assert secret.started == []
    replay = await gateway.frames(f"/v1/runs/{frames[0].data['run_id']}/stream", {})
    assert types(replay) == types(frames)


async def test_a_draining_server_says_that_the_stream_is_not_whole(make_gateway: MakeGateway) -> None:
    gateway = await make_gateway()
    agent = await gateway.world.make_agent()
    agent.model.will(say("one ", Gate(), "two"))
    body = {"messages": [{"role": "user", "content": "hi"}], "stream_tokens": True}
    async with gateway.open(f"/v1/agents/{agent.id}/messages/stream", body) as frames:
        await anext(frames)
        gateway.world.node.log.end()
        rest = [frame async for frame in frames]
    assert types(rest) == ["stop_reason", "error_message", "[DONE]"]
    assert rest[1].data["error_type"] == "stream_incomplete"
