"""Without a script, the conversation decides, whichever API it comes by."""

import json
from typing import Any

import pytest

from services.fakellm.asked import BadRequestError, read
from services.fakellm.prompts import obey
from services.fakellm.scripts import Answer, Api, Call, Failure, Say, Script
from services.fakellm.strokes import text_of

TOOL: dict[Api, Any] = {
    Api.CHAT: {"type": "function", "function": {"name": "a", "parameters": {}}},
    Api.RESPONSES: {"type": "function", "name": "a", "parameters": {}},
    Api.MESSAGES: {"name": "a", "input_schema": {}},
}


def told(api: Api, history: list[Any], **fields: Any) -> Script:
    """The script for a conversation."""
    key = "input" if api is Api.RESPONSES else "messages"
    limit = {"max_tokens": 9} if api is Api.MESSAGES else {}
    return obey(read(api, json.dumps({"model": "m", key: history, **limit, **fields}).encode()))


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def called(api: Api, *calls: tuple[str, str]) -> list[Any]:
    """Calls `(id, name)` and what they returned, in the words of the API."""
    if api is Api.CHAT:
        functions = [{"id": i, "type": "function", "function": {"name": n, "arguments": "{}"}} for i, n in calls]
        returns = [{"role": "tool", "tool_call_id": i, "content": f"{n} ran"} for i, n in calls]
        return [{"role": "assistant", "content": None, "tool_calls": functions}, *returns]
    if api is Api.RESPONSES:
        items = [{"type": "function_call", "call_id": i, "name": n, "arguments": "{}"} for i, n in calls]
        outputs = [{"type": "function_call_output", "call_id": i, "output": f"{n} ran"} for i, n in calls]
        return [{"type": "reasoning", "id": "r", "summary": []}, *items, *outputs]
    uses = [{"type": "tool_use", "id": i, "name": n, "input": {}} for i, n in calls]
    results = [
        {"type": "tool_result", "tool_use_id": i, "content": [{"type": "text", "text": f"{n} ran"}]} for i, n in calls
    ]
    return [{"role": "assistant", "content": uses}, {"role": "user", "content": results}]


def names(script: Script) -> list[str]:
    assert isinstance(script, Answer)
    return [part.name for part in script.parts if isinstance(part, Call)]


def spoken(script: Script) -> str:
    assert isinstance(script, Answer)
    return "".join(text_of(part) for part in script.parts)


def test_it_echoes(api: Api) -> None:
    assert spoken(told(api, [user("hello  there")])) == "You said: hello  there"


def test_content_in_blocks(api: Api) -> None:
    kind = "input_text" if api is Api.RESPONSES else "text"
    image = {"type": "image", "source": {}}
    assert spoken(told(api, [user("x") | {"content": [image, {"type": kind, "text": "hi"}]}])) == "You said: hi"


def test_it_counts(api: Api) -> None:
    assert told(api, [user("count to 12")]) == Answer(parts=(Say(tokens=12),))


def test_calls_turn_by_turn(api: Api) -> None:
    history = [user('call a {"x": 1} and call b then call c')]
    first = told(api, history)
    assert names(first) == ["a", "b"]
    assert isinstance(first, Answer)
    assert first.parts[0] == Call("a", '{"x": 1}')
    history += called(api, ("1", "a"), ("2", "b"))
    assert names(told(api, history)) == ["c"]
    history += called(api, ("3", "c"))
    assert spoken(told(api, history)) == "c returned c ran"
    history += [user("thanks")]
    assert spoken(told(api, history)) == "You said: thanks"


def test_all_returns_of_a_turn_are_told(api: Api) -> None:
    history = [user("call a and call b"), *called(api, ("1", "a"), ("2", "b"))]
    assert spoken(told(api, history)) == "a returned a ran; b returned b ran"


@pytest.mark.parametrize(
    ("api", "choice"),
    [
        (Api.CHAT, "required"),
        (Api.CHAT, {"type": "function", "function": {"name": "a"}}),
        (Api.RESPONSES, "required"),
        (Api.RESPONSES, {"type": "function", "name": "a"}),
        (Api.MESSAGES, {"type": "any"}),
        (Api.MESSAGES, {"type": "tool", "name": "a"}),
    ],
)
def test_a_forced_call_is_made(api: Api, choice: Any) -> None:
    assert names(told(api, [user("hi")], tools=[TOOL[api]], tool_choice=choice)) == ["a"]


def test_a_call_that_may_be_made_is_not(api: Api) -> None:
    choice: Any = {"type": "auto"} if api is Api.MESSAGES else "auto"
    assert names(told(api, [user("hi")], tools=[TOOL[api]], tool_choice=choice)) == []


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("llm_timeout", Failure(408)),
        ("llm_rate_limit", Failure(429)),
        ("llm_authentication", Failure(401)),
        ("llm_bad_request", Failure(400)),
        ("llm_insufficient_credits", Failure(429, kind="quota")),
        ("context_window_exceeded", Failure(400, kind="overflow")),
        ("llm_empty_response", Answer()),
        ("llm_whatever", Failure(500)),
    ],
)
def test_it_fails_when_told_to(api: Api, kind: str, expected: Script) -> None:
    assert told(api, [user(f"fail {kind}")]) == expected


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"model": "m"}', b'{"model": 1, "messages": [], "input": []}'])
def test_what_is_no_request(api: Api, body: bytes) -> None:
    with pytest.raises(BadRequestError):
        read(api, body)
