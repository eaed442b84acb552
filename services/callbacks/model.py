"""What a callback is. Values only: no storage, no transport."""

from datetime import datetime

from msgspec import Struct

from services.runs.model import RunState, StopReason


class Stop(Struct, frozen=True):
    """One stop of a run, as it waits in the outbox. The run may have gone on when it is told."""

    url: str
    run_id: str
    # The last event at the stop: tells this stop of the run from its others.
    seq: int
    state: RunState
    stop_reason: StopReason | None
    at: datetime


class Due(Struct, frozen=True):
    """A stop whose time to be told has come."""

    no: int
    organization_id: str
    attempts: int
    stop: Stop


class Answer(Struct, frozen=True):
    """What came of one attempt: a status, or the reason why there is none."""

    status: int | None = None
    error: str = ""

    @property
    def taken(self) -> bool:
        """Whether it need not be sent again."""
        return self.status is not None and 200 <= self.status < 300

    @property
    def unwanted(self) -> bool:
        """Whether it must not be sent again."""
        return self.status == 410
