"""What a run has come to, as its row tells it."""

from datetime import datetime

import msgspec

from services.runs.model import CancelReceipt, RunOutcome, RunState
from services.runs.protocol import Commit, State


def outcome_of(effect: Commit, state: State, receipt: CancelReceipt | None, now: datetime) -> RunOutcome:
    """The outcome so far; `receipt` is how a cancel went, if there was one."""
    if receipt is not None and effect.state is RunState.CANCELLED:
        receipt = msgspec.structs.replace(receipt, terminal_at=now)
    names = {called.name for called in state.history} | {call.call.name for call in state.calls if call.executed}
    return RunOutcome(
        usage=state.usage,
        step_count=state.step_no,
        tools_used=tuple(sorted(names)),
        error=effect.error,
        approval_id=state.approval_id,
        cancel=receipt,
        first_token_us=state.first_token_us,
    )
