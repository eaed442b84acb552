"""What a trace shows and what it does not."""

from base64 import b64encode
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.messages.model import Image, Part, Role, Text
from services.models.api import ContextMessage, ModelRequest
from services.models.trace import Call, fitted, redacted, shown
from services.models.watching import CallWatch
from services.runs.model import RunError, Usage

PICTURE = b64encode(b"x" * 3_000).decode()
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=200),
    lambda inner: st.lists(inner, max_size=30) | st.dictionaries(st.text(max_size=20), inner, max_size=8),
    max_leaves=60,
)


def made(
    body: Any = None,
    answer: bytes = b"",
    *,
    turn: tuple[Part, ...] = (),
    secret: str = "",
    keep: int = 100_000,
    error: RunError | None = None,
    request: ModelRequest | None = None,
) -> Call:
    watch = CallWatch(keep)
    if body is not None:
        watch.sent(msgspec.json.encode(body), secret)
        watch.received(answer)
    return Call(watch, request, turn, Usage(input_tokens=3), error.type if error else "ok", error)


def trace(call: Call, *secrets: str, most: int = 100_000) -> tuple[Any, Any]:
    request, response = shown(call, secrets, most)
    return msgspec.json.decode(request), msgspec.json.decode(response)


def test_the_exact_body_and_the_provider_s_own_events() -> None:
    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "ü"}]}
    request, response = trace(made(body, b'data: {"a":1}\n\ndata: [DONE]\n\n', turn=(Text("hi"),)))
    assert request == body
    assert response == {
        "outcome": "ok",
        "attempts": 1,
        "usage": {"input_tokens": 3},
        "turn": [{"type": "text", "text": "hi"}],
        "events": [{"a": 1}, "[DONE]"],
    }


def test_only_the_last_attempt_counts() -> None:
    call = made({"n": 1}, b'{"error": "busy"}')
    call.watch.sent(b'{"n": 2}', "")
    call.watch.received(b"data: 1\n\n")
    request, response = trace(call)
    assert (request, response["attempts"], response["events"]) == ({"n": 2}, 2, [1])


def test_a_refusal_is_shown_as_it_came() -> None:
    error = RunError("llm_rate_limit", "Slow down.", "429")
    _, response = trace(made({}, b"<html>429</html>", error=error))
    assert response["outcome"] == "llm_rate_limit"
    assert response["error"] == {"type": "llm_rate_limit", "message": "Slow down.", "detail": "429"}
    assert response["events"] == ["<html>429</html>"]


@pytest.mark.parametrize(
    ("value", "clean"),
    [
        (f"data:image/png;base64,{PICTURE}", "[image/png: 3,000 bytes]"),
        (
            {"type": "base64", "media_type": "image/jpeg", "data": PICTURE},
            {"type": "base64", "media_type": "image/jpeg", "data": "[image/jpeg: 3,000 bytes]"},
        ),
        ({"Authorization": "Bearer abc", "x-api-key": "k"}, {"Authorization": "***", "x-api-key": "***"}),
        ({"a": ["the hunter2!", 1, None]}, {"a": ["the ***!", 1, None]}),
        ({"hunter2": 1}, {"***": 1}),
        # A tool's schema may speak of keys.
        ({"api_key": {"type": "string"}}, {"api_key": {"type": "string"}}),
        ({"type": "redacted_thinking", "data": "sealed"}, {"type": "redacted_thinking", "data": "sealed"}),
    ],
)
def test_what_is_not_shown(value: Any, clean: Any) -> None:
    assert redacted(value, ("hunter2",)) == clean


def test_secrets_are_hidden_in_every_spelling() -> None:
    secret = 'two\nlines "quoted"'
    arguments = msgspec.json.encode({"password": secret}).decode()
    request, _ = trace(made({"said": f"it is {secret}.", "arguments": arguments}), secret)
    assert request == {"said": "it is ***.", "arguments": '{"password":"***"}'}


def test_the_provider_s_key_is_hidden_and_a_placeholder_is_not() -> None:
    _, response = trace(made({}, b'{"error":"I do not like sk-12345678"}', secret="sk-12345678"))
    assert response["events"] == [{"error": "I do not like ***"}]
    _, response = trace(made({}, b'{"error":"none of them"}', secret="none"))
    assert response["events"] == [{"error": "none of them"}]


def test_a_secret_that_is_spread_over_events_hides_them() -> None:
    call = made({}, b'data: "hun"\n\ndata: "ter2"\n\n', turn=(Text("It is hunter2."),))
    _, response = trace(call, "hunter2")
    assert response["turn"] == [{"type": "text", "text": "It is ***."}]
    assert response["events"] == "[cut: a secret was spread over them]"


def test_a_model_that_is_built_in_is_shown_by_its_request() -> None:
    messages = (ContextMessage(Role.USER, (Text("look"), Image(data=b"x" * 3_000, media_type="image/png"))),)
    request, response = trace(made(request=ModelRequest("echo", "Be brief.", messages), turn=(Text("ok"),)))
    assert (request["model"], request["system"]) == ("echo", "Be brief.")
    assert request["messages"][0]["parts"][1]["data"] == "[image/png: 3,000 bytes]"
    assert "events" not in response
    assert trace(made())[0] is None


def test_a_long_stream_says_what_is_missing() -> None:
    event = b'data: {"text":"' + b"x" * 100 + b'"}\n\n'
    _, response = trace(made({}, event * 100, keep=1_000))
    assert response["events"][-1] == f"[cut: {len(event) * 100 - 1_000:,} more bytes]"


def test_long_values_are_cut_where_they_are() -> None:
    text = fitted({"long": "x" * 10_000, "short": "y", "many": list(range(1_000))}, 2_000)
    value = msgspec.json.decode(text)
    assert len(text) <= 2_000
    assert value["short"] == "y"
    assert value["long"].startswith("xxx")
    assert value["long"].endswith(" more characters]")
    assert value["many"][0] == 0
    assert value["many"][-1] == 999
    assert any(isinstance(each, str) and each.endswith(" elements]") for each in value["many"])


def test_what_cannot_be_cut_is_replaced() -> None:
    assert fitted({f"key {number}": number for number in range(1_000)}, 1_024) == '{"cut":"13,781 bytes"}'


@given(JSON, st.integers(1_024, 4_096))
def test_whatever_it_is_it_fits_and_is_json(value: Any, most: int) -> None:
    text = fitted(value, most)
    assert len(text.encode()) <= most
    decoded = msgspec.json.decode(text)
    if len(msgspec.json.encode(value)) <= most:
        assert decoded == value
