"""What a person (or a pipe) is asked, and how the answers are read."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, TextIO

from common.pb.bridle.v1 import message_pb2

if TYPE_CHECKING:
    from common.pb.bridle.v1 import approval_pb2
    from services.chat.screen import Screen

with contextlib.suppress(ImportError):
    # Gives `input` line editing and history, where Python was built with it.
    import readline  # noqa: F401

_APPROVE = frozenset({"a", "approve", "y", "yes"})
_DENY = frozenset({"d", "deny", "n", "no"})
_RESULT = frozenset({"r", "result"})


class Keyboard:
    """Where lines come from: a person in front of a terminal (interactive), or a pipe."""

    def __init__(self, stdin: TextIO, screen: Screen, *, interactive: bool) -> None:
        self._stdin = stdin
        self._screen = screen
        self.interactive = interactive

    def line(self, prompt: str) -> str:
        """The next line without its end; EOFError when there are no more."""
        self._screen.end_line()
        if not self.interactive:
            if self._stdin.isatty():
                # A person types, and what is said goes to a file or a pipe: the prompt must not.
                self._screen.prompt(prompt)
            text = self._stdin.readline()
            if not text:
                raise EOFError
            return text.rstrip("\r\n")
        self._screen.typed(ended=False)
        text = input(prompt)
        self._screen.typed(ended=True)
        return text


def show_calls(approval: approval_pb2.Approval, screen: Screen) -> None:
    """Say what is waiting, with the arguments exactly as they would be used."""
    screen.line("Waiting for your answer:", "bold")
    for each in approval.calls:
        screen.line(f"  {each.call.name} {each.call.arguments}")


def ask(approval: approval_pb2.Approval, keyboard: Keyboard, screen: Screen) -> list[message_pb2.Decision]:
    """One decision for each call; EOFError if there is nobody to ask."""
    return [_ask_one(each, keyboard, screen) for each in approval.calls]


def decide(call: approval_pb2.ApprovalCall, answer: str) -> message_pb2.Decision | None:
    """What an answer like `a`, `d too risky` or `r 42` means for a call; None if it means nothing."""
    word, _, rest = answer.strip().partition(" ")
    decision = message_pb2.Decision(tool_call_id=call.call.id)
    if word.lower() in _DENY:
        decision.deny.reason = rest.strip()
        # An empty reason must not leave the verdict unset.
        decision.deny.SetInParent()
    elif word.lower() in _RESULT and call.client_side:
        content = message_pb2.Part(text=message_pb2.Text(text=rest.strip()))
        result = message_pb2.ToolReturn(
            tool_call_id=call.call.id, outcome=message_pb2.ToolReturn.OUTCOME_SUCCEEDED, content=[content]
        )
        decision.result.CopyFrom(result)
    elif word.lower() in _APPROVE and not call.client_side:
        decision.approve.SetInParent()
    else:
        return None
    return decision


def _ask_one(call: approval_pb2.ApprovalCall, keyboard: Keyboard, screen: Screen) -> message_pb2.Decision:
    choices = "[r]esult TEXT or [d]eny REASON" if call.client_side else "[a]pprove or [d]eny REASON"
    while True:
        answer = keyboard.line(f"{call.call.name}: {choices}? ").strip()
        if keyboard.interactive and answer.lower() in _DENY:
            answer = f"{answer} {keyboard.line('why? (Enter for no reason) ')}"
        elif keyboard.interactive and call.client_side and answer.lower() in _RESULT:
            answer = f"{answer} {keyboard.line('what did it return? ')}"
        decision = decide(call, answer)
        if decision is not None:
            return decision
        screen.note(f"please answer {choices}")
