"""Sees every transaction and checks the promises that can be checked at once, without trusting the store's guards."""

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import Connection

from services.messages.model import Body, Role, ToolCall, ToolReturn
from services.runs.events import DELTAS, Entry, RunStopped, ToolProgress, decode
from services.runs.model import TRANSITIONS, ApprovalDetail, ApprovalState, RunState
from tests.simulation.world import World

_RUNS = """SELECT id, conversation_id, agent_id, state, stop_reason, owner_node, owner_epoch, checkpoint_no,
last_signal_no, consumed_signal_no, checkpoint_seq, last_seq, reserved_seq, cancel_requested_at, outcome FROM runs"""
_EVENTS = "SELECT rowid, run_id, payload FROM run_events WHERE rowid > ? ORDER BY rowid"
_MESSAGES = "SELECT rowid, id, run_id, conversation_id, seq, role, body FROM messages WHERE rowid > ? ORDER BY rowid"
_APPROVALS = "SELECT id, run_id, state, detail FROM approvals"
_FLOORS = "SELECT id, context_floor, summary_message_id FROM conversations"
_AGENTS = "SELECT id, last_stop_reason FROM agents"

_body = msgspec.json.Decoder(Body)
_detail = msgspec.json.Decoder(ApprovalDetail)
# What readers may be shown before it is durable.
FLEETING = (*DELTAS, ToolProgress)
# The owner's writes.
_OWNERS = ("checkpoint", "flush")


class RunRow(NamedTuple):
    """What the checks look at of a run."""

    id: str
    conversation_id: str
    agent_id: str
    state: str
    stop_reason: str | None
    owner_node: str | None
    owner_epoch: int
    checkpoint_no: int
    last_signal_no: int
    consumed_signal_no: int
    checkpoint_seq: int
    last_seq: int
    reserved_seq: int
    cancel_requested_at: str | None
    outcome: str

    @property
    def final(self) -> bool:
        """Whether nothing can follow."""
        return RunState(self.state).final

    @property
    def news(self) -> bool:
        """Whether something was said to it that it has not heard."""
        return self.last_signal_no > self.consumed_signal_no

    @property
    def active(self) -> bool:
        """Whether it has its conversation."""
        return self.state in (RunState.RUNNING, RunState.AWAITING_APPROVAL)


class MessageRow(NamedTuple):
    """A message, decoded."""

    id: str
    run_id: str
    conversation_id: str
    seq: int
    role: Role
    body: Body


class ApprovalRow(NamedTuple):
    """An approval, decoded."""

    id: str
    run_id: str
    state: ApprovalState
    detail: ApprovalDetail


