"""How events look when they are read."""

import io

from common.pb.bridle.v1 import message_pb2, run_event_pb2, run_pb2, stop_reason_pb2
from services.chat.render import EventView
from services.chat.screen import Screen

Event = run_event_pb2.RunEvent


def shown(*events: Event) -> tuple[str, str]:
    """What a file would hold, and what stderr would."""
    out, err = io.StringIO(), io.StringIO()
    view = EventView(Screen(out, err))
    for event in events:
        view.show(event)
    return out.getvalue(), err.getvalue()


def text(message_id: str, piece: str, part: int = 0) -> Event:
    return Event(text_delta=run_event_pb2.TextDelta(message_id=message_id, part=part, text=piece))


def reasoning(message_id: str, piece: str) -> Event:
    return Event(reasoning_delta=run_event_pb2.ReasoningDelta(message_id=message_id, part=0, text=piece))


def added(message_id: str, *parts: message_pb2.Part, role: int = message_pb2.Message.ROLE_ASSISTANT) -> Event:
    message = message_pb2.Message(id=message_id, parts=parts)
    message.role = role  # type: ignore[assignment]
    return Event(message_added=run_event_pb2.MessageAdded(message=message))


def text_part(whole: str) -> message_pb2.Part:
    return message_pb2.Part(text=message_pb2.Text(text=whole))


def stopped(run: run_pb2.Run) -> Event:
    return Event(run_stopped=run_event_pb2.RunStopped(run=run))


DONE = stopped(run_pb2.Run(state=run_pb2.Run.STATE_COMPLETED, stop_reason=stop_reason_pb2.STOP_REASON_END_TURN))


def test_deltas_are_shown_and_the_whole_message_not_again() -> None:
    events = [text("m", "Hello"), text("m", ", you"), added("m", text_part("Hello, you")), DONE]
    assert shown(*events) == ("Hello, you\n", "")


def test_a_message_without_deltas_is_shown_whole() -> None:
    assert shown(added("m", text_part("Hello")), DONE)[0] == "Hello\n"


def test_what_the_deltas_left_out_is_added() -> None:
    assert shown(text("m", "Hel"), added("m", text_part("Hello")), DONE)[0] == "Hello\n"


def test_what_the_deltas_got_wrong_is_said_again() -> None:
    assert shown(text("m", "Hullo"), added("m", text_part("Hello")), DONE)[0] == "Hullo\nHello\n"


def test_reasoning_and_text_have_lines_of_their_own() -> None:
    assert (
        shown(reasoning("m", "Hm, "), reasoning("m", "yes."), text("m", "Yes.", part=1), DONE)[0] == "Hm, yes.\nYes.\n"
    )


def test_the_users_own_words_are_not_repeated() -> None:
    assert shown(added("m", text_part("Hi"), role=message_pb2.Message.ROLE_USER), DONE) == ("", "")


def test_a_tool_call_and_its_return() -> None:
    call = message_pb2.Part(tool_call=message_pb2.ToolCall(id="c", name="roll_dice", arguments='{"sides": 6}'))
    result = message_pb2.ToolReturn(
        tool_call_id="c",
        tool_name="roll_dice",
        outcome=message_pb2.ToolReturn.OUTCOME_SUCCEEDED,
        content=[text_part("4")],
    )
    finished = Event(tool_finished=run_event_pb2.ToolFinished(result=result))
    out, _ = shown(text("m", "I roll."), added("m", text_part("I roll."), call), finished, text("n", "A 4!"), DONE)
    assert out == 'I roll.\n* call roll_dice {"sides": 6}\n* roll_dice returned 4\nA 4!\n'


def test_a_long_return_is_cut() -> None:
    result = message_pb2.ToolReturn(
        tool_name="read", outcome=message_pb2.ToolReturn.OUTCOME_FAILED, content=[text_part("x" * 10_000)]
    )
    out, _ = shown(Event(tool_finished=run_event_pb2.ToolFinished(result=result)))
    assert out.startswith("* read failed: xxx")
    assert out.endswith("... (10000 characters)\n")
    assert len(out) < 2100


def test_escape_codes_of_a_tool_are_not_obeyed() -> None:
    result = message_pb2.ToolReturn(
        tool_name="t", outcome=message_pb2.ToolReturn.OUTCOME_SUCCEEDED, content=[text_part("\x1b[2Jboo")]
    )
    out, _ = shown(Event(tool_finished=run_event_pb2.ToolFinished(result=result)), text("m", "\x1b]0;boo\x07"))
    assert "\x1b" not in out


def test_a_failed_run_says_why() -> None:
    run = run_pb2.Run(state=run_pb2.Run.STATE_FAILED, error=run_pb2.RunError(type="llm_error", message="it broke"))
    assert shown(text("m", "Hel"), stopped(run)) == ("Hel\n", "bridle: the run failed: it broke\n")


def test_a_cancelled_run_says_so() -> None:
    run = run_pb2.Run(state=run_pb2.Run.STATE_CANCELLED)
    assert shown(text("m", "Hel"), added("m", text_part("Hel")), stopped(run)) == ("Hel\n", "(cancelled)\n")


def test_after_a_restart_the_step_is_shown_anew() -> None:
    out, err = shown(text("m", "Hel"), Event(restarted=run_event_pb2.Restarted()), text("n", "Hello"), DONE)
    assert out == "Hel\nHello\n"
    assert "repeats the last step" in err


def test_an_event_from_the_future_is_ignored() -> None:
    assert shown(Event(seq=1)) == ("", "")


def test_history() -> None:
    out = io.StringIO()
    question = message_pb2.Message(role=message_pb2.Message.ROLE_USER, parts=[text_part("Roll!")])
    call = message_pb2.Part(tool_call=message_pb2.ToolCall(name="roll_dice", arguments="{}"))
    answer = message_pb2.Message(role=message_pb2.Message.ROLE_ASSISTANT, parts=[call, text_part("A 4.")])
    EventView(Screen(out, io.StringIO())).history([question, answer])
    assert out.getvalue() == "you: Roll!\n* call roll_dice {}\nagent: A 4.\n"
