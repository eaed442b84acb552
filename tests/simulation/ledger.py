"""What the server acknowledged. At the end all of it must be accounted for."""

from collections.abc import Sequence

from msgspec import Struct

from services.messages.model import Decision


class Sent(Struct):
    """An accepted message: the run it started or joined."""

    text: str
    run_id: str
    joined: bool


class CancelAck(Struct):
    """An accepted cancel, and the state the run was in when it was accepted."""

    run_id: str
    state: str


class Answer(Struct):
    """An accepted answer."""

    approval_id: str
    run_id: str
    decisions: Sequence[Decision]
    follow_up: str


class Ledger:
    """Everything that was acknowledged in a schedule."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        # Messages whose acknowledgement was lost: they may be there once, or not at all.
        self.unsure: list[str] = []
        self.cancels: list[CancelAck] = []
        self.answers: list[Answer] = []
        self.run_ids: list[str] = []

    def accept(self, text: str, run_id: str, *, joined: bool) -> None:
        """A message was accepted."""
        self.sent.append(Sent(text, run_id, joined))
        if run_id not in self.run_ids:
            self.run_ids.append(run_id)
