"""Clients: seeded programs of sending, stopping, answering and reading, in every right and wrong way."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from common.errors import (
    ApprovalAlreadyDecided,
    ApprovalMismatch,
    BridleError,
    ConversationBusy,
    NoPendingApproval,
    PendingApproval,
    RequestIdReused,
    StoreConflict,
    Unavailable,
)
from common.pb.bridle.v1 import (
    approval_pb2,
    approval_service_pb2,
    message_pb2,
    message_service_pb2,
    run_pb2,
    run_service_pb2,
    tool_pb2,
)
from services.messages.convert import decision_from_pb
from services.runs.model import RunState
from services.wire.wellknown import enum_text
from tests.simulation.cluster import Cluster, Disconnected
from tests.simulation.ledger import Answer, CancelAck, Ledger
from tests.simulation.node import Node, Stage
from tests.simulation.reader import Reader
from tests.simulation.template import PLACES, Place
from tests.simulation.tools import CLIENT_TOOL

T = TypeVar("T")
_OPTIONS = run_service_pb2.RunOptions
# Refusals that the seeds of a client's mistakes and races may meet; anything else is a bug.
_REFUSALS = (
    ApprovalAlreadyDecided,
    ApprovalMismatch,
    ConversationBusy,
    NoPendingApproval,
    PendingApproval,
    RequestIdReused,
    StoreConflict,
)


class Client:
    """One client with its program."""

    def __init__(self, stage: Stage, cluster: Cluster, ledger: Ledger, readers: list[Reader]) -> None:
        self._stage = stage
        self._world = stage.world
        self._cluster = cluster
        self._ledger = ledger
        self._readers = readers
        self._requests: list[run_service_pb2.CreateRunRequest] = []
        self._submissions: list[approval_service_pb2.SubmitApprovalRequest] = []
        self._reading: list[asyncio.Task[None]] = []

    async def run(self, steps: int) -> None:
        """Do so many things, with pauses between them."""
        rng = self._world.rng
        acts = (
            *(self.send, self.send, self._cancel, self._answer, self._answer, self._answer, self._repeat),
            self._compact,
        )
        for _ in range(steps):
            await rng.choice(acts)()
            await asyncio.sleep(rng.choice((0.0, 0.05, 0.4, 1.5)) * rng.random())

    async def _try(self, work: Callable[[Node], Coroutine[Any, Any, T]], timeout: float = 5.0) -> T | None:
        """The answer; None if the call was refused for a reason that there was."""
        try:
            return await self._cluster.call(work, timeout)
        except _REFUSALS as refusal:
            self._world.trace(f"client is refused: {refusal!r}")
            return None
        except Unavailable as error:
            raise Disconnected from error
        except BridleError as error:
            self._world.fail(f"9: a client got {error!r}")
            return None

    # --- messages -----------------------------------------------------------------------------------------------------

    async def send(self) -> None:
        """Say something, by any policy."""
        rng = self._world.rng
        request = self._message(rng.choice(PLACES[: 1 + self._world.seed % len(PLACES)]))
        request.options.on_busy = rng.choice(_OPTIONS.OnBusy.values())
        request.options.on_pending_approval = rng.choice(_OPTIONS.OnPendingApproval.values())
        request.options.max_steps = rng.choice((0, 1, 2, 4))
        if rng.random() < 0.3:
            request.options.client_tools.append(tool_pb2.ClientTool(name=CLIENT_TOOL))
        if rng.random() < 0.6:
            request.request_id = f"r{self._world.number()}"
            self._requests.append(request)
        if rng.random() < 0.2:
            await self._send_and_wait(request)
        else:
            await self._create(request)

    async def say(self, place: Place) -> str:
        """A plain message; the run it started."""
        request = self._message(place)
        request.request_id = f"r{self._world.number()}"
        created = await self._create(request)
        return created.run.id if created is not None else ""

    def _message(self, place: Place) -> run_service_pb2.CreateRunRequest:
        text = f"{place.conversation_id} {self._world.number()}"
        said = message_pb2.InputMessage(parts=[message_pb2.Part(text=message_pb2.Text(text=text))])
        return run_service_pb2.CreateRunRequest(
            agent_id=place.agent_id, conversation_id=place.conversation_id, messages=[said]
        )

    async def _create(self, request: run_service_pb2.CreateRunRequest) -> run_service_pb2.CreateRunResponse | None:
        text = request.messages[0].parts[0].text.text
        for _ in range(4):
            try:
                created = await self._try(lambda node: node.runs.CreateRun(request, None))
            except Disconnected:
                self._ledger.unsure.append(text)
                if not request.request_id:
                    return None
                await asyncio.sleep(self._world.rng.choice((0.0, 0.5)))
                continue
            if created is not None:
                self._world.trace(f"client: {text[-4:]} accepted as {created.run.id[:8]} joined={created.joined}")
                self._ledger.accept(text, created.run.id, joined=created.joined)
                self._read(created.run.id, created.after_seq)
            return created
        return None

    async def _send_and_wait(self, request: run_service_pb2.CreateRunRequest) -> None:
        sent = message_service_pb2.SendMessageRequest(run=request, cancel_on_disconnect=self._world.rng.random() < 0.5)
        text = request.messages[0].parts[0].text.text
        try:
            answer = await self._try(lambda node: node.messages.SendMessage(sent, None), 4.0)
        except Disconnected:
            self._ledger.unsure.append(text)
            return
        if answer is not None:
            # Whether it joined is not said; where the text is will tell.
            self._ledger.unsure.append(text)
            # It stopped or asked; by now somebody may have answered.
            started = answer.run.state != run_pb2.Run.STATE_QUEUED
            self._world.check(started, "SendMessage came back from a run that has not started")

    def _read(self, run_id: str, after: int) -> None:
        for _ in range(self._world.rng.choice((0, 1, 1, 2))):
            reader = Reader(self._stage, self._cluster, run_id, after)
            self._readers.append(reader)
            self._reading.append(asyncio.ensure_future(reader.follow()))

    async def _repeat(self) -> None:
        """The same request again: the same answer. With other content: refused."""
        rng = self._world.rng
        if self._submissions and rng.random() < 0.4:
            await self._submit(rng.choice(self._submissions))
        elif self._requests:
            request = rng.choice(self._requests)
            if rng.random() < 0.3:
                other = run_service_pb2.CreateRunRequest()
                other.CopyFrom(request)
                other.options.max_steps = 7
                if await self._quietly(lambda node: node.runs.CreateRun(other, None)) is not None:
                    self._requests.remove(request)
                    self._ledger.unsure.append(request.messages[0].parts[0].text.text)
            else:
                await self._create(request)

    async def _quietly(self, work: Callable[[Node], Coroutine[Any, Any, T]]) -> T | None:
        try:
            return await self._try(work)
        except Disconnected:
            return None

    async def _compact(self) -> None:
        """Have a conversation summarised; a live run is left alone."""
        place = self._world.rng.choice(PLACES[: 1 + self._world.seed % len(PLACES)])
        done = await self._quietly(lambda node: node.compact(place.conversation_id))
        if done is not None:
            less = done.messages_after <= done.messages_before
            self._world.check(less, f"5: a compaction of {place} made it longer: {done}")

    # --- stopping -----------------------------------------------------------------------------------------------------

    async def _cancel(self) -> None:
        rng = self._world.rng
        if rng.random() < 0.2:
            place = rng.choice(PLACES)
            several = run_service_pb2.CancelRunsRequest(agent_id=place.agent_id)
            stopped = await self._quietly(lambda node: node.runs.CancelRuns(several, None))
            for run in stopped.runs if stopped else ():
                self._note_cancel(run)
        elif self._ledger.run_ids:
            await self.cancel(rng.choice(self._ledger.run_ids[-3:]), rng.choice((0, 0, 2)))

    async def cancel(self, run_id: str, wait: int) -> None:
        """Stop a run."""
        request = run_service_pb2.CancelRunRequest(run_id=run_id)
        if wait:
            request.wait.FromSeconds(wait)
        run = await self._quietly(lambda node: node.runs.CancelRun(request, None))
        if run is not None:
            self._note_cancel(run)

    def _note_cancel(self, run: run_pb2.Run) -> None:
        state = _state(run)
        self._world.trace(f"client: cancel of {run.id[:8]} accepted, it is {state}")
        self._ledger.cancels.append(CancelAck(run.id, state))

    # --- answering ----------------------------------------------------------------------------------------------------

    async def _answer(self) -> None:
        rng = self._world.rng
        found = await self._quietly(
            lambda node: node.approvals.ListApprovals(approval_service_pb2.ListApprovalsRequest(), None)
        )
        if not found or not found.approvals:
            await asyncio.sleep(rng.uniform(0, 0.5))
            return
        approval = rng.choice(list(found.approvals))
        request = self._submission(approval)
        if rng.random() < 0.15:
            _spoil(request, rng.random())
        if rng.random() < 0.25:
            # Somebody else changes their mind at the same moment.
            await asyncio.gather(self._submit(request), self.cancel(approval.run_id, 0))
        else:
            await self._submit(request)
        if rng.random() < 0.2:
            await self._submit(request)

    def _submission(self, approval: approval_pb2.Approval) -> approval_service_pb2.SubmitApprovalRequest:
        rng = self._world.rng
        request = approval_service_pb2.SubmitApprovalRequest(approval_id=approval.id)
        if rng.random() < 0.3:
            request = approval_service_pb2.SubmitApprovalRequest(run_id=approval.run_id)
        for waiting in approval.calls:
            decision = request.decisions.add(tool_call_id=waiting.call.id)
            if waiting.client_side and rng.random() < 0.8:
                decision.result.tool_call_id = waiting.call.id
                decision.result.outcome = message_pb2.ToolReturn.OUTCOME_SUCCEEDED
                decision.result.content.add().text.text = f"result {self._world.number()}"
            elif rng.random() < 0.6:
                decision.approve.SetInParent()
            else:
                decision.deny.reason = f"no {self._world.number()}"
        if rng.random() < 0.3:
            text = f"{approval.conversation_id} {self._world.number()}"
            request.follow_up.add().parts.add().text.text = text
        if rng.random() < 0.2:
            request.client_tools.append(tool_pb2.ClientTool(name=CLIENT_TOOL))
        if rng.random() < 0.5:
            request.request_id = f"a{self._world.number()}"
        return request

    async def _submit(self, request: approval_service_pb2.SubmitApprovalRequest) -> None:
        for _ in range(3):
            try:
                accepted = await self._try(lambda node: node.approvals.SubmitApproval(request, None))
            except Disconnected:
                continue
            if accepted is not None:
                self._world.trace(f"client: answer to {accepted.approval.id[:13]} accepted")
                follow_up = request.follow_up[0].parts[0].text.text if request.follow_up else ""
                decisions = [decision_from_pb(decision) for decision in request.decisions]
                approval = accepted.approval
                self._ledger.answers.append(Answer(approval.id, approval.run_id, decisions, follow_up))
                self._submissions.append(request)
            return

    # --- the end ------------------------------------------------------------------------------------------------------

    async def finish_reading(self, seconds: float) -> None:
        """Every reader must come to the end of its run."""
        if self._reading:
            await asyncio.wait(self._reading, timeout=seconds)
        for task in self._reading:
            task.cancel()


def _spoil(request: approval_service_pb2.SubmitApprovalRequest, how: float) -> None:
    """Too few, too many, or others than were asked about."""
    if how < 0.6:
        del request.decisions[0]
    if how > 0.3 or not request.decisions:
        request.decisions.add(tool_call_id="nobody").approve.SetInParent()


def _state(run: run_pb2.Run) -> RunState:
    return RunState(enum_text(run_pb2.Run.State, "STATE_", run.state))
