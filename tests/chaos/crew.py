"""Clients at work: they talk, answer, cancel and watch, and write down what they were told."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import grpc
import grpc.aio
from google.protobuf.text_format import MessageToString

from common.pb.bridle.v1 import agent_pb2, approval_pb2, message_pb2
from common.pb.bridle.v1.agent_service_pb2 import CreateAgentRequest
from common.pb.bridle.v1.approval_service_pb2 import ListApprovalsRequest, SubmitApprovalRequest
from common.pb.bridle.v1.message_service_pb2 import SendMessageRequest, StreamMessageRequest
from common.pb.bridle.v1.run_pb2 import Run
from common.pb.bridle.v1.run_service_pb2 import (
    CancelRunRequest,
    CancelRunsRequest,
    CreateRunRequest,
    GetRunRequest,
    RunOptions,
)
from tests.chaos.caller import Caller, Refused, unanswered
from tests.chaos.effects import TOOLS
from tests.chaos.ledger import Answer, Cancel, Ledger, Reply, Said
from tests.chaos.plan import Scripts
from tests.chaos.watch import Watch

_MODELS = ("demo/echo", "demo/slow", "demo/echo", "demo/slow", "demo/echo")
_TALKERS = 5
_BUSY = (
    RunOptions.ON_BUSY_UNSPECIFIED,
    RunOptions.ON_BUSY_ENQUEUE,
    RunOptions.ON_BUSY_STEER,
    RunOptions.ON_BUSY_STEER,
    RunOptions.ON_BUSY_INTERRUPT,
    RunOptions.ON_BUSY_REJECT,
)
_REFUSALS = (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.ABORTED)


class Crew:
    """The clients of some agents, from their first word until everything that they started has ended."""

    def __init__(self, name: str, caller: Caller, ledger: Ledger) -> None:
        self.agents: list[agent_pb2.Agent] = []
        self.watches: dict[str, Watch] = {}
        self.caller = caller
        self.ledger = ledger
        self._name = name
        self._scripts = Scripts(name)
        self._closing = False
        self._talking: list[asyncio.Task[None]] = []
        self._others: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Make agents and begin."""
        for number, model in enumerate(_MODELS):
            name = f"{self._name}-{number}"
            agent = agent_pb2.Agent(name=name, model=model)
            request = CreateAgentRequest(agent=agent, tool_names=[*TOOLS, "wait"], request_id=name)
            self.agents.append(await self.caller.call(self.caller.agents.CreateAgent, request))
        for number in range(_TALKERS):
            self._talking.append(self._spawn(self._repeat(self._talk, f"talk {number}", 0.2)))
        self._talking.append(self._spawn(self._repeat(self._cancel, "cancel", 0.5)))
        self._others.append(self._spawn(self._repeat(self._answer, "answer", 0.2)))

    async def finish(self, seconds: float) -> bool:
        """Start nothing new; whether everything that was started ended in time. Approvals are still answered."""
        self._closing = True
        try:
            async with asyncio.timeout(seconds):
                await asyncio.wait(self._talking)
                for watch in self.watches.values():
                    await watch.ended.wait()
        except TimeoutError:
            return False
        return True

    async def name_the_stuck(self) -> None:
        """Which runs have not ended, or have and did not tell."""
        for watch in self.watches.values():
            if not watch.ended.is_set():
                run = await self.caller.call(self.caller.runs.GetRun, GetRunRequest(run_id=watch.run_id))
                last = [MessageToString(event, as_one_line=True) for event in watch.events[-1:]]
                self.ledger.violation(f"{run.id}: is stuck: {MessageToString(run, as_one_line=True)}; last came {last}")
        self.ledger.violation(f"{self._name}: not everything ended in time")

    async def greet(self) -> None:
        """Whatever happened to an agent, it can be talked to."""
        for agent in self.agents:
            request = CreateRunRequest(agent_id=agent.id, messages=[_input("say hello")])
            answer = await self.caller.call(self.caller.messages.SendMessage, SendMessageRequest(run=request))
            if answer.run.state != Run.STATE_COMPLETED:
                self.ledger.violation(f"{agent.id}: does not answer: {MessageToString(answer.run, as_one_line=True)}")

    async def stop(self) -> None:
        """End every client, and say what went wrong with it."""
        tasks = [*self._talking, *self._others]
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                self.ledger.violation(f"{self._name}: a client was told something unexpected: {outcome!r}")

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        return asyncio.ensure_future(work)

    async def _repeat(self, act: Callable[[random.Random], Awaitable[None]], name: str, pause: float) -> None:
        rng = random.Random(f"{self._name} {name}")
        while not self._closing or act == self._answer:
            await act(rng)
            await asyncio.sleep(rng.uniform(0, pause))

    # --- talking ------------------------------------------------------------------------------------------------------

    async def _talk(self, rng: random.Random) -> None:
        agent = rng.choice(self.agents)
        options = RunOptions(on_busy=rng.choice(_BUSY))
        if rng.random() < 0.2:
            options.on_pending_approval = RunOptions.ON_PENDING_APPROVAL_DENY_AND_CONTINUE
        steers = options.on_busy == RunOptions.ON_BUSY_STEER
        text = self._scripts.words(rng) if steers else self._scripts.any(rng)
        said = self.ledger.said[text] = Said(text, agent.id)
        request = CreateRunRequest(agent_id=agent.id, messages=[_input(text)], options=options, request_id=text[:128])
        try:
            # Only CreateRun tells whether the message joined a run.
            ways = (self._create, self._create, self._send, self._stream)
            await (self._create if steers else rng.choice(ways))(request, said, rng)
        except Refused as refused:
            if refused.code not in _REFUSALS:
                raise
            said.reply = Reply.REFUSED
            self.ledger.note("messages refused")

    async def _create(self, request: CreateRunRequest, said: Said, rng: random.Random) -> None:
        created = await self.caller.call(self.caller.runs.CreateRun, request)
        watch = self._accepted(said, created.run.id, rng, joined=created.joined)
        try:
            async with asyncio.timeout(rng.uniform(0, 1)):
                await watch.ended.wait()
        except TimeoutError:
            return

    async def _send(self, request: CreateRunRequest, said: Said, rng: random.Random) -> None:
        answer = await self.caller.call(self.caller.messages.SendMessage, SendMessageRequest(run=request))
        self.ledger.saw(answer.run)
        self._accepted(said, answer.run.id, rng)

    async def _stream(self, request: CreateRunRequest, said: Said, rng: random.Random) -> None:
        """The first answer names the run; if that is lost, so is everything, and it is said again."""
        while said.reply is Reply.OPEN:
            call = self.caller.messages.StreamMessage(StreamMessageRequest(run=request), wait_for_ready=True)
            try:
                first = await anext(aiter(call))
            except grpc.aio.AioRpcError as error:
                if not unanswered(error):
                    raise Refused(error) from error
                await asyncio.sleep(0.05)
            else:
                self._accepted(said, first.run.id, rng, opened=call)

    def _accepted(
        self, said: Said, run_id: str, rng: random.Random, *, joined: bool = False, opened: Any = None
    ) -> Watch:
        said.run_id, said.joined, said.reply = run_id, joined, Reply.ACCEPTED
        self.ledger.note("message")
        if joined:
            self.ledger.note("messages joined")
        if run_id not in self.watches:
            watch = self.watches[run_id] = Watch(run_id, self.ledger)
            follower = random.Random(rng.random())
            self._others.append(self._spawn(watch.follow(self.caller.runs, follower, opened)))
        return self.watches[run_id]

    # --- answering ----------------------------------------------------------------------------------------------------

    async def _answer(self, rng: random.Random) -> None:
        for agent in self.agents:
            request = ListApprovalsRequest(agent_id=agent.id, page_size=10)
            listed = await self.caller.call(self.caller.approvals.ListApprovals, request)
            for approval in listed.approvals:
                if self._closing or rng.random() < 0.3:
                    await self._submit(approval, rng)

    async def _submit(self, approval: approval_pb2.Approval, rng: random.Random) -> None:
        verdicts = {each.call.id: rng.random() < 0.7 for each in approval.calls}
        follow_up = self._scripts.words(rng) if rng.random() < 0.2 else ""
        answer = self.ledger.answers.setdefault(approval.id, Answer(verdicts, follow_up))
        request = SubmitApprovalRequest(
            approval_id=approval.id,
            decisions=[_decision(call_id, approve) for call_id, approve in answer.verdicts.items()],
            arguments_sha256={each.call.id: each.arguments_sha256 for each in approval.calls},
            follow_up=[_input(answer.follow_up)] if answer.follow_up else [],
            request_id=approval.id,
        )
        try:
            accepted = await self.caller.call(self.caller.approvals.SubmitApproval, request)
        except Refused as refused:
            if refused.code not in _REFUSALS:
                raise
            answer.reply = Reply.REFUSED
            return
        self.ledger.saw(accepted.run)
        answer.reply = Reply.ACCEPTED
        self.ledger.note("approval")

    # --- cancelling ---------------------------------------------------------------------------------------------------

    async def _cancel(self, rng: random.Random) -> None:
        live = [run_id for run_id, watch in self.watches.items() if not watch.ended.is_set()]
        if not live:
            return
        if rng.random() < 0.1:
            await self._cancel_agent(rng.choice(self.agents).id)
            return
        run_id = rng.choice(live)
        cancel = self.ledger.cancels.setdefault(run_id, Cancel())
        request = CancelRunRequest(run_id=run_id, reason="chaos")
        if rng.random() < 0.3:
            request.wait.FromSeconds(5)
        run = await self.caller.call(self.caller.runs.CancelRun, request)
        self._told(cancel, run)

    async def _cancel_agent(self, agent_id: str) -> None:
        request = CancelRunsRequest(agent_id=agent_id, reason="chaos, all of it")
        answer = await self.caller.call(self.caller.runs.CancelRuns, request)
        for run in answer.runs:
            self._told(self.ledger.cancels.setdefault(run.id, Cancel()), run)

    def _told(self, cancel: Cancel, run: Any) -> None:
        self.ledger.saw(run)
        if cancel.reply is Reply.OPEN:
            cancel.reply, cancel.state = Reply.ACCEPTED, run.state
        self.ledger.note("cancel")


def _input(text: str) -> message_pb2.InputMessage:
    return message_pb2.InputMessage(parts=[message_pb2.Part(text=message_pb2.Text(text=text))])


def _decision(call_id: str, approve: bool) -> message_pb2.Decision:
    if approve:
        return message_pb2.Decision(tool_call_id=call_id, approve=message_pb2.Approve())
    return message_pb2.Decision(tool_call_id=call_id, deny=message_pb2.Deny(reason="chaos says no"))