class Witness:
    """The database as the world knows it, transaction by transaction."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.runs: dict[str, RunRow] = {}
        self.events: dict[str, dict[int, Entry]] = {}
        self.messages: list[MessageRow] = []
        self.approvals: dict[str, ApprovalRow] = {}
        # Arguments of a call (they are unique in a schedule) to the run it belongs to.
        self.calls: dict[str, tuple[str, ToolCall]] = {}
        self.on_final: Callable[[RunRow | None, RunRow, str], None] = lambda before, run, node: None
        self._approvals_raw: dict[str, tuple[str, str]] = {}
        # Where each context begins, and the message that stands for what lies below.
        self.floors: dict[str, tuple[int, str | None]] = {}
        self._last_event = 0
        self._last_message = 0
        self._changes = 0
        # The reason each agent must remember: that of its run that left its owner last.
        self._reasons: dict[str, str | None] = {}

    def look(self, conn: Connection, node: str, fn: Callable[..., Any], args: tuple[Any, ...]) -> None:
        """Check what this transaction did, before it commits."""
        raw: Any = conn.connection.driver_connection
        if raw.total_changes == self._changes:
            return
        self._changes = raw.total_changes
        changed = [row for row in map(RunRow._make, raw.execute(_RUNS)) if self.runs.get(row.id) != row]
        self._take_messages(raw)
        self._take_floors(raw)
        self._take_approvals(raw)
        fresh = self._take_events(raw)
        name = getattr(fn, "__name__", "")
        for row in changed:
            before = self.runs.get(row.id)
            self.runs[row.id] = row
            self._check_numbers(row)
            if before is not None:
                self._check_change(before, row)
                if name in _OWNERS:
                    self._check_owner(before, node, name, args)
            self._check_events(row, fresh.get(row.id, []))
            if row.final and (before is None or not before.final):
                self.on_final(before, row, node)
        if changed:
            self._check_serial()
            self._check_agents(raw)

    def _take_messages(self, raw: Any) -> None:
        for rowid, message_id, run_id, conversation_id, seq, role, body in raw.execute(
            _MESSAGES, (self._last_message,)
        ):
            self._last_message = rowid
            message = MessageRow(message_id, run_id, conversation_id, seq, Role(role), _body.decode(body))
            self.messages.append(message)
            for part in message.body.parts:
                if isinstance(part, ToolCall):
                    self.calls[part.arguments] = (run_id, part)

    def _take_floors(self, raw: Any) -> None:
        for conversation_id, floor, summary_id in raw.execute(_FLOORS):
            before = self.floors.get(conversation_id, (0, None))
            if (floor, summary_id) != before:
                self.floors[conversation_id] = (floor, summary_id)
                self._check_floor(conversation_id, before, floor, summary_id)

    def _check_floor(self, place: str, before: tuple[int, str | None], floor: int, summary_id: str | None) -> None:
        """The floor and its summary move together, upwards, and never between a call and its return."""
        self._world.trace(f"floor of {place[-4:]} is {floor}, was {before[0]}")
        moved = floor > before[0] and summary_id != before[1]
        self._world.check(moved, f"5: {place} was at {before} and is at {floor} {summary_id}")
        log = [m for m in self.messages if m.conversation_id == place]
        summary = next((m for m in log if m.id == summary_id), None)
        there = summary is not None and summary.role is Role.SUMMARY and summary is log[-1]
        self._world.check(there, f"5: the summary {summary_id} of {place} is not written with its floor")
        waiting: set[str] = set()
        for message in log:
            if message.seq == floor:
                break
            for part in message.body.parts:
                if isinstance(part, ToolCall):
                    waiting.add(part.id)
                elif isinstance(part, ToolReturn):
                    waiting.discard(part.call_id)
        self._world.check(not waiting, f"5: the floor {floor} of {place} cuts {waiting} from their returns")

    def context(self, conversation_id: str) -> list[MessageRow]:
        """What the model of a conversation must be shown: the summary, and the log from the floor."""
        floor, summary_id = self.floors.get(conversation_id, (0, None))
        log = [m for m in self.messages if m.conversation_id == conversation_id]
        kept = [m for m in log if m.seq >= floor and m.role is not Role.SUMMARY]
        return [*(m for m in log if m.id == summary_id), *kept]

    def _take_approvals(self, raw: Any) -> None:
        for approval_id, run_id, state, detail in raw.execute(_APPROVALS):
            before = self._approvals_raw.get(approval_id)
            if before == (state, detail):
                continue
            self._approvals_raw[approval_id] = (state, detail)
            self.approvals[approval_id] = ApprovalRow(approval_id, run_id, ApprovalState(state), _detail.decode(detail))
            if before is not None:
                self._world.check(before[0] == ApprovalState.PENDING, f"4: {approval_id} was decided twice")
            self._world.trace(f"{approval_id[:13]} of {run_id[:8]} is {state}")

    def _take_events(self, raw: Any) -> dict[str, list[Entry]]:
        fresh: dict[str, list[Entry]] = {}
        for rowid, run_id, payload in raw.execute(_EVENTS, (self._last_event,)):
            self._last_event = rowid
            known = self.events.setdefault(run_id, {})
            last = next(reversed(known)) if known else 0
            for entry in decode(payload):
                self._world.check(entry.seq > last, f"6: event {entry.seq} of {run_id} follows {last}")
                stopped = last and isinstance(known[last].event, RunStopped)
                self._world.check(not stopped, f"6: {run_id} has an event after its last one")
                last = entry.seq
                known[last] = entry
                fresh.setdefault(run_id, []).append(entry)
        return fresh

    def _check_numbers(self, row: RunRow) -> None:
        ordered = row.checkpoint_seq <= row.last_seq <= row.reserved_seq
        self._world.check(ordered, f"6: numbers of {row.id} are out of order: {row}")
        self._world.check(row.consumed_signal_no <= row.last_signal_no, f"4: {row.id} consumed what was not said")
        if row.state != RunState.RUNNING:
            waits = row.state == RunState.AWAITING_APPROVAL
            self._world.check(
                not row.final or not row.news, f"4: {row.id} stopped without hearing all that was said to it"
            )
            if not waits and row.state != RunState.QUEUED:
                self._world.check(row.owner_node is None, f"8: {row.id} is {row.state} and has an owner")

    def _check_change(self, before: RunRow, row: RunRow) -> None:
        if self._world.tracing:
            self._world.trace(
                f"{row.id[:8]} {before.state}->{row.state} epoch {row.owner_epoch} owner {str(row.owner_node)[-4:]} "
                f"cp {row.checkpoint_no} seq {row.last_seq}/{row.reserved_seq} "
                f"signals {row.consumed_signal_no}/{row.last_signal_no}"
            )
        world = self._world
        # One checkpoint may answer, finish and stop: it passes through RUNNING unseen.
        through = TRANSITIONS[RunState.RUNNING] if before.state == RunState.AWAITING_APPROVAL else frozenset()
        allowed = TRANSITIONS[RunState(before.state)] | through | {before.state}
        world.check(row.state in allowed, f"2: {row.id} went from {before.state} to {row.state}")
        world.check(not before.final or before == row, f"2: {row.id} changed after it was {before.state}: {row}")
        world.check(row.owner_epoch >= before.owner_epoch, f"1: the epoch of {row.id} went back")
        grew = row.last_seq >= before.last_seq and row.reserved_seq >= before.last_seq
        world.check(grew, f"6: numbers of {row.id} went back: {before} -> {row}")
        kept = row.reserved_seq >= before.reserved_seq or row.state != RunState.RUNNING
        world.check(kept, f"6: {row.id} gave up numbers that readers may have seen")
        world.check(row.consumed_signal_no >= before.consumed_signal_no, f"4: {row.id} unheard a signal")
        if row.final and before.cancel_requested_at is not None:
            world.check(row.state == RunState.CANCELLED, f"2: {row.id} was told to stop and is {row.state}")
        leaves = row.state == RunState.AWAITING_APPROVAL and before.state == RunState.RUNNING
        if leaves:
            heard = row.consumed_signal_no == row.last_signal_no
            world.check(heard, f"4: {row.id} began to wait without hearing all that was said to it")
            world.check(row.owner_node is None, f"8: {row.id} waits and has an owner")
        if row.state == RunState.CANCELLED:
            world.check(row.cancel_requested_at is not None, f"2: {row.id} is cancelled and nobody asked")
        if row.state != before.state and row.state not in (RunState.RUNNING, RunState.QUEUED):
            self._reasons[row.agent_id] = row.stop_reason

    def _check_owner(self, before: RunRow, node: str, name: str, args: tuple[Any, ...]) -> None:
        run_id, epoch = (args[0].run.id, args[0].epoch) if name == "checkpoint" else (args[0], args[1])
        if run_id == before.id:
            owns = before.owner_node == node and before.owner_epoch == epoch
            self._world.check(owns, f"1: {name} of {run_id} by epoch {epoch}, but {before.owner_epoch} owns it")

    def _check_events(self, row: RunRow, fresh: list[Entry]) -> None:
        if fresh:
            self._world.check(fresh[-1].seq == row.last_seq, f"6: the last event of {row.id} is not its last_seq")
        known = self.events.get(row.id, {})
        ended = bool(known) and isinstance(known[next(reversed(known))].event, RunStopped)
        self._world.check(
            ended == row.final, f"6: {row.id} is {row.state}, its log {'ended' if ended else 'did not end'}"
        )

    def _check_serial(self) -> None:
        active = [row.conversation_id for row in self.runs.values() if row.active]
        self._world.check(len(active) == len(set(active)), "1: two runs of one conversation are active")

    def _check_agents(self, raw: Any) -> None:
        for agent_id, reason in raw.execute(_AGENTS):
            if agent_id in self._reasons:
                told = reason == self._reasons[agent_id]
                self._world.check(told, f"{agent_id} remembers {reason}, not {self._reasons[agent_id]}")
