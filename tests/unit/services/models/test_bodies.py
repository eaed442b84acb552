"""What each vendor is sent."""

from base64 import b64encode
from typing import Any

import msgspec
import pytest

from services.agents.model import ModelSettings
from services.messages.model import Approve, Decision, Image, Outcome, Part, Reasoning, Role, Text, ToolCall, ToolReturn
from services.models.anthropic_messages import anthropic_body
from services.models.api import ContextMessage, ModelRequest, ToolSpec
from services.models.openai_chat import chat_body
from services.models.openai_responses import responses_body

PNG = Image(data=b"png", media_type="image/png", detail="low")
DATA_URL = f"data:image/png;base64,{b64encode(b'png').decode()}"
SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}}, "additionalProperties": False}
PLACEHOLDER = "[An image was here that this model cannot be shown.]"


def said(role: Role, *parts: Part) -> ContextMessage:
    return ContextMessage(role, parts)


def user(text: str = "hello") -> ContextMessage:
    return said(Role.USER, Text(text))


def tool(*returns: ToolReturn) -> ContextMessage:
    return said(Role.TOOL, *returns)


def ask(*messages: ContextMessage, model: str = "m", tools: int = 0, **options: Any) -> ModelRequest:
    specs = tuple(ToolSpec(f"tool_{number}", "Does it.", {}) for number in range(tools))
    return ModelRequest(model=model, system="Be brief.", messages=messages or (user(),), tools=specs, **options)


def chat(request: ModelRequest, *, own: bool = False) -> Any:
    return _sent(chat_body(request, own=own))


def responses(request: ModelRequest) -> Any:
    return _sent(responses_body(request))


def anthropic(request: ModelRequest) -> Any:
    return _sent(anthropic_body(request))


def _sent(body: dict[str, Any]) -> Any:
    return msgspec.json.decode(msgspec.json.encode(body))


def bare(messages: list[dict[str, Any]]) -> list[Any]:
    """Anthropic's messages without the marks of the cache."""
    for message in messages:
        for block in message["content"]:
            block.pop("cache_control", None)
    return [(message["role"], message["content"]) for message in messages]


def test_the_same_request_gives_the_same_bytes() -> None:
    for build in (chat, responses, anthropic):
        one, other = ask(user(), tools=2), ask(user(), tools=2)
        assert msgspec.json.encode(build(one)) == msgspec.json.encode(build(other))


CALL = ToolCall("call_1", "tool_0", '{"a": 1.50}')
RETURN = ToolReturn("call_1", "tool_0", Outcome.FAILED, (Text("no"),))


