"""The accounts of tools: every execution that left a mark against the one outcome that its call has."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from common.pb.bridle.v1.message_pb2 import ToolCall, ToolReturn
from common.pb.bridle.v1.run_pb2 import Run
from services.tools.api import CrashPolicy
from tests.chaos.effects import TOOLS, Effect
from tests.chaos.truth import Truth


@dataclass
class Made:
    """A call in the conversation, with everything known of it."""

    run: Run
    call: ToolCall
    result: ToolReturn = field(default_factory=ToolReturn)
    # Verdicts of people, in no order; True for approve.
    verdicts: list[bool] = field(default_factory=list)
    starts: list[Effect] = field(default_factory=list)
    nonces: list[str] = field(default_factory=list)

    @property
    def granted(self) -> int:
        """How often it may have been started, as far as people are concerned."""
        approvals = sum(self.verdicts)
        return approvals if TOOLS[self.call.name].guarded else approvals + 1


def tools(truth: Truth, effects: Sequence[Effect]) -> Iterator[str]:
    """No tool ran twice unless its policy says so, none ran unasked, and each outcome is what happened."""
    made = _calls(truth)
    for effect in effects:
        call = made.get(effect.token)
        if call is None:
            if effect.run_id in truth.runs:
                yield f"{effect.run_id}: {effect.token} was executed, and no turn has such a call"
        elif (call.run.id, call.call.id) != (effect.run_id, effect.call_id):
            yield f"{effect.run_id}: {effect.token} was executed as {effect.call_id}, it is {call.call.id}"
        elif effect.finished:
            call.nonces.append(effect.nonce)
        else:
            call.starts.append(effect)
    for token, call in made.items():
        yield from (f"{call.run.id}: {call.call.name} {token}: {problem}" for problem in _problems(call))


def _problems(made: Made) -> Iterator[str]:
    policy, count = TOOLS[made.call.name].policy, len(made.starts)
    twice = [process for process, times in Counter(e.process for e in made.starts).items() if times > 1]
    if twice:
        yield f"ran more than once in one process {twice}"
    if policy is CrashPolicy.NEVER and count > 1:
        yield f"ran {count} times, and may never be repeated"
    if policy is CrashPolicy.ASK and count > made.granted:
        yield f"ran {count} times with {made.granted} grants"
    if made.granted == 0 and count:
        yield "ran without approval"
    if made.result.outcome == ToolReturn.OUTCOME_SUCCEEDED:
        yield from _wrong_result(made)
    elif not _explained(made, policy):
        yield f"{ToolReturn.Outcome.Name(made.result.outcome)} after {count} starts and verdicts {made.verdicts}"


def _wrong_result(made: Made) -> Iterator[str]:
    text = "".join(part.text.text for part in made.result.content)
    if text not in made.nonces:
        yield f"succeeded with {text!r}, which no execution returned"
    elif made.starts[-1].nonce != text:
        yield f"succeeded with {text!r}, and was started again after that"


def _explained(made: Made, policy: CrashPolicy) -> bool:
    """Whether an outcome that no execution returned is one that it may have."""
    cancelled = made.run.state == Run.STATE_CANCELLED
    denied = False in made.verdicts
    match made.result.outcome:
        case ToolReturn.OUTCOME_UNKNOWN:
            # A person who was asked whether to run it again, and said no, leaves it unknown.
            return cancelled or policy is CrashPolicy.NEVER or (policy is CrashPolicy.ASK and denied)
        case ToolReturn.OUTCOME_DENIED:
            return not made.starts and (denied or cancelled)
        case ToolReturn.OUTCOME_CANCELLED:
            return cancelled
        case _:
            return False


def _calls(truth: Truth) -> dict[str, Made]:
    """Calls of our tools, by the word in their arguments."""
    parts = [
        (message.run_id, part)
        for conversation in truth.messages.values()
        for message in conversation
        for part in message.parts
    ]
    by_id: dict[tuple[str, str], Made] = {}
    for run_id, part in parts:
        if part.HasField("tool_call") and part.tool_call.name in TOOLS:
            by_id[run_id, part.tool_call.id] = Made(truth.runs[run_id], part.tool_call)
    for run_id, part in parts:
        answered = by_id.get((run_id, part.tool_return.tool_call_id))
        if answered is not None:
            answered.result = part.tool_return
    verdicts: defaultdict[tuple[str, str], list[bool]] = defaultdict(list)
    for approval in truth.approvals.values():
        for decision in approval.decisions:
            approve = decision.WhichOneof("verdict") == "approve"
            verdicts[approval.run_id, decision.tool_call_id].append(approve)
    for key, made in by_id.items():
        made.verdicts = verdicts[key]
    return {json.loads(made.call.arguments)["token"]: made for made in by_id.values()}
