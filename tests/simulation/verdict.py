"""The promises that can only be judged when all is over."""

from collections import Counter
from collections.abc import Iterable

from services.messages.model import (
    Approve,
    Body,
    Decision,
    Deny,
    Outcome,
    Result,
    Role,
    Text,
    ToolCall,
    ToolReturn,
)
from services.runs import convert
from services.runs.events import (
    Entry,
    MessageAdded,
    Restarted,
    RunStarted,
    StepFinished,
    StepStarted,
    TextDelta,
    ToolFinished,
)
from services.runs.model import ApprovalState, RunState
from tests.simulation.ledger import Answer, Ledger, Sent
from tests.simulation.node import Stage
from tests.simulation.reader import Reader
from tests.simulation.witness import FLEETING, MessageRow


class Verdict:
    """Judges a schedule that has come to its end."""

    def __init__(self, stage: Stage, ledger: Ledger, readers: list[Reader]) -> None:
        self._stage = stage
        self._world = stage.world
        self._witness = stage.witness
        self._ledger = ledger
        self._readers = readers

    def judge(self) -> None:
        """Check everything."""
        for run_id in self._witness.runs:
            self._judge_log(run_id)
            self._judge_calls(run_id)
        self._judge_conversations()
        for sent in self._ledger.sent:
            self._judge_sent(sent)
        self._judge_unsure()
        for ack in self._ledger.cancels:
            state = self._witness.runs[ack.run_id].state
            wanted = ack.state if RunState(ack.state).final else RunState.CANCELLED
            self._world.check(
                state == wanted, f"2: the cancel of {ack.run_id} was accepted ({ack.state}), it is {state}"
            )
        for answer in self._ledger.answers:
            self._judge_answer(answer)
        for reader in self._readers:
            self._judge_reader(reader)

    # --- logs ---------------------------------------------------------------------------------------------------------

    def _standing(self, run_id: str) -> list[Entry]:
        """A run's events without those that were declared void."""
        entries = list(self._witness.events.get(run_id, {}).values())
        voids = [(e.event.void_from_seq, e.event.void_to_seq) for e in entries if isinstance(e.event, Restarted)]
        for entry in entries:
            if _within(entry.seq, voids):
                fleeting = isinstance(entry.event, FLEETING)
                self._world.check(fleeting, f"6: {entry.seq} of {run_id} is durable state and was declared void")
        return [entry for entry in entries if not _within(entry.seq, voids)]

    def _judge_log(self, run_id: str) -> None:
        world, entries = self._world, self._standing(run_id)
        started = sum(isinstance(e.event, RunStarted) for e in entries)
        world.check(started <= 1, f"6: {run_id} started {started} times")
        stored = [m.id for m in self._witness.messages if m.run_id == run_id]
        told = [e.event.message.id for e in entries if isinstance(e.event, MessageAdded)]
        world.check(told == stored, f"5: the log of {run_id} tells of {told}, stored are {stored}")
        steps = {e.event.step_id for e in entries if isinstance(e.event, StepStarted)}
        ended = [e.event.step.id for e in entries if isinstance(e.event, StepFinished)]
        final = self._witness.runs[run_id].final
        over = set(ended) == steps if final else set(ended) <= steps
        world.check(over and len(ended) == len(set(ended)), f"6: steps {steps} of {run_id} ended as {ended}")
        if final:
            self._judge_shown(run_id, entries)

    def _judge_shown(self, run_id: str, entries: list[Entry]) -> None:
        """Text that a client has seen and that was not declared void is in a message."""
        shown: dict[str, str] = {}
        for entry in entries:
            if isinstance(entry.event, TextDelta):
                shown[entry.event.message_id] = shown.get(entry.event.message_id, "") + entry.event.text
        kept = {m.id: m.body for m in self._witness.messages}
        for message_id, text in shown.items():
            body = kept.get(message_id, Body(()))
            found = "".join(part.text for part in body.parts if isinstance(part, Text))
            # What came last of a cut turn may be kept without having been shown.
            same = found.startswith(text) if body.interrupted else found == text
            self._world.check(same, f"6: readers of {run_id} saw {text!r}, kept is {found!r}")

    def _judge_calls(self, run_id: str) -> None:
        """Every call has exactly one return once its run has stopped, and it is the truth."""
        run, world = self._witness.runs[run_id], self._world
        mine = [m for m in self._witness.messages if m.run_id == run_id]
        calls = [(m.id, p) for m in mine for p in m.body.parts if isinstance(p, ToolCall)]
        returns = [p for m in mine for p in m.body.parts if isinstance(p, ToolReturn)]
        if run.final:
            world.check(len(calls) == len(returns), f"4: {run_id} has {len(calls)} calls, {len(returns)} returns")
            told = [e.event.result for e in self._standing(run_id) if isinstance(e.event, ToolFinished)]
            same = Counter(map(repr, told)) == Counter(map(repr, returns))
            world.check(same, f"4: outcomes told of {run_id} are not those stored: {told} {returns}")
        for call, result in _paired(mine):
            self._judge_outcome(run_id, call, result)

    def _judge_outcome(self, run_id: str, call: ToolCall, result: ToolReturn) -> None:
        world, workshop = self._world, self._stage.workshop
        executed = sum(each.key == call.arguments for each in workshop.started)
        produced = workshop.returned.get(call.arguments, [])
        decided = self._decisions(call)
        match result.outcome:
            case Outcome.DENIED:
                world.check(not executed, f"4: {call.arguments} of {run_id} was denied and ran")
            case Outcome.SUCCEEDED:
                by_client = any(isinstance(d, Result) and d.value.content == result.content for d in decided)
                ran = any(text == result.text for text in produced)
                world.check(by_client or ran, f"4: {call.arguments} of {run_id} returned {result.text!r} and never ran")

    def _decisions(self, call: ToolCall) -> list[object]:
        return [
            decision.verdict
            for approval in self._witness.approvals.values()
            for waiting, decision in zip(approval.detail.calls, approval.detail.decisions, strict=False)
            if waiting.call.arguments == call.arguments
        ]

    def _judge_conversations(self) -> None:
        """Positions have no holes and no message is twice in the log."""
        by_place: dict[str, list[MessageRow]] = {}
        for message in self._witness.messages:
            by_place.setdefault(message.conversation_id, []).append(message)
        for place, found in by_place.items():
            numbers = [m.seq for m in found]
            self._world.check(numbers == list(range(1, len(found) + 1)), f"5: positions in {place} are {numbers}")

    # --- what was acknowledged ----------------------------------------------------------------------------------------

    def _places(self, text: str) -> list[str]:
        """The runs in whose messages this text is."""
        return [m.run_id for m in self._witness.messages if m.role is Role.USER and Text(text) in m.body.parts]

    def _judge_sent(self, sent: Sent) -> None:
        places, run = self._places(sent.text), self._witness.runs[sent.run_id]
        began = any(isinstance(e.event, RunStarted) for e in self._witness.events.get(run.id, {}).values())
        if sent.joined or began:
            self._world.check(places == [run.id], f"4: {sent} was accepted and is in {places}")
        else:
            unsaid = not places and run.state in (RunState.CANCELLED, RunState.QUEUED)
            self._world.check(unsaid, f"4: {sent} was accepted, {run.state} without a start and is in {places}")

    def _judge_unsure(self) -> None:
        runs = Counter(sent.text for sent in {(s.text, s.run_id): s for s in self._ledger.sent}.values())
        for text, count in runs.items():
            self._world.check(count == 1, f"9: {text} was accepted as {count} runs")
        for text in self._ledger.unsure:
            places = self._places(text)
            self._world.check(len(places) <= 1, f"4: {text} is in {places}")

    def _judge_answer(self, answer: Answer) -> None:
        world, approval = self._world, self._witness.approvals[answer.approval_id]
        world.check(approval.state is ApprovalState.DECIDED, f"4: {answer} was accepted and is {approval.state}")
        given = {_verdict(decision) for decision in answer.decisions}
        stored = {_verdict(decision) for decision in approval.detail.decisions}
        world.check(given == stored, f"4: {answer} was accepted, stored is {approval.detail.decisions}")
        if answer.follow_up:
            places = self._places(answer.follow_up)
            world.check(places == [answer.run_id], f"4: the follow-up of {answer} is in {places}")
        run = self._witness.runs[answer.run_id]
        for waiting, decision in zip(approval.detail.calls, approval.detail.decisions, strict=True):
            results = self._outcomes(waiting.call)
            if isinstance(decision.verdict, Deny) and run.final:
                # Of a call that ran before a crash only the second execution can be denied.
                fair = (Outcome.DENIED, Outcome.UNKNOWN)
                told = [str(decision.verdict.reason) in r.text and r.outcome in fair for r in results]
                denied = told == [True]
                world.check(denied, f"4: {waiting.call} was denied and came to {results}")
            elif isinstance(decision.verdict, Approve) and run.final:
                world.check(len(results) == 1, f"4: {waiting.call} was approved and came to {results}")

    def _outcomes(self, call: ToolCall) -> list[ToolReturn]:
        """What came of a call, by its arguments: ids may repeat from turn to turn."""
        run_id = self._witness.calls[call.arguments][0]
        mine = [m for m in self._witness.messages if m.run_id == run_id]
        return [result for each, result in _paired(mine) if each.arguments == call.arguments]

    # --- readers ------------------------------------------------------------------------------------------------------

    def _judge_reader(self, reader: Reader) -> None:
        """What it collected, without what it was told is void, is what a fresh reader gets."""
        world = self._world
        told = [
            (e.restarted.void_from_seq, e.restarted.void_to_seq) for e in reader.collected if e.HasField("restarted")
        ]
        got = [event for event in reader.collected if not _within(event.seq, told)]
        standing = [e for e in self._standing(reader.run_id) if reader.start < e.seq <= reader.cursor]
        numbers = [event.seq for event in got]
        world.check(
            numbers == [e.seq for e in standing],
            f"6: a reader of {reader.run_id} from {reader.start} got {numbers}, not {[e.seq for e in standing]}",
        )
        same = all(event == convert.entry_to_pb(entry) for event, entry in zip(got, standing, strict=True))
        world.check(same, f"6: a reader of {reader.run_id} got other events than are stored")


def _within(seq: int, ranges: Iterable[tuple[int, int]]) -> bool:
    return any(first <= seq <= last for first, last in ranges)


def _paired(messages: list[MessageRow]) -> list[tuple[ToolCall, ToolReturn]]:
    """Each call with its return: the first return of its id behind it."""
    pairs: list[tuple[ToolCall, ToolReturn]] = []
    open_calls: dict[str, ToolCall] = {}
    for message in messages:
        for part in message.body.parts:
            if isinstance(part, ToolCall):
                open_calls[part.id] = part
            elif isinstance(part, ToolReturn) and part.call_id in open_calls:
                pairs.append((open_calls.pop(part.call_id), part))
    return pairs


def _verdict(decision: Decision) -> str:
    if isinstance(decision.verdict, Result):
        return f"{decision.call_id} {decision.verdict.value.text}"
    return f"{decision.call_id} {decision.verdict!r}"
