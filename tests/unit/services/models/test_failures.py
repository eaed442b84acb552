"""Every vendor's words for the same trouble."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from services.models.errors import ModelErrorType
from services.models.failures import Complaint, complaint, quotable, refusal

OVERFLOWS = [
    "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens",
    "Your input exceeds the context window of this model. Please adjust your input and try again.",
    "prompt is too long: 210000 tokens > 200000 maximum",
    "input length and `max_tokens` exceed context limit: 199000 + 8192 > 200000",
    "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
    "the request exceeds the available context size. try increasing the context size or enable context shift",
    "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    "Please reduce the length of the messages or completion.",
    "Input is too long for requested model.",
]


@pytest.mark.parametrize("words", OVERFLOWS)
def test_too_long(words: str) -> None:
    error = refusal(Complaint(400, "invalid_request_error", "", words), {})
    assert (error.kind, error.retryable) == (ModelErrorType.CONTEXT_WINDOW_EXCEEDED, False)


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (Complaint(429, "insufficient_quota", "insufficient_quota", "..."), ModelErrorType.INSUFFICIENT_CREDITS),
        (Complaint(400, "", "", "Your credit balance is too low"), ModelErrorType.INSUFFICIENT_CREDITS),
        (Complaint(402), ModelErrorType.INSUFFICIENT_CREDITS),
        (Complaint(413, "", "rate_limit_exceeded", "..."), ModelErrorType.RATE_LIMIT),
        (Complaint(409), ModelErrorType.ERROR),
        (Complaint(422, message="temperature: not permitted"), ModelErrorType.BAD_REQUEST),
        (Complaint(504), ModelErrorType.TIMEOUT),
        (Complaint(0, message="?"), ModelErrorType.ERROR),
    ],
)
def test_kinds(said: Complaint, kind: ModelErrorType) -> None:
    assert refusal(said, {}).kind is kind


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"error":{"type":"t","code":"c","message":"m"}}', Complaint(400, "t", "c", "m")),
        (b'{"type":"error","error":{"type":"t","message":"m"}}', Complaint(400, "t", "", "m")),
        (b'{"object":"error","message":"m","type":"t","code":400}', Complaint(400, "t", "400", "m")),
        (b'{"error":"m"}', Complaint(400, message="m")),
        (b'{"detail":"m"}', Complaint(400, message="m")),
        (b"[1]", Complaint(400, message="[1]")),
        (b"<html>\xff</html>", Complaint(400, message="<html>\ufffd</html>")),
        (b"", Complaint(400)),
    ],
)
def test_bodies(body: bytes, expected: Complaint) -> None:
    assert complaint(body, 400) == expected


def test_waits() -> None:
    busy = Complaint(429)
    assert refusal(busy, {"retry-after": "3"}).retry_after == 3.0
    assert refusal(busy, {"retry-after": "3", "retry-after-ms": "250"}).retry_after == 0.25
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True)
    assert 90 < (refusal(busy, {"retry-after": soon}).retry_after or 0) <= 100
    assert refusal(busy, {"retry-after": "later"}).retry_after is None
    assert not refusal(busy, {"x-should-retry": "false"}).retryable
    assert not refusal(Complaint(429, message="Request too large for gpt-4o on tokens per min"), {}).retryable


def test_a_detail_is_short_and_keeps_secrets() -> None:
    assert quotable("the key sk-123456 and none", "sk-123456") == "the key *** and none"
    assert quotable("none of it", "none") == "none of it"
    assert len(quotable("x" * 10_000, "")) == 2_000
