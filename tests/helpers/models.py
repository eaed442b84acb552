"""A model and tools that do what a test tells them, when it tells them, and remember what was asked of them."""

import asyncio
import itertools
import json
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec

from common.ids import Prefix, new_id
from services.models.api import (
    CallArguments,
    CallStarted,
    Finish,
    Finished,
    ModelEvent,
    ModelRequest,
    ReasoningChunk,
    TextChunk,
)
from services.models.errors import ModelError, ModelErrorType
from services.runs.model import Usage
from services.tools.api import CrashPolicy, ToolContext, ToolDefinition
from services.tools.functions import FunctionTool

PROVIDER = "script"

Hook = Callable[[], Awaitable[None]]
USAGE = Usage(input_tokens=10, output_tokens=5)


class Gate:
    """A place where something waits until the test lets it go on."""

    def __init__(self, *, is_open: bool = False) -> None:
        self._reached = asyncio.Event()
        self._opened = asyncio.Event()
        if is_open:
            self._opened.set()

    def open(self) -> None:
        """Let it go on."""
        self._opened.set()

    async def pass_through(self) -> None:
        """Say that somebody is here, and wait."""
        self._reached.set()
        await self._opened.wait()

    async def reached(self, timeout: float = 5.0) -> None:
        """Until somebody waits here."""
        async with asyncio.timeout(timeout):
            await self._reached.wait()


Item = ModelEvent | Gate | Hook | BaseException
Turn = tuple[Item, ...]


def say(*words: str | Gate | Hook, usage: Usage | None = USAGE) -> Turn:
    """A turn that ends the model's part, token by token; a gate between two tokens holds it there."""
    return (*(TextChunk(word) if isinstance(word, str) else word for word in words), Finished(Finish.STOP, usage))


def call(name: str, call_id: str = "", before: tuple[Item, ...] = (), **arguments: object) -> Turn:
    """A turn that calls one tool."""
    return calls((name, call_id, arguments), before=before)


def calls(*wanted: tuple[str, str, dict[str, Any]], before: tuple[Item, ...] = ()) -> Turn:
    """A turn that calls several tools, each `(name, call id, arguments)`; an empty id is made up by the engine."""
    items: list[Item] = [*before]
    for index, (name, call_id, arguments) in enumerate(wanted):
        items += [CallStarted(index, call_id, name), CallArguments(index, json.dumps(arguments))]
    return (*items, Finished(Finish.TOOL_CALLS, USAGE))


def think(text: str) -> Item:
    """A piece of reasoning."""
    return ReasoningChunk(text)


def fail(kind: ModelErrorType = ModelErrorType.ERROR, *before: Item, message: str = "made to fail") -> Turn:
    """A turn that fails as a provider would, after what comes before."""
    return (*before, ModelError(kind, message, detail="as told"))


@dataclass
class ModelCall:
    """One call of a model, as the provider saw it."""

    request: ModelRequest
    # How it ended: `finished`, `failed`, or `closed` if the engine hung up; and when.
    ended: str = ""
    ended_at: datetime | None = None
    _gone: asyncio.Event = field(default_factory=asyncio.Event)

    def end(self, how: str) -> None:
        """The connection is gone."""
        if not self.ended:
            self.ended, self.ended_at = how, datetime.now(UTC)
        self._gone.set()

    async def gone(self, timeout: float = 5.0) -> str:
        """How it ended, once it has."""
        async with asyncio.timeout(timeout):
            await self._gone.wait()
        return self.ended


class ScriptedModel:
    """One model. It takes the turns it was given in order, and says `ok` when there are none left."""

    def __init__(self, name: str) -> None:
        self.handle = f"{PROVIDER}/{name}"
        self.calls: list[ModelCall] = []
        self._turns: deque[Turn] = deque()

    def will(self, *turns: Turn) -> None:
        """What it does in its next calls."""
        self._turns.extend(turns)

    def forget(self) -> None:
        """Drop the turns that nobody asked for."""
        self._turns.clear()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """One turn."""
        made = ModelCall(request)
        self.calls.append(made)
        turn = self._turns.popleft() if self._turns else say("ok")
        try:
            for item in turn:
                if isinstance(item, Gate):
                    await item.pass_through()
                elif isinstance(item, BaseException):
                    raise item
                elif callable(item):
                    await item()
                else:
                    yield item
            made.end("finished")
        except (asyncio.CancelledError, GeneratorExit):
            made.end("closed")
            raise
        except BaseException:
            made.end("failed")
            raise

    def preview(self, request: ModelRequest) -> bytes:
        """The request itself."""
        return msgspec.json.encode(request)


class ScriptedModels:
    """The models of a test, by handle; `make` adds one."""

    def __init__(self) -> None:
        self._models: dict[str, ScriptedModel] = {}
        self._numbers = itertools.count(1)

    def make(self) -> ScriptedModel:
        """A model of its own for one agent."""
        model = ScriptedModel(str(next(self._numbers)))
        self._models[model.handle] = model
        return model

    def remove(self, model: ScriptedModel) -> None:
        """From now on nobody serves this model."""
        del self._models[model.handle]

    async def knows(self, organization_id: str, handle: str) -> bool:
        """Whether agents may name this handle."""
        return handle in self._models

    async def resolve(self, organization_id: str, handle: str) -> tuple[ScriptedModel, str]:
        """The provider and the name it knows the model by."""
        if handle not in self._models:
            raise ModelError(ModelErrorType.BAD_REQUEST, f"The model {handle} is not there.")
        return self._models[handle], handle.partition("/")[2]


class ProbeTool:
    """A tool that remembers. It returns `returns`, raises `fails`, or waits at its gate until it is let through."""

    def __init__(
        self,
        name: str,
        *,
        returns: str = "",
        fails: str = "",
        gate: Gate | None = None,
        approval: bool = False,
        parallel: bool = False,
        crash_policy: CrashPolicy = CrashPolicy.NEVER,
        return_char_limit: int = 50_000,
        progress: int = 0,
    ) -> None:
        self.returns = returns or f"{name} ran"
        self.fails = fails
        self.gate = gate or Gate(is_open=True)
        self.progress = progress
        self.started: list[dict[str, Any]] = []
        self.call_ids: list[str] = []
        self.finished = 0
        self.cancelled_at: list[datetime] = []
        definition = ToolDefinition(
            id=new_id(Prefix.TOOL),
            name=name,
            description=f"The tool {name} of a test.",
            parameters={"type": "object", "properties": {}},
            default_requires_approval=approval,
            parallel=parallel,
            crash_policy=crash_policy,
            return_char_limit=return_char_limit,
        )
        self.name = name
        self.tool = FunctionTool(definition, self._run)

    async def _run(self, arguments: dict[str, Any], context: ToolContext) -> str:
        self.started.append(arguments)
        self.call_ids.append(context.call_id)
        try:
            for number in range(self.progress):
                context.progress(f"report {number}")
            await self.gate.pass_through()
        except asyncio.CancelledError:
            self.cancelled_at.append(datetime.now(UTC))
            raise
        if self.fails:
            raise RuntimeError(self.fails)
        self.finished += 1
        return self.returns
