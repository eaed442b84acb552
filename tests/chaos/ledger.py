"""What the clients did and were told: the other half of the accounts."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

from common.pb.bridle.v1.run_pb2 import Run

FINAL = (Run.STATE_COMPLETED, Run.STATE_FAILED, Run.STATE_CANCELLED)


class Reply(StrEnum):
    """How a request ended. OPEN: nobody knows, it may have been carried out or not."""

    OPEN = "open"
    ACCEPTED = "accepted"
    REFUSED = "refused"


@dataclass
class Said:
    """A message to an agent."""

    text: str
    agent_id: str
    reply: Reply = Reply.OPEN
    run_id: str = ""
    joined: bool = False


@dataclass
class Answer:
    """An answer to an approval; the verdict by call id, True for approve."""

    verdicts: dict[str, bool]
    follow_up: str = ""
    reply: Reply = Reply.OPEN


@dataclass
class Cancel:
    """A cancel of a run; the state that came back with the acknowledgement."""

    reply: Reply = Reply.OPEN
    state: int = Run.STATE_UNSPECIFIED


@dataclass
class Ledger:
    """Everything written down by all clients, and who waits to hear of it."""

    said: dict[str, Said] = field(default_factory=dict)
    answers: dict[str, Answer] = field(default_factory=dict)
    cancels: dict[str, Cancel] = field(default_factory=dict)
    # The first final state that anybody was shown: from then on it may never be another.
    final: dict[str, tuple[int, int]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    _listeners: dict[str, list[asyncio.Event]] = field(default_factory=dict)

    def note(self, what: str) -> None:
        """Something happened; whoever waits for it is told."""
        self.counts[what] += 1
        for event in self._listeners.pop(what, ()):
            event.set()

    async def next(self, what: str) -> None:
        """Until it happens once more."""
        event = asyncio.Event()
        self._listeners.setdefault(what, []).append(event)
        await event.wait()

    def violation(self, text: str) -> None:
        """A promise was broken."""
        self.violations.append(text)

    def saw(self, run: Run) -> None:
        """A run was shown to somebody. An answer may be older than what its reader knows, but not once it is final."""
        if run.state not in FINAL:
            return
        before = self.final.setdefault(run.id, (run.state, run.stop_reason))
        if before != (run.state, run.stop_reason):
            self.violation(f"{run.id}: was {_name(before[0])} for good, and now it is {_name(run.state)}")


def _name(state: int) -> str:
    return Run.State.Name(Run.State.ValueType(state))
