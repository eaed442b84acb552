"""Signed as standardwebhooks.com says, so that receivers need no code of ours."""

import base64
import hashlib
import hmac
from collections.abc import Mapping
from datetime import datetime

_PREFIX = "whsec_"


def secret_of(key: bytes) -> str:
    """A key in the form that receivers' libraries take."""
    return _PREFIX + base64.b64encode(key).decode()


def headers(secret: str, message_id: str, moment: datetime, body: bytes) -> Mapping[str, str]:
    """What proves that a body is ours, and when it was sent."""
    stamp = str(int(moment.timestamp()))
    signed = b".".join((message_id.encode(), stamp.encode(), body))
    digest = hmac.new(base64.b64decode(secret.removeprefix(_PREFIX)), signed, hashlib.sha256).digest()
    return {
        "webhook-id": message_id,
        "webhook-timestamp": stamp,
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }
