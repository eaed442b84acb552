"""Folding a provider's events into a turn."""

from services.messages.model import Reasoning, Text, ToolCall
from services.models.api import CallArguments, CallStarted, Finish, Finished, ReasoningChunk, TextChunk
from services.models.fold import TurnFold
from services.runs.events import ReasoningDelta, TextDelta, ToolCallDelta
from services.runs.model import Usage


def test_chunks_of_one_kind_are_one_part() -> None:
    fold = TurnFold("m")
    shown = [fold.add(event) for event in (ReasoningChunk("th"), ReasoningChunk("ink"), TextChunk("a"), TextChunk("b"))]
    assert fold.parts() == (Reasoning("think"), Text("ab"))
    assert shown == [
        ReasoningDelta("m", 0, "th"),
        ReasoningDelta("m", 0, "ink"),
        TextDelta("m", 1, "a"),
        TextDelta("m", 1, "b"),
    ]


def test_calls_are_told_apart_by_their_index_however_they_are_mixed() -> None:
    fold = TurnFold("m")
    for event in (
        CallStarted(0, "c0", "a"),
        CallStarted(1, "c1", "b"),
        CallArguments(1, '{"y"'),
        CallArguments(0, '{"x"'),
        CallArguments(1, ":2}"),
        CallArguments(0, ":1}"),
    ):
        fold.add(event)
    assert fold.parts() == (ToolCall("c0", "a", '{"x":1}'), ToolCall("c1", "b", '{"y":2}'))


def test_every_delta_of_a_call_names_it() -> None:
    fold = TurnFold("m")
    fold.add(CallStarted(0, "c0", "a"))
    assert fold.add(CallArguments(0, "{}")) == ToolCallDelta("m", 0, "c0", "a", "{}")


def test_of_a_turn_that_was_cut_only_the_text_is_kept() -> None:
    fold = TurnFold("m")
    for event in (ReasoningChunk("hm"), TextChunk("I will"), CallStarted(0, "c0", "a"), CallArguments(0, '{"x')):
        fold.add(event)
    assert fold.shown_text() == (Text("I will"),)


def test_signatures_and_the_end_are_not_shown() -> None:
    fold = TurnFold("m")
    assert fold.add(ReasoningChunk(signature="sig")) is None
    assert fold.add(Finished(Finish.STOP, Usage(output_tokens=3))) is None
    assert fold.parts() == (Reasoning(signature="sig"),)
    assert (fold.finish, fold.usage) == (Finish.STOP, Usage(output_tokens=3))
