"""Tools that only note that they were run, for as long as the seed says."""

import asyncio
import contextlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from services.messages.model import Approve, Outcome, Text, ToolCall, ToolReturn
from services.runs.events import ToolStarted
from services.runs.model import ApprovalState
from services.tools.api import CrashPolicy, ToolContext, ToolDefinition
from tests.simulation.database import Host
from tests.simulation.witness import Witness
from tests.simulation.world import World

if TYPE_CHECKING:
    from sqlalchemy import Connection


class Execution(NamedTuple):
    """One execution of a call; `key` is its arguments, which are unique in a schedule."""

    key: str
    name: str
    run_id: str
    node: str


def _tool(number: int, name: str, policy: CrashPolicy, *, parallel: bool = False) -> ToolDefinition:
    return ToolDefinition(
        id=f"tool-51000000-0000-4000-8000-{number:012}",
        name=name,
        description=name,
        parameters={"type": "object"},
        parallel=parallel,
        crash_policy=policy,
    )


TOOLS = (
    _tool(1, "once", CrashPolicy.NEVER),
    _tool(2, "once_parallel", CrashPolicy.NEVER, parallel=True),
    _tool(3, "again", CrashPolicy.RETRY),
    _tool(4, "again_parallel", CrashPolicy.RETRY, parallel=True),
    _tool(5, "ask", CrashPolicy.ASK),
    _tool(6, "guarded", CrashPolicy.NEVER),
    _tool(7, "guarded_parallel", CrashPolicy.ASK, parallel=True),
    _tool(8, "stubborn", CrashPolicy.NEVER, parallel=True),
)
GUARDED = ("guarded", "guarded_parallel")
CLIENT_TOOL = "on_client"
_BY_ID = {tool.id: tool for tool in TOOLS}
BY_NAME = {tool.name: tool for tool in TOOLS}


class Workshop:
    """Every execution of a schedule, on whatever node, and the promises about them."""

    def __init__(self, world: World, witness: Witness) -> None:
        self._world = world
        self._witness = witness
        self.started: list[Execution] = []
        self.running: list[Execution] = []
        self.returned: dict[str, list[str]] = {}

    def begin(self, execution: Execution, call: ToolCall) -> None:
        """A tool starts: it must be allowed to."""
        world, key = self._world, execution.key
        world.trace(f"tool {execution.name} {key} starts")
        run_id, stored = self._witness.calls.get(key, ("", None))
        world.check(stored == call and run_id == execution.run_id, f"4: {key} runs and is not in the log as it runs")
        told = self._witness.events.get(run_id, {}).values()
        announced = any(isinstance(e.event, ToolStarted) and e.event.call_id == call.id for e in told)
        world.check(announced, f"7: {key} runs before its start is durable")
        before = [each for each in self.started if each.key == key]
        asks = self._approved(key)
        if call.needs_approval:
            world.check(asks > 0, f"approval: {key} runs and nobody approved it")
        policy = BY_NAME[execution.name].crash_policy
        if policy is CrashPolicy.NEVER:
            world.check(not before, f"4: {key} runs a second time")
        elif policy is CrashPolicy.ASK:
            most = asks if call.needs_approval else 1 + asks
            world.check(len(before) < most, f"4: {key} runs {len(before) + 1} times with {asks} approvals")
        self.started.append(execution)
        self.running.append(execution)

    def end(self, execution: Execution, text: str | None) -> None:
        """It is over; None: it was stopped."""
        self.running.remove(execution)
        self._world.trace(f"tool {execution.name} {execution.key} ends: {text}")
        if text is not None:
            self.returned.setdefault(execution.key, []).append(text)

    def _approved(self, key: str) -> int:
        """How often a person said yes to this very call."""
        return sum(
            isinstance(decision.verdict, Approve)
            for approval in self._witness.approvals.values()
            if approval.state is ApprovalState.DECIDED
            for waiting, decision in zip(approval.detail.calls, approval.detail.decisions, strict=True)
            if waiting.call.arguments == key
        )


class SimTools:
    """A node's catalog and runner."""

    def __init__(self, world: World, workshop: Workshop, host: Host) -> None:
        self._world = world
        self._workshop = workshop
        self._host = host

    def find(
        self, conn: "Connection", organization_id: str, ids: Sequence[str], names: Sequence[str] = ()
    ) -> list[ToolDefinition]:
        """Not asked by the engine."""
        return [*self.load(conn, organization_id, ids), *(BY_NAME[name] for name in names)]

    def load(self, conn: "Connection", organization_id: str, ids: Sequence[str]) -> list[ToolDefinition]:
        """Those of these tools that are still there."""
        return [_BY_ID[each] for each in ids if each in _BY_ID]

    async def run(self, tool: ToolDefinition, call: ToolCall, context: ToolContext) -> ToolReturn:
        """Take some time, report now and then, and succeed or fail."""
        execution = Execution(call.arguments, tool.name, context.run_id, self._host.name)
        self._workshop.begin(execution, call)
        try:
            text = await self._work(tool, call, context)
        except asyncio.CancelledError:
            if tool.name == "stubborn" and not self._host.dead:
                await self._sleep_through(self._world.rng.uniform(0, 3))
            self._workshop.end(execution, None)
            raise
        self._workshop.end(execution, text)
        if text.startswith("!"):
            raise RuntimeError(text)
        outcome = Outcome.FAILED if text.startswith("-") else Outcome.SUCCEEDED
        return ToolReturn(call.id, call.name, outcome, (Text(text),))

    async def _work(self, tool: ToolDefinition, call: ToolCall, context: ToolContext) -> str:
        rng = self._world.rng
        json.loads(call.arguments)
        for piece in range(rng.choice((0, 0, 1, 8))):
            context.progress(f"{piece}")
            if rng.random() < 0.3:
                await asyncio.sleep(rng.uniform(0, 0.2))
        await asyncio.sleep(rng.choice((0.0, 0.01, 0.5, 2.0)) * rng.random() * self._world.hazards.pace)
        return f"{rng.choice(('', '', '', '-', '!'))}{tool.name} {self._world.number()}"

    async def _sleep_through(self, seconds: float) -> None:
        """As a tool does that does not listen when it is told to stop."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while loop.time() < until and not self._host.dead:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(until - loop.time())
