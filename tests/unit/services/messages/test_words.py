"""What a message is found by."""

from services.messages.model import Body, Image, Outcome, Reasoning, Text, ToolCall, ToolReturn
from services.messages.words import search_text, words


def test_what_was_said_and_returned_counts_and_nothing_else() -> None:
    returned = ToolReturn("c", "look", Outcome.SUCCEEDED, (Text("Sunny"), Image(url="https://x/y.png")), ("printed",))
    body = Body((Text("Hello\0"), Reasoning("thought"), ToolCall("c", "look", '{"a": 1}'), returned), name="Ada")
    assert search_text(body) == "hello \nsunny"
    assert search_text(Body(())) == ""


def test_case_is_folded_not_only_lowered() -> None:
    assert search_text(Body((Text("STRASSE Straße"),))) == "strasse strasse"
    assert words(" Straße\tSTRASSE  x ") == ["strasse", "x"]