def test_a_conversation_with_tools() -> None:
    request = ask(user(), said(Role.ASSISTANT, Text("Let me see. "), CALL), tool(RETURN))
    assert chat(request)["messages"][2:] == [
        {
            "role": "assistant",
            "content": "Let me see. ",
            "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "tool_0", "arguments": '{"a": 1.50}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "no"},
    ]
    assert responses(request)["input"][1:] == [
        {"role": "assistant", "content": "Let me see. "},
        {"type": "function_call", "call_id": "call_1", "name": "tool_0", "arguments": '{"a": 1.50}'},
        {"type": "function_call_output", "call_id": "call_1", "output": "no"},
    ]
    failed = {"type": "tool_result", "tool_use_id": "call_1", "content": [{"type": "text", "text": "no"}]}
    assert bare(anthropic(request)["messages"])[1:] == [
        (
            "assistant",
            [
                {"type": "text", "text": "Let me see."},
                {"type": "tool_use", "id": "call_1", "name": "tool_0", "input": {"a": 1.5}},
            ],
        ),
        ("user", [{**failed, "is_error": True}]),
    ]


def test_a_call_and_its_return_are_never_apart() -> None:
    """A message in between, a decision, a return that is missing and one that belongs to nothing."""
    request = ask(
        user(),
        said(Role.ASSISTANT, CALL, ToolCall("call_2", "tool_1", "{}")),
        said(Role.APPROVAL, Decision("call_1", Approve())),
        user("quick!"),
        tool(RETURN, ToolReturn("call_9", "tool_0", Outcome.SUCCEEDED, (Text("?"),))),
        user("well?"),
    )
    roles = [(message["role"], message.get("tool_call_id")) for message in chat(request)["messages"]]
    assert roles == [
        ("system", None),
        ("user", None),
        ("assistant", None),
        ("tool", "call_1"),
        ("tool", "call_2"),
        ("user", None),
        ("user", None),
    ]
    assert "not recorded" in chat(request)["messages"][4]["content"]
    kinds = [block["type"] for block in anthropic(request)["messages"][2]["content"]]
    assert kinds == ["tool_result", "tool_result", "text", "text"]


def test_the_same_id_in_two_turns_is_two_calls() -> None:
    again = ToolReturn("call_1", "tool_0", Outcome.SUCCEEDED, (Text("yes"),))
    turn = said(Role.ASSISTANT, CALL)
    messages = chat(ask(user(), turn, tool(RETURN), turn, tool(again)))["messages"]
    assert [message["content"] for message in messages if message["role"] == "tool"] == ["no", "yes"]


@pytest.mark.parametrize("arguments", ["", '{"a": ', "[1]", '"x"'])
def test_arguments_that_are_no_object_do_not_spoil_the_next_call(arguments: str) -> None:
    request = ask(user(), said(Role.ASSISTANT, ToolCall("call_1", "tool_0", arguments)), tool(RETURN))
    expected = {"invalid_json": arguments} if arguments else {}
    assert msgspec.json.decode(chat(request)["messages"][2]["tool_calls"][0]["function"]["arguments"]) == expected
    assert anthropic(request)["messages"][1]["content"][0]["input"] == expected


def test_images() -> None:
    request = ask(said(Role.USER, Text("look"), PNG, Image(url="https://example.com/x.png")))
    assert chat(request)["messages"][1]["content"] == [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": DATA_URL, "detail": "low"}},
        {"type": "image_url", "image_url": {"url": "https://example.com/x.png"}},
    ]
    assert responses(request)["input"][0]["content"][1:] == [
        {"type": "input_image", "image_url": DATA_URL, "detail": "low"},
        {"type": "input_image", "image_url": "https://example.com/x.png", "detail": "auto"},
    ]
    assert bare(anthropic(request)["messages"])[0][1][1:] == [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": b64encode(b"png").decode()}},
        {"type": "image", "source": {"type": "url", "url": "https://example.com/x.png"}},
    ]


def test_images_that_tools_return() -> None:
    seen = ToolReturn("call_1", "tool_0", Outcome.SUCCEEDED, (Text("here"), PNG))
    request = ask(user(), said(Role.ASSISTANT, CALL), tool(seen))
    assert chat(request)["messages"][3]["content"] == f"here\n{PLACEHOLDER}"
    assert [part["type"] for part in responses(request)["input"][2]["output"]] == ["input_text", "input_image"]
    assert [part["type"] for part in anthropic(request)["messages"][2]["content"][0]["content"]] == ["text", "image"]


def test_an_image_of_a_kind_nobody_takes_is_named() -> None:
    request = ask(said(Role.USER, Image(data=b"<svg/>", media_type="image/svg+xml")))
    assert chat(request)["messages"][1]["content"] == PLACEHOLDER
    assert responses(request)["input"][0]["content"] == [{"type": "input_text", "text": PLACEHOLDER}]
    assert anthropic(request)["messages"][0]["content"][0]["text"] == PLACEHOLDER


def test_summaries_and_words_of_the_application() -> None:
    request = ask(said(Role.SUMMARY, Text("They met.")), user(), said(Role.SYSTEM, Text("It is late.")))
    summary = "[Summary of the conversation so far]\nThey met."
    assert chat(request)["messages"][1] == {"role": "user", "content": summary}
    assert chat(request)["messages"][3] == {"role": "user", "content": "<system>\nIt is late.\n</system>"}
    assert chat(request, own=True)["messages"][3] == {"role": "system", "content": "It is late."}
    assert responses(request)["input"][2] == {"role": "developer", "content": "It is late."}
    texts = [block["text"] for block in anthropic(request)["messages"][0]["content"]]
    assert texts == [summary, "hello", "<system>\nIt is late.\n</system>"]


@pytest.mark.parametrize(("tools", "named"), [(1, True), (2, False)])
def test_forced_calls(tools: int, named: bool) -> None:
    request = ask(tools=tools, forced=True, parallel=False)
    one = {"type": "function", "function": {"name": "tool_0"}}
    assert chat(request)["tool_choice"] == (one if named else "required")
    assert chat(request)["parallel_tool_calls"] is False
    assert responses(request)["tool_choice"] == ({"type": "function", "name": "tool_0"} if named else "required")
    choice: dict[str, Any] = {"type": "tool", "name": "tool_0"} if named else {"type": "any"}
    assert anthropic(request)["tool_choice"] == {**choice, "disable_parallel_tool_use": True}


def test_free_calls() -> None:
    for body in (chat(ask(tools=1)), responses(ask(tools=1)), anthropic(ask(tools=1))):
        assert "tool_choice" not in body
        assert "parallel_tool_calls" not in body
        assert len(body["tools"]) == 1
    assert all("tools" not in build(ask(forced=True)) for build in (chat, responses, anthropic))
    assert anthropic(ask(tools=1))["tools"][0]["input_schema"] == {"type": "object", "properties": {}}


def test_settings_are_passed_on() -> None:
    request = ask(
        model="gpt-5",
        settings=ModelSettings(temperature=0.5, max_output_tokens=7, reasoning_effort="low", response_schema=SCHEMA),
    )
    assert chat(request)["max_tokens"] == chat(request, own=True)["max_completion_tokens"] == 7
    assert chat(request)["reasoning_effort"] == "low"
    format_ = {"name": "answer", "schema": SCHEMA, "strict": True}
    assert chat(request)["response_format"] == {"type": "json_schema", "json_schema": format_}
    body = responses(request)
    assert (body["temperature"], body["max_output_tokens"]) == (0.5, 7)
    assert body["reasoning"] == {"effort": "low", "summary": "auto"}
    assert body["include"] == ["reasoning.encrypted_content"]
    assert body["text"] == {"format": {"type": "json_schema", **format_}}
    assert anthropic(request)["output_config"] == {
        "effort": "low",
        "format": {"type": "json_schema", "schema": SCHEMA},
    }


def test_what_does_not_reason_is_not_asked_to() -> None:
    assert "include" not in responses(ask(model="gpt-4o-mini"))
    assert "reasoning" not in responses(ask(model="gpt-5"))


@pytest.mark.parametrize(
    ("model", "settings", "thinking", "max_tokens"),
    [
        ("claude-sonnet-4-5", ModelSettings(), None, 16_384),
        ("claude-sonnet-4-5", ModelSettings(reasoning_effort="none"), None, 16_384),
        (
            "claude-sonnet-4-5",
            ModelSettings(reasoning_effort="low", max_output_tokens=100, temperature=0.2),
            {"type": "enabled", "budget_tokens": 2_048},
            2_148,
        ),
        (
            "claude-haiku-4-5-20251001",
            ModelSettings(max_reasoning_tokens=10),
            {"type": "enabled", "budget_tokens": 1_024},
            17_408,
        ),
        ("claude-opus-5", ModelSettings(reasoning_effort="none"), {"type": "disabled"}, 16_384),
        (
            "claude-opus-5",
            ModelSettings(reasoning_effort="high", temperature=1.5),
            {"type": "adaptive", "display": "summarized"},
            16_384,
        ),
    ],
)
def test_claude_thinks_as_told(model: str, settings: ModelSettings, thinking: Any, max_tokens: int) -> None:
    body = anthropic(ask(model=model, settings=settings))
    assert body.get("thinking") == thinking
    assert body["max_tokens"] == max_tokens
    assert "temperature" not in body
    assert "thinking" not in anthropic(ask(model=model, settings=settings, forced=True, tools=1))


def test_claude_does_not_start_to_think_in_the_middle_of_a_turn() -> None:
    settings = ModelSettings(reasoning_effort="high")
    plain = ask(user(), said(Role.ASSISTANT, CALL), tool(RETURN), settings=settings)
    assert "thinking" not in anthropic(plain)
    thought = Reasoning("hm", signature="sealed")
    assert "thinking" in anthropic(ask(user(), said(Role.ASSISTANT, thought, CALL), tool(RETURN), settings=settings))


def test_claude_is_told_what_to_cache() -> None:
    body = anthropic(ask(user("one"), said(Role.ASSISTANT, Text("1")), user("two"), said(Role.ASSISTANT, CALL)))
    marked = [
        message["content"][-1].get("text") or message["content"][-1]["type"]
        for message in body["messages"]
        if "cache_control" in message["content"][-1]
    ]
    assert marked == ["two", "tool_result"]
    assert body["system"][0]["cache_control"] == {"type": "ephemeral"}
    nameless = ModelRequest(model="m", system="", messages=(user(),), tools=(ToolSpec("a", "", {}),))
    assert "cache_control" in anthropic(nameless)["tools"][-1]


def test_claude_hears_a_user_first_and_last_and_nothing_blank() -> None:
    request = ask(said(Role.ASSISTANT, Text("I was cut o")), said(Role.ASSISTANT, Text("  ")))
    assert [role for role, _ in bare(anthropic(request)["messages"])] == ["user", "assistant", "user"]
    assert [role for role, _ in bare(anthropic(ask(user("  ")))["messages"])] == ["user"]


def test_ids_of_others_fit_claude() -> None:
    call = ToolCall("functions.add:0", "tool_0", "{}")
    returned = ToolReturn("functions.add:0", "tool_0", Outcome.SUCCEEDED, (Text("3"),))
    messages = anthropic(ask(user(), said(Role.ASSISTANT, call), tool(returned)))["messages"]
    assert messages[1]["content"][0]["id"] == messages[2]["content"][0]["tool_use_id"] == "functions_add_0"


def test_reasoning_that_led_to_nothing_is_left_out() -> None:
    sealed = Reasoning("hm", signature="openai:rs_1", redacted="xyz")
    request = ask(user(), said(Role.ASSISTANT, Text("yes"), sealed))
    assert responses(request)["input"][1:] == [{"role": "assistant", "content": "yes"}]
    only = ask(user(), said(Role.ASSISTANT, Reasoning("hm", signature="sealed")))
    assert len(anthropic(only)["messages"]) == len(chat(only)["messages"]) - 1 == 1
