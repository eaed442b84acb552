"""What a callback says: the body that Letta's server posted when a run stopped."""

from collections.abc import Sequence
from datetime import UTC
from typing import Any

import msgspec
from google.protobuf.json_format import MessageToDict

from common.pb.bridle.v1 import message_pb2, run_pb2

_State = run_pb2.Run.State
# A run that waits for a person counts as completed: whoever is told has something to do.
_STATUS = {
    _State.STATE_COMPLETED: "completed",
    _State.STATE_AWAITING_APPROVAL: "completed",
    _State.STATE_FAILED: "failed",
    _State.STATE_CANCELLED: "cancelled",
}


def render(run: run_pb2.Run, messages: Sequence[message_pb2.Message]) -> bytes:
    """The body of one callback."""
    stopped = run.stop_time.ToDatetime(UTC) if run.HasField("stop_time") else None
    body: dict[str, Any] = {
        "run_id": run.id,
        "status": _STATUS[run.state],
        "completed_at": stopped.isoformat() if stopped else None,
        "metadata": MessageToDict(run.metadata),
    }
    return msgspec.json.encode(body)
