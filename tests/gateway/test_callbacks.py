"""The body of a callback (WIRE 8.8)."""

import json

from common.pb.bridle.v1 import message_pb2, run_pb2, stop_reason_pb2
from gateway.callbacks import render


def test_a_callback_has_what_the_run_came_to() -> None:
    run = run_pb2.Run(
        id="run-1",
        state=run_pb2.Run.STATE_COMPLETED,
        stop_reason=stop_reason_pb2.STOP_REASON_END_TURN,
        step_count=1,
    )
    run.usage.input_tokens = 3
    run.stop_time.FromJsonString("2026-01-02T03:04:05Z")
    run.metadata.update({"run_type": "send_message_async", "gateway": {"stream_tokens": True}})
    said = [
        message_pb2.Message(id="message-1", role=role, parts=[message_pb2.Part(text=message_pb2.Text(text=text))])
        for role, text in ((message_pb2.Message.ROLE_USER, "hi"), (message_pb2.Message.ROLE_ASSISTANT, "hello"))
    ]
    body = json.loads(render(run, said))
    assert (body["run_id"], body["status"], body["completed_at"]) == ("run-1", "completed", "2026-01-02T03:04:05")
    result = body["metadata"].pop("result")
    assert body["metadata"] == {"run_type": "send_message_async"}
    assert [each["content"] for each in result["messages"]] == ["hello"]
    assert result["stop_reason"]["stop_reason"] == "end_turn"
    assert result["usage"]["prompt_tokens"] == 3


def test_a_run_that_waits_is_completed_for_whoever_is_told() -> None:
    run = run_pb2.Run(
        id="run-1",
        state=run_pb2.Run.STATE_AWAITING_APPROVAL,
        stop_reason=stop_reason_pb2.STOP_REASON_REQUIRES_APPROVAL,
    )
    body = json.loads(render(run, []))
    assert (body["status"], body["completed_at"]) == ("completed", None)
    assert body["metadata"]["result"]["stop_reason"]["stop_reason"] == "requires_approval"
