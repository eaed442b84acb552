"""What makes two requests with one `request_id` the same request."""

from google.protobuf.message import Message

from common.db import idempotency


def fingerprint(request: Message) -> str:
    """What tells this request's content from another's with the same request id."""
    content = type(request)()
    content.CopyFrom(request)
    content.ClearField("request_id")
    return idempotency.fingerprint(content.SerializeToString(deterministic=True))
