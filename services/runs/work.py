"""What an actor has done for it: model calls and tool calls, each a child task that ends in one message to it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Protocol

import msgspec

from common.clock import Clock
from services.messages.model import ToolCall
from services.models import tokens
from services.models.api import ModelRequest, Models
from services.models.errors import ModelError, ModelErrorType
from services.models.fold import Delta, TurnFold
from services.models.trace import Call
from services.models.usage import at_once, estimate
from services.models.watching import CallWatch
from services.runs.log import Tail
from services.runs.model import RunError, StopReason, Trigger, Usage
from services.runs.protocol import CallModel, Cancelled, ModelFailed, ModelTurn, Overflow, ToolDone
from services.runs.traces import StepTrace
from services.runs.turns import failed
from services.tools.api import ToolContext, ToolDefinition, ToolRunner

logger = logging.getLogger(__name__)

# A child that has not gone by then is left behind: its outcome will not be heard.
_STOP_SECONDS = 2.0

INTERNAL_ERROR = RunError("internal_error", "An internal error stopped the run.")


class ModelWork:
    """One model call. What it has shown so far can be asked for at any moment."""

    def __init__(
        self,
        effect: CallModel,
        organization_id: str,
        handle: str,
        tail: Tail,
        clock: Clock,
        trace: StepTrace | None = None,
    ) -> None:
        self._effect = effect
        self._organization_id = organization_id
        self._handle = handle
        self._tail = tail
        self._clock = clock
        self._trace = trace
        self._watch = trace.watch if trace is not None else CallWatch()
        self._fold = TurnFold(effect.message_id)
        self._request: ModelRequest | None = None
        self._began = clock.monotonic()
        self._first: float | None = None

    @property
    def streaming(self) -> bool:
        """Whether the first token has come."""
        return self._fold.started

    async def run(
        self, models: Models, build: Callable[[], Awaitable[ModelRequest]], wait_for_room: Callable[[], Awaitable[None]]
    ) -> ModelTurn | ModelFailed | Overflow:
        """Stream one turn into the log; its outcome is the return value, never an exception."""
        outcome: ModelTurn | ModelFailed | Overflow | None = None
        try:
            outcome = await self._run(models, build, wait_for_room)
            return outcome
        finally:
            # Also of a call that was cancelled: what had come until then. Not of one that is made once it fits.
            if self._trace is not None and not (isinstance(outcome, Overflow) and self._request is None):
                self._trace.end(self._traced(outcome))

    async def _run(
        self, models: Models, build: Callable[[], Awaitable[ModelRequest]], wait_for_room: Callable[[], Awaitable[None]]
    ) -> ModelTurn | ModelFailed | Overflow:
        try:
            provider, name = await models.resolve(self._organization_id, self._handle)
            self._request = msgspec.structs.replace(await build(), model=name, watch=self._watch)
            async with aclosing(provider.stream(self._request)) as events:
                async for event in events:
                    delta = self._fold.add(event)
                    if delta is not None:
                        await self._show(delta, wait_for_room)
        except ModelError as error:
            if error.kind is ModelErrorType.CONTEXT_WINDOW_EXCEEDED and not self._fold.started:
                # Nothing is billed for a call that was refused, or not made.
                trigger = Trigger.THRESHOLD if self._request is None else Trigger.PROVIDER
                return Overflow(error.as_run_error(), error.stop_reason, trigger, self._watch.earlier)
            return self._failure(error.as_run_error(), error.stop_reason)
        except Exception:
            logger.exception("a model call broke")
            return self._failure(INTERNAL_ERROR, StopReason.ERROR)
        if self._told() is None and not tokens.loaded():
            await asyncio.to_thread(tokens.load)
        return self._turn()

    def cut(self) -> Cancelled:
        """What is left of the call when it is cancelled."""
        usage = self._watch.earlier if self._watch.refused else self._usage(urgent=True)
        return Cancelled(self._fold.shown_text(), usage, self._first_token_us())

    async def _show(self, delta: Delta, wait_for_room: Callable[[], Awaitable[None]]) -> None:
        if self._first is None:
            self._first = self._clock.monotonic()
        if self._tail.full:
            await wait_for_room()
        self._tail.append(delta)

    def _turn(self) -> ModelTurn | ModelFailed:
        if self._fold.finish is None:
            error = ModelError(ModelErrorType.ERROR, "The model's answer broke off.")
            return self._failure(error.as_run_error(), error.stop_reason)
        return ModelTurn(
            parts=self._fold.parts(),
            finish=self._fold.finish,
            usage=self._usage(),
            forced=self._effect.forced,
            first_token_us=self._first_token_us(),
            model_us=_us(self._clock.monotonic() - self._began),
        )

    def _failure(self, error: RunError, reason: StopReason) -> ModelFailed:
        # What the provider has refused, or was never asked, costs nothing.
        usage = self._usage(urgent=True) if self._fold.started or self._watch.costs else self._watch.earlier
        return ModelFailed(error, reason, self._fold.shown_text(), usage, self._first_token_us())

    def _told(self) -> Usage | None:
        return self._fold.usage or (self._watch.usage if self._watch.whole else None)

    def _usage(self, *, urgent: bool = False) -> Usage:
        watch, told = self._watch, self._told()
        if told is None:
            measure = at_once() if urgent else tokens.count
            told = estimate(self._request, self._fold.parts(), watch.usage, measure)
        return watch.earlier + told

    def _traced(self, outcome: ModelTurn | ModelFailed | Overflow | None) -> Call:
        error = outcome.error if isinstance(outcome, ModelFailed | Overflow) else None
        how = "cancelled" if outcome is None else error.type if error is not None else "ok"
        usage = self.cut().usage if outcome is None else outcome.usage
        return Call(self._watch, self._request, self._fold.parts(), usage, how, error)

    def _first_token_us(self) -> int | None:
        return None if self._first is None else _us(self._first - self._began)


async def run_tool(
    runner: ToolRunner, tool: ToolDefinition, call: ToolCall, context: ToolContext, clock: Clock
) -> ToolDone:
    """Run one call; its outcome is the return value, never an exception."""
    began = clock.monotonic()
    try:
        result = await runner.run(tool, call, context)
    except Exception:
        logger.exception("a tool runner broke")
        result = failed(call, "Error: the tool could not be run.")
    return ToolDone(result, _us(clock.monotonic() - began))


class Talk(Protocol):
    """A call of a model that is under way."""

    @property
    def streaming(self) -> bool:
        """Whether a client has seen some of it."""
        ...

    def cut(self) -> Cancelled:
        """What is left of it when it is cancelled."""
        ...


class Children:
    """The tasks of one actor."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: set[asyncio.Task[None]] = set()
        self.model: Talk | None = None
        self.tools = 0

    def __bool__(self) -> bool:
        return bool(self._tasks)

    def start(self, work: Awaitable[None]) -> None:
        """Run beside the actor."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Cancel all of them and wait until they are gone."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            _, left = await asyncio.wait(tasks, timeout=_STOP_SECONDS)
            if left:
                logger.error("work did not stop when it was cancelled", extra={"run_id": self._name})
        self._tasks.clear()


def _us(seconds: float) -> int:
    return round(seconds * 1_000_000)
