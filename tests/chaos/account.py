"""The accounts: what the clients were told against what the server has. Each function yields what does not add up."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from common.pb.bridle.v1.approval_pb2 import Approval
from common.pb.bridle.v1.message_pb2 import Decision, Message
from common.pb.bridle.v1.run_event_pb2 import RunEvent
from common.pb.bridle.v1.run_pb2 import Run, Step
from tests.chaos.ledger import FINAL, Ledger, Reply
from tests.chaos.truth import Truth
from tests.chaos.watch import Watch, survivors

_REASONS = ("chaos", "chaos, all of it")


def messages(truth: Truth, ledger: Ledger) -> Iterator[str]:
    """An accepted message is there once, a refused one is not there, and nothing is there that nobody said."""
    found = Counter(
        (message.run_id, _text(message))
        for conversation in truth.messages.values()
        for message in conversation
        if message.role == Message.ROLE_USER
    )
    follow_ups = {answer.follow_up for answer in ledger.answers.values() if answer.follow_up}
    for run_id, text in found:
        if text not in ledger.said and text not in follow_ups:
            yield f"{run_id}: nobody said {text!r}"
    by_text = Counter(dict.fromkeys(ledger.said, 0))
    for (_, text), count in found.items():
        by_text[text] += count
    for said in ledger.said.values():
        if said.reply is Reply.OPEN:
            yield f"nobody knows what became of {said.text!r}"
        elif said.reply is Reply.REFUSED and by_text[said.text]:
            yield f"{said.text!r} was refused and is there {by_text[said.text]} times"
        elif said.reply is Reply.ACCEPTED:
            expected = 1 if said.joined or _began(truth, said.run_id) else 0
            here = found[said.run_id, said.text]
            if here != expected or by_text[said.text] != expected:
                yield f"{said.run_id}: {said.text!r} is there {here} times of {by_text[said.text]}, not {expected}"


def runs(truth: Truth, ledger: Ledger) -> Iterator[str]:
    """Every accepted run is there and final, every acknowledged cancel struck, and nothing stopped unasked."""
    accepted = {said.run_id for said in ledger.said.values() if said.reply is Reply.ACCEPTED}
    for run_id in accepted - truth.runs.keys():
        yield f"{run_id}: accepted, and not there"
    for run_id in truth.runs.keys() - accepted:
        yield f"{run_id}: is there, and nobody asked for it"
    for run in truth.runs.values():
        ledger.saw(run)
        if run.state not in FINAL:
            yield f"{run.id}: is still {Run.State.Name(run.state)}"
        if run.state == Run.STATE_FAILED:
            yield f"{run.id}: failed with {run.error.type}: {run.error.message}"
        cancel = ledger.cancels.get(run.id)
        if cancel is not None and cancel.reply is Reply.ACCEPTED:
            expected = cancel.state if cancel.state in FINAL else Run.STATE_CANCELLED
            if run.state != expected:
                yield f"{run.id}: a cancel was acknowledged, and it is {Run.State.Name(run.state)}"
        if run.state == Run.STATE_CANCELLED:
            yield from _cancelled(run)


def _cancelled(run: Run) -> Iterator[str]:
    reason = run.cancel.reason
    if reason not in _REASONS and not reason.startswith("interrupted by run-"):
        yield f"{run.id}: was cancelled for no reason of ours: {reason!r}"
    stages = (run.cancel.request_time, run.cancel.seen_time, run.cancel.terminal_time)
    times = [stage.ToNanoseconds() for stage in stages]
    if not 0 < times[0] <= times[1] <= times[2]:
        yield f"{run.id}: its cancel has a strange receipt: {times}"


def turns(truth: Truth) -> Iterator[str]:
    """Runs of one conversation are served one after the other."""
    started = sorted(
        (run for run in truth.runs.values() if run.HasField("start_time")),
        key=lambda run: run.start_time.ToNanoseconds(),
    )
    latest: dict[str, Run] = {}
    for run in started:
        before = latest.get(run.conversation_id)
        if before is not None and before.stop_time.ToNanoseconds() > run.start_time.ToNanoseconds():
            yield f"{run.id}: started before {before.id} had stopped"
        latest[run.conversation_id] = run


def approvals(truth: Truth, ledger: Ledger) -> Iterator[str]:
    """An acknowledged answer is kept to the letter and is in the conversation; a refused one left no trace."""
    written = Counter(
        (message.run_id, part.decision.tool_call_id, part.decision.WhichOneof("verdict") == "approve")
        for conversation in truth.messages.values()
        for message in conversation
        for part in message.parts
        if message.role == Message.ROLE_APPROVAL
    )
    asked = Counter((a.run_id, call.call.id) for a in truth.approvals.values() for call in a.calls)
    for approval in truth.approvals.values():
        if approval.state == Approval.STATE_PENDING:
            yield f"{approval.run_id}: {approval.id} is pending, and its run is over"
        verdicts = {decision.tool_call_id: _approves(decision) for decision in approval.decisions}
        answer = ledger.answers.get(approval.id)
        if answer is not None and answer.reply is Reply.ACCEPTED:
            if approval.state != Approval.STATE_DECIDED or verdicts != answer.verdicts:
                yield f"{approval.run_id}: {approval.id} is not decided as it was answered: {verdicts}"
        elif approval.state != Approval.STATE_CANCELLED:
            yield f"{approval.run_id}: {approval.id} has no answer and is {Approval.State.Name(approval.state)}"
        for call_id, approve in verdicts.items():
            if not 1 <= written[approval.run_id, call_id, approve] <= asked[approval.run_id, call_id]:
                yield f"{approval.run_id}: the verdict on {call_id} is not in the conversation once"
    yield from _follow_ups(truth, ledger)
    for approval_id in ledger.answers.keys() - truth.approvals.keys():
        yield f"{approval_id}: was answered, and is not there"


def _follow_ups(truth: Truth, ledger: Ledger) -> Iterator[str]:
    there = Counter(_text(message) for conversation in truth.messages.values() for message in conversation)
    for approval_id, answer in ledger.answers.items():
        expected = 1 if answer.reply is Reply.ACCEPTED else 0
        if answer.follow_up and there[answer.follow_up] != expected:
            yield f"{approval_id}: its follow-up is there {there[answer.follow_up]} times, not {expected}"


def conversations(truth: Truth) -> Iterator[str]:
    """Every call is answered once, right after the turn that made it: what a provider would insist on."""
    for agent_id, conversation in truth.messages.items():
        numbers = [message.seq for message in conversation]
        if numbers != sorted(set(numbers)):
            yield f"{agent_id}: positions are not in order: {numbers}"
        open_calls: list[str] = []
        for message in conversation:
            if message.role == Message.ROLE_APPROVAL:
                continue
            returns = [part.tool_return.tool_call_id for part in message.parts if part.HasField("tool_return")]
            if sorted(returns) != sorted(open_calls):
                yield f"{message.run_id}: {message.id} answers {returns}, and open were {open_calls}"
            open_calls = [part.tool_call.id for part in message.parts if part.HasField("tool_call")]
        if open_calls:
            yield f"{agent_id}: {open_calls} were never answered"


def streams(truth: Truth, watches: Iterable[Watch]) -> Iterator[str]:
    """Every reader ended up with the events that a replay gives, however often it was cut off."""
    for watch in watches:
        replayed = survivors(truth.events.get(watch.run_id, []))
        if watch.events != replayed:
            seen, there = {event.seq for event in watch.events}, {event.seq for event in replayed}
            yield (
                f"{watch.run_id}: a reader saw {sorted(seen - there)} that are not in the log, "
                f"missed {sorted(there - seen)}, or saw other contents"
            )


def logs(truth: Truth) -> Iterator[str]:
    """A log has one end, its last event; deltas add up to the messages that replace them; no step is left open."""
    for run_id, events in truth.events.items():
        kinds = [event.WhichOneof("event") for event in events]
        if kinds.count("run_stopped") != 1 or kinds[-1] != "run_stopped":
            yield f"{run_id}: its log ends with {kinds[-3:]}"
        elif events[-1].seq != truth.runs[run_id].last_seq:
            yield f"{run_id}: the last event is {events[-1].seq}, the run says {truth.runs[run_id].last_seq}"
        if kinds.count("run_started") > 1:
            yield f"{run_id}: started {kinds.count('run_started')} times"
        finished = Counter(e.tool_finished.result.tool_call_id for e in events if e.HasField("tool_finished"))
        yield from (f"{run_id}: {call} has {count} outcomes" for call, count in finished.items() if count > 1)
        yield from _deltas(run_id, survivors(events))
        for step in truth.steps.get(run_id, ()):
            if step.status == Step.STATUS_PENDING:
                yield f"{run_id}: step {step.number} is still open"


def _deltas(run_id: str, events: list[RunEvent]) -> Iterator[str]:
    texts: defaultdict[str, str] = defaultdict(str)
    calls: defaultdict[str, str] = defaultdict(str)
    for event in events:
        if event.HasField("text_delta"):
            texts[event.text_delta.message_id] += event.text_delta.text
        elif event.HasField("tool_call_delta"):
            calls[event.tool_call_delta.message_id] += event.tool_call_delta.arguments
        elif event.HasField("message_added") and event.message_added.message.role == Message.ROLE_ASSISTANT:
            message = event.message_added.message
            arguments = "".join(part.tool_call.arguments for part in message.parts)
            # A call that was cut is dropped; text that was cut is kept.
            whole = (_text(message), calls[message.id] if message.interrupted else arguments)
            streamed = (texts.pop(message.id, ""), calls[message.id])
            if streamed != whole:
                yield f"{run_id}: {message.id} is {whole}, and {streamed} was streamed"
    if texts:
        yield f"{run_id}: {dict(texts)} were streamed, and are no messages"


def _began(truth: Truth, run_id: str) -> bool:
    """Messages of a run that was cancelled in the queue are not in the conversation."""
    return any(event.HasField("run_started") for event in truth.events.get(run_id, ()))


def _approves(decision: Decision) -> bool:
    return decision.WhichOneof("verdict") == "approve"


def _text(message: Message) -> str:
    return "".join(part.text.text for part in message.parts)
