"""services/models/tokens.py: a count that is right without asking anybody, and cheap for a text of any length."""

import pytest

from services.messages.model import Image, Outcome, Reasoning, Role, Text, ToolCall, ToolReturn
from services.models import tokens
from services.models.api import ContextMessage, ModelRequest, ToolSpec
from services.models.usage import at_once


def test_known_counts() -> None:
    assert tokens.count("") == 0
    assert tokens.count("hello world") == 2
    assert tokens.count("<|endoftext|>") > 1  # text, not a control token


def test_a_long_text_is_sampled_to_within_a_percent() -> None:
    line = "The quick brown fox jumps over 12 lazy dogs. "
    once = tokens.count(line * 100) / 100
    assert abs(tokens.count(line * 20_000) / (20_000 * once) - 1) < 0.01


def test_every_kind_of_part_weighs_something() -> None:
    returned = ToolReturn("c1", "look", Outcome.SUCCEEDED, (Text("hello world"), Image(url="https://x/y.png")))
    assert tokens.of_parts([returned]) == 2 + tokens.PER_IMAGE
    assert tokens.of_parts([ToolCall("c1", "look", '{"at": "it"}')]) > 3
    assert tokens.of_parts([Reasoning("hello world")]) == 2
    assert tokens.of_parts([Reasoning(redacted="opaque bytes")]) > 0


def test_a_request_is_the_sum_of_what_is_sent() -> None:
    message = ContextMessage(Role.USER, (Text("hello world"),))
    tool = ToolSpec("look", "Looks.", {"type": "object"})
    request = ModelRequest("m", "hello world", (message, message), (tool,))
    assert tokens.of_request(request) == 2 + 2 * (2 + tokens.PER_MESSAGE) + tokens.of_tool(tool)


def test_a_rough_count_is_about_right() -> None:
    text = "The quick brown fox jumps over the lazy dog, and then it sleeps. " * 20
    assert 0.7 < tokens.rough(text) / tokens.count(text) < 1.4
    assert (tokens.rough(""), tokens.rough("a")) == (0, 1)


def test_who_cannot_wait_counts_roughly_unless_the_tables_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "loaded", lambda: False)
    assert at_once() is tokens.rough
    monkeypatch.undo()
    tokens.load()
    assert at_once() is tokens.count
