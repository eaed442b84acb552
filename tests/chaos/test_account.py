"""The accounts themselves: each kind of loss and each kind of repetition is found."""

from collections.abc import Callable

import msgspec
import pytest

from common.pb.bridle.v1 import approval_pb2, message_pb2, run_event_pb2
from common.pb.bridle.v1.message_pb2 import Message, Part, ToolReturn
from common.pb.bridle.v1.run_event_pb2 import RunEvent
from common.pb.bridle.v1.run_pb2 import Run, Step
from tests.chaos import account
from tests.chaos.account_tools import tools
from tests.chaos.effects import Effect
from tests.chaos.ledger import Answer, Cancel, Ledger, Reply, Said
from tests.chaos.truth import Truth
from tests.chaos.watch import Watch

RUN, AGENT, CALL = "run-1", "agent-1", "call_1"
SAID = 'call guarded_never {"token": "w1"}'
START = Effect(False, "w1", RUN, CALL, "7-1", 7)
FINISH = msgspec.structs.replace(START, finished=True)


class World:
    """One run that did everything right: said, asked, approved, executed, answered."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.ledger.said[SAID] = Said(SAID, AGENT, Reply.ACCEPTED, RUN)
        self.ledger.answers["approval-1"] = Answer({CALL: True}, reply=Reply.ACCEPTED)
        self.run = Run(id=RUN, state=Run.STATE_COMPLETED, last_seq=4)
        self.others: dict[str, Run] = {}
        decision = message_pb2.Decision(tool_call_id=CALL, approve=message_pb2.Approve())
        call = message_pb2.ToolCall(id=CALL, name="guarded_never", arguments='{"token": "w1"}')
        self.result = ToolReturn(tool_call_id=CALL, outcome=ToolReturn.OUTCOME_SUCCEEDED, content=[_text("7-1")])
        self.messages = [
            _message(1, Message.ROLE_USER, _text(SAID)),
            _message(2, Message.ROLE_ASSISTANT, Part(tool_call=call)),
            _message(3, Message.ROLE_APPROVAL, Part(decision=decision)),
            _message(4, Message.ROLE_TOOL, Part(tool_return=self.result)),
            _message(5, Message.ROLE_ASSISTANT, _text("done")),
        ]
        self.approval = approval_pb2.Approval(
            id="approval-1",
            run_id=RUN,
            state=approval_pb2.Approval.STATE_DECIDED,
            calls=[approval_pb2.ApprovalCall(call=call)],
            decisions=[decision],
        )
        self.events = [
            RunEvent(seq=1, run_started=run_event_pb2.RunStarted()),
            RunEvent(seq=2, text_delta=run_event_pb2.TextDelta(message_id="message-5", text="done")),
            RunEvent(seq=3, message_added=run_event_pb2.MessageAdded(message=self.messages[4])),
            RunEvent(seq=4, run_stopped=run_event_pb2.RunStopped(run=self.run)),
        ]
        self.steps = [Step(number=1, status=Step.STATUS_SUCCEEDED)]
        self.effects = [START, FINISH]
        self.watch = Watch(RUN, self.ledger)
        for event in self.events:
            self.watch.take(event)

    def problems(self) -> list[str]:
        truth = Truth(
            runs={self.run.id: self.run, **self.others},
            approvals={self.approval.id: self.approval},
            messages={AGENT: self.messages},
            steps={RUN: self.steps},
            events={RUN: self.events},
        )
        found = [
            *account.messages(truth, self.ledger),
            *account.runs(truth, self.ledger),
            *account.turns(truth),
            *account.approvals(truth, self.ledger),
            *account.conversations(truth),
            *account.streams(truth, [self.watch]),
            *account.logs(truth),
            *tools(truth, self.effects),
        ]
        return found + self.ledger.violations


def _text(text: str) -> Part:
    return Part(text=message_pb2.Text(text=text))


def _message(seq: int, role: Message.Role.ValueType, part: Part) -> Message:
    return Message(id=f"message-{seq}", seq=seq, run_id=RUN, role=role, parts=[part])


def test_a_world_without_faults_adds_up() -> None:
    assert World().problems() == []


def _lose_message(world: World) -> None:
    del world.messages[0]


def _double_message(world: World) -> None:
    world.messages.append(_message(6, Message.ROLE_USER, _text(SAID)))


def _keep_refused(world: World) -> None:
    world.ledger.said[SAID].reply = Reply.REFUSED


def _lose_run(world: World) -> None:
    world.ledger.said["more"] = Said("more", AGENT, Reply.ACCEPTED, "run-2")


def _stick(world: World) -> None:
    world.run.state = Run.STATE_RUNNING


def _forget_cancel(world: World) -> None:
    world.ledger.cancels[RUN] = Cancel(Reply.ACCEPTED, Run.STATE_RUNNING)


def _change_after_the_end(world: World) -> None:
    world.run.state = Run.STATE_CANCELLED
    world.run.cancel.reason = "chaos"
    world.run.cancel.request_time.FromSeconds(1)
    world.run.cancel.seen_time.FromSeconds(1)
    world.run.cancel.terminal_time.FromSeconds(1)


def _overtake(world: World) -> None:
    other = world.others["run-2"] = Run(id="run-2", state=Run.STATE_COMPLETED)
    world.ledger.said["more"] = Said("more", AGENT, Reply.ACCEPTED, other.id)
    for run, (start, stop) in ((world.run, (1, 3)), (other, (2, 4))):
        run.start_time.FromSeconds(start)
        run.stop_time.FromSeconds(stop)


def _lose_answer(world: World) -> None:
    world.approval.state = approval_pb2.Approval.STATE_PENDING


def _change_answer(world: World) -> None:
    world.ledger.answers["approval-1"].verdicts = {CALL: False}


def _lose_verdict(world: World) -> None:
    del world.messages[2]


def _leave_call_open(world: World) -> None:
    del world.messages[3]


def _answer_twice(world: World) -> None:
    world.messages.insert(4, _message(4, Message.ROLE_TOOL, Part(tool_return=world.result)))


def _miss_event(world: World) -> None:
    del world.watch.events[1]


def _go_back(world: World) -> None:
    world.watch.take(world.events[1])


def _take_back_state(world: World) -> None:
    restarted = run_event_pb2.Restarted(void_from_seq=3, void_to_seq=4)
    world.watch.take(RunEvent(seq=5, restarted=restarted))


def _stop_twice(world: World) -> None:
    world.events.append(RunEvent(seq=5, run_stopped=run_event_pb2.RunStopped(run=world.run)))


def _stream_other_text(world: World) -> None:
    world.events[1].text_delta.text = "dome"


def _leave_step_open(world: World) -> None:
    world.steps[0].status = Step.STATUS_PENDING


def _run_twice(world: World) -> None:
    world.effects.append(msgspec.structs.replace(START, process=8, nonce="8-1"))


def _run_unasked(world: World) -> None:
    world.approval.decisions[0].deny.reason = "no"


def _run_outside_of_the_log(world: World) -> None:
    world.effects.append(msgspec.structs.replace(START, token="w2"))


def _make_up_a_result(world: World) -> None:
    world.effects.pop()


def _deny_what_ran(world: World) -> None:
    world.messages[3].parts[0].tool_return.outcome = ToolReturn.OUTCOME_DENIED


@pytest.mark.parametrize(
    ("fault", "complaint"),
    [
        (_lose_message, "is there 0 times"),
        (_double_message, "is there 2 times"),
        (_keep_refused, "was refused"),
        (_lose_run, "accepted, and not there"),
        (_stick, "is still STATE_RUNNING"),
        (_forget_cancel, "a cancel was acknowledged"),
        (_change_after_the_end, "for good"),
        (_overtake, "run-2: started before run-1 had stopped"),
        (_lose_answer, "is not decided as it was answered"),
        (_change_answer, "is not decided as it was answered"),
        (_lose_verdict, "is not in the conversation once"),
        (_leave_call_open, "and open were"),
        (_answer_twice, "and open were"),
        (_miss_event, "missed [2]"),
        (_go_back, "came after 4"),
        (_take_back_state, "was shown and then taken back"),
        (_stop_twice, "its log ends with"),
        (_stream_other_text, "was streamed"),
        (_leave_step_open, "is still open"),
        (_run_twice, "may never be repeated"),
        (_run_unasked, "ran without approval"),
        (_run_outside_of_the_log, "no turn has such a call"),
        (_deny_what_ran, "OUTCOME_DENIED after 1 starts"),
        (_make_up_a_result, "which no execution returned"),
    ],
)
def test_every_fault_is_found(fault: Callable[[World], None], complaint: str) -> None:
    world = World()
    fault(world)
    assert any(complaint in problem for problem in world.problems()), world.problems()
