"""The demo model does what it is told."""

import asyncio

import pytest

from services.messages.model import Outcome, Part, Reasoning, Role, Text, ToolCall, ToolReturn
from services.models.api import ContextMessage, Finish, Finished, ModelEvent, ModelRequest, TextChunk, ToolSpec
from services.models.demo import DemoProvider
from services.models.errors import ModelError, ModelErrorType
from services.models.fold import TurnFold


def user(text: str) -> ContextMessage:
    return ContextMessage(Role.USER, (Text(text),))


def returned(name: str, text: str) -> ContextMessage:
    return ContextMessage(Role.TOOL, (ToolReturn("c", name, Outcome.SUCCEEDED, (Text(text),)),))


def request(*messages: ContextMessage, model: str = "echo", forced: bool = False) -> ModelRequest:
    tools = (ToolSpec("a", "", {}), ToolSpec("b", "", {}))
    return ModelRequest(model=model, system="s", messages=messages, tools=tools, forced=forced)


async def play(asked: ModelRequest) -> tuple[list[ModelEvent], tuple[Part, ...]]:
    fold, events = TurnFold("message-1"), []
    async for event in DemoProvider().stream(asked):
        fold.add(event)
        events.append(event)
    return events, fold.parts()


async def test_it_echoes_word_by_word() -> None:
    events, parts = await play(request(user("hello big world")))
    assert parts == (Text("You said: hello big world"),)
    assert len([event for event in events if isinstance(event, TextChunk)]) == 5
    assert isinstance(events[-1], Finished)
    assert events[-1].finish is Finish.STOP
    assert events[-1].usage is not None
    assert not events[-1].usage.estimated


async def test_it_counts() -> None:
    events, _ = await play(request(user("count to 12")))
    assert [event.text for event in events if isinstance(event, TextChunk)] == [f"{n} " for n in range(1, 13)]


async def test_it_calls_tools_side_by_side_and_one_after_the_other() -> None:
    script = user('call a {"x": "1 and 2"} and call b then call b {"y": 2}')
    events, parts = await play(request(script))
    assert [(p.name, p.arguments) for p in parts if isinstance(p, ToolCall)] == [("a", '{"x": "1 and 2"}'), ("b", "{}")]
    assert isinstance(events[-1], Finished)
    assert events[-1].finish is Finish.TOOL_CALLS
    _, parts = await play(request(script, returned("a", "1")))
    assert [(p.name, p.arguments) for p in parts if isinstance(p, ToolCall)] == [("b", '{"y": 2}')]
    _, parts = await play(request(script, returned("a", "1"), returned("b", "2")))
    assert parts == (Text("b returned 2"),)


async def test_a_forced_call_is_made() -> None:
    _, parts = await play(request(user("hi"), forced=True))
    assert [p.name for p in parts if isinstance(p, ToolCall)] == ["a"]


async def test_a_nudge_is_obeyed() -> None:
    nudge = user("ToolRuleViolated: You must call b at least once to exit the loop.")
    _, parts = await play(request(user("hi"), nudge))
    assert [p.name for p in parts if isinstance(p, ToolCall)] == ["b"]


@pytest.mark.parametrize(
    ("text", "kind"),
    [("fail llm_rate_limit", ModelErrorType.RATE_LIMIT), ("fail llm_whatever", ModelErrorType.ERROR)],
)
async def test_it_fails_when_told_to(text: str, kind: ModelErrorType) -> None:
    with pytest.raises(ModelError) as caught:
        await play(request(user(text)))
    assert caught.value.kind is kind


async def test_the_silent_model_never_answers() -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(play(request(user("hi"), model="silent")), 0.02)


async def test_it_thinks_and_speaks_before_it_calls() -> None:
    _, parts = await play(request(user("think of it and say one moment and call a then say so")))
    assert parts[:2] == (Reasoning("of it"), Text("one moment"))
    assert [part.name for part in parts[2:] if isinstance(part, ToolCall)] == ["a"]
    _, parts = await play(request(user("think of it and call a then say so"), returned("a", "1")))
    assert parts == (Text("so"),)


async def test_it_fails_in_a_later_turn() -> None:
    asked = request(user("call a then fail llm_rate_limit"), returned("a", "1"))
    with pytest.raises(ModelError) as failed:
        await play(asked)
    assert failed.value.kind is ModelErrorType.RATE_LIMIT


async def test_a_text_with_and_and_then_in_it_is_just_a_text() -> None:
    _, parts = await play(request(user("salt and pepper then sugar")))
    assert parts == (Text("You said: salt and pepper then sugar"),)
