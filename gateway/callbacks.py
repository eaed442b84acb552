"""What a callback says: the body that Letta's server posted when a run stopped."""

from collections.abc import Sequence
from datetime import UTC
from typing import Any, Final

import msgspec

from common.pb.bridle.v1 import message_pb2, run_pb2
from gateway.messages import ending, stored
from gateway.messages.model import LettaResponse, StopReason
from gateway.runs.model import run_object

_SAID_TO_IT: Final = (message_pb2.Message.ROLE_USER, message_pb2.Message.ROLE_SYSTEM, message_pb2.Message.ROLE_APPROVAL)


def render(run: run_pb2.Run, messages: Sequence[message_pb2.Message]) -> bytes:
    """The body of one callback, with what the run has said."""
    shown = run_object(run)
    said = stored.of_many(message for message in messages if message.role not in _SAID_TO_IT)
    reason = StopReason(shown.stop_reason or "error")
    body: dict[str, Any] = {
        "run_id": run.id,
        "status": shown.status,
        # Without a zone, as receivers of the wire read it; it is UTC.
        "completed_at": run.stop_time.ToDatetime(UTC).replace(tzinfo=None).isoformat()
        if run.HasField("stop_time")
        else None,
        "metadata": {**shown.metadata, "result": LettaResponse(said, reason, ending.usage(run))},
    }
    return msgspec.json.encode(body)
