"""A model that says what the seed says: text, calls, both, nothing, too late, or half of it."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from contextvars import ContextVar

from services.context.prompt import shown
from services.messages.model import Role, Text, ToolCall, ToolReturn
from services.models.api import (
    CallArguments,
    CallStarted,
    ContextMessage,
    Finish,
    Finished,
    ModelEvent,
    ModelRequest,
    ReasoningChunk,
    TextChunk,
)
from services.models.errors import ModelError, ModelErrorType
from services.runs.model import RunState, Usage
from tests.simulation.database import Host
from tests.simulation.template import SUMMARISE
from tests.simulation.tools import CLIENT_TOOL, GUARDED
from tests.simulation.witness import RunRow, Witness
from tests.simulation.world import World

_CONVERSATION = re.compile(r"conv-[0-9a-f-]{36}")
# Set where somebody asked for a summary and no run needs it.
ASKED: ContextVar[bool] = ContextVar("ASKED", default=False)


class Studio:
    """Every model call of a schedule that is open, on whatever node: (node, run)."""

    def __init__(self, world: World, witness: Witness) -> None:
        self._world = world
        self._witness = witness
        self.open: list[tuple[str, str]] = []

    def begin(self, node: str, request: ModelRequest) -> str:
        """A model call starts: what it is shown must be the log, whole and in order. Says whose it is."""
        conversation_id = _conversation(request)
        self._world.trace(f"model call with {len(request.messages)} messages")
        run_id = "" if ASKED.get() else self._run(node, conversation_id)
        self.open.append((node, run_id))
        # A zombie may be shown the log of its successor; nobody will hear what its model says.
        if run_id and not summarises(request):
            _check_pairs(self._world, request.messages)
            context = self._witness.context(conversation_id)
            same = list(request.messages) == shown((m.role, m.body) for m in context)
            self._world.check(same, f"5: the model of {conversation_id} is shown something else than the log")
        return run_id

    def end(self, node: str, run_id: str) -> None:
        """It is closed."""
        self._world.trace("model call closed")
        self.open.remove((node, run_id))

    def _run(self, node: str, conversation_id: str) -> str:
        """The run that this node works on in the conversation, if any."""
        mine = (
            row.id
            for row in self._witness.runs.values()
            if row.owner_node == node and row.state == RunState.RUNNING and row.conversation_id == conversation_id
        )
        return next(mine, "")

    def check_stopped(self, run: RunRow, node: str) -> None:
        """A run ended: its model call must have ended before."""
        left = (node, run.id) in self.open
        self._world.check(not left, f"2: {run.id} is {run.state} and its model still talks")


def summarises(request: ModelRequest) -> bool:
    """Whether it asks for a summary."""
    return request.system.startswith(SUMMARISE)


def _conversation(request: ModelRequest) -> str:
    """Every message that clients send begins with the id of its conversation, and every summary has it."""
    first = request.messages[0].parts[0]
    found = _CONVERSATION.search(first.text) if isinstance(first, Text) else None
    return found.group() if found else ""


def _check_pairs(world: World, messages: tuple[ContextMessage, ...]) -> None:
    """Every call has its one return, in the message right behind it."""
    open_calls: list[str] = []
    for message in messages:
        calls = [part.id for part in message.parts if isinstance(part, ToolCall)]
        returns = [part.call_id for part in message.parts if isinstance(part, ToolReturn)]
        if message.role is Role.TOOL or open_calls:
            world.check(sorted(returns) == sorted(open_calls), f"5: calls {open_calls} are followed by {returns}")
        world.check(len(set(calls)) == len(calls), f"4: one id for two calls: {calls}")
        open_calls = calls
    world.check(not open_calls, f"5: calls {open_calls} have no returns")


class SimModels:
    """A node's models."""

    def __init__(self, world: World, studio: Studio, host: Host) -> None:
        self._world = world
        self._studio = studio
        self._host = host

    async def knows(self, organization_id: str, handle: str) -> bool:
        """Any handle will do."""
        return True

    async def resolve(self, organization_id: str, handle: str) -> tuple["SimModels", str]:
        """There is one model."""
        return self, handle

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """One turn."""
        rng, node = self._world.rng, self._host.name
        run_id = self._studio.begin(node, request)
        try:
            for event in self._summary(request) if summarises(request) else self._turn(request):
                if rng.random() < 0.4:
                    await asyncio.sleep(rng.choice((0.0, 0.005, 0.1, 0.4)) * rng.random() * self._world.hazards.pace)
                yield event
        finally:
            self._studio.end(node, run_id)

    def preview(self, request: ModelRequest) -> bytes:
        """Nobody asks."""
        return b""

    def _turn(self, request: ModelRequest) -> list[ModelEvent]:
        rng, names = self._world.rng, [tool.name for tool in request.tools]
        if self._world.hazards.calm:
            return self._calls(names[:1]) if request.forced else self._answer()
        kind = rng.random()
        if kind < 0.05:
            raise ModelError(rng.choice(list(ModelErrorType)), "the provider failed")
        if rng.random() < 0.04:
            raise ModelError(ModelErrorType.CONTEXT_WINDOW_EXCEEDED, "the provider has a smaller window")
        if kind < 0.08:
            return self._answer()[:-1]
        if kind < 0.10:
            return [Finished(Finish.STOP)]
        if kind < 0.14:
            return [*self._answer()[:-1], Finished(rng.choice((Finish.LENGTH, Finish.REFUSAL)), Usage(3, 3))]
        if kind < 0.35 or not names:
            return self._answer()
        said = self._answer()[:-1] if rng.random() < 0.5 else []
        weights = [3 if name in (*GUARDED, CLIENT_TOOL) else 1 for name in names]
        chosen = rng.choices([*names, "unknown"], [*weights, 1], k=rng.choice((1, 1, 2, 3)))
        return [*said, *self._calls(chosen)]

    def _summary(self, request: ModelRequest) -> list[ModelEvent]:
        rng = self._world.rng
        kind = 1.0 if self._world.hazards.calm else rng.random()
        if kind < 0.15:
            raise ModelError(rng.choice(list(ModelErrorType)), "the provider failed")
        if kind < 0.2:
            return [Finished(rng.choice(list(Finish)))]
        words = [f"{_conversation(request)} ", *(f"s{self._world.number()} " for _ in range(rng.choice((1, 6))))]
        written: list[ModelEvent] = [TextChunk(word) for word in words]
        if kind < 0.3:
            return written
        return [*written, Finished(Finish.STOP, Usage(5, len(words)) if rng.random() < 0.7 else None)]

    def _answer(self) -> list[ModelEvent]:
        rng = self._world.rng
        said: list[ModelEvent] = [ReasoningChunk("hm ")] if rng.random() < 0.2 else []
        said += [TextChunk(f"w{self._world.number()} ") for _ in range(rng.choice((1, 3, 12)))]
        return [*said, Finished(Finish.STOP, Usage(5, len(said)) if rng.random() < 0.7 else None)]

    def _calls(self, names: list[str]) -> list[ModelEvent]:
        rng = self._world.rng
        # Some providers count from zero in every turn, some give no ids, some are right.
        style = rng.choice(("unique", "unique", "repeated", "same", "none"))
        events: list[ModelEvent] = []
        for index, name in enumerate(names):
            number = self._world.number()
            call_id = {"unique": f"call-{number}", "repeated": f"call-{index}", "same": "call", "none": ""}[style]
            arguments = json.dumps({"n": number}) if rng.random() < 0.95 else f"broken {number}"
            events += [CallStarted(index, call_id, name), CallArguments(index, arguments)]
        return [*events, Finished(Finish.TOOL_CALLS, Usage(5, 5))]
