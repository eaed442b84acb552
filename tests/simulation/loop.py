"""An event loop without a clock, threads or I/O: a seed decides what happens first where the order is open."""

import asyncio
import contextlib
import contextvars
import heapq
import itertools
import random
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVarTuple

Ts = TypeVarTuple("Ts")

# The process a piece of code runs in; "" is the outside world (clients, the test itself).
NODE: contextvars.ContextVar[str] = contextvars.ContextVar("node", default="")

# So many rounds without time passing mean that somebody spins.
_MOST_ROUNDS_AT_ONE_MOMENT = 20_000
_ROUND_SECONDS = 1e-7


class Spinning(Exception):
    """Time stands still although things happen: a busy loop."""


class SimTask(asyncio.Task[Any]):
    """A task whose place in a set does not depend on its address in memory."""

    _numbers = itertools.count()

    def __init__(self, coro: Generator[Any, None, Any] | Coroutine[Any, Any, Any], **options: Any) -> None:
        self._number = next(SimTask._numbers)
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other

    @classmethod
    def restart_numbers(cls) -> None:
        """Begin a new schedule."""
        cls._numbers = itertools.count()


class SimLoop(asyncio.BaseEventLoop):
    """Virtual time jumps to the next timer when nothing is ready. Nothing of a frozen node runs until it thaws."""

    def __init__(self, rng: random.Random, *, shuffle: bool) -> None:
        super().__init__()
        SimTask.restart_numbers()
        self._rng = rng
        self._shuffle = shuffle
        self._now = 0.0
        self._rounds = 0
        self._order = itertools.count()
        self._soon: list[tuple[asyncio.Handle, str]] = []
        self._timers: list[tuple[float, int, asyncio.TimerHandle, str]] = []
        self._frozen: dict[str, list[tuple[asyncio.Handle, str]]] = {}
        self._tasks: dict[str, list[SimTask]] = {}
        self._failure: BaseException | None = None
        self.set_task_factory(self._new_task)

    # --- what asyncio asks of a loop ----------------------------------------------------------------------------------

    def time(self) -> float:
        """Seconds since the schedule began."""
        return self._now

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """Run in one of the next rounds."""
        context = contextvars.copy_context() if context is None else context
        handle = asyncio.Handle(callback, args, self, context)
        self._soon.append((handle, context.get(NODE, "")))
        return handle

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """Run when virtual time has come this far."""
        context = contextvars.copy_context() if context is None else context
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._order), timer, context.get(NODE, "")))
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is skipped when its time comes."""

    def _new_task(self, loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> SimTask:
        context: contextvars.Context | None = options.pop("context", None)
        # An empty context is false.
        context = contextvars.copy_context() if context is None else context
        task = SimTask(coro, loop=loop, context=context, **options)
        self._tasks.setdefault(context.get(NODE, ""), []).append(task)
        return task

    def _run_once(self) -> None:
        if self._failure is not None:
            raise self._failure
        if not self._soon:
            self._jump()
        self._rounds += 1
        # Code takes time. Without this a wait for less than a float can tell apart would never end.
        self._now += _ROUND_SECONDS
        if self._rounds > _MOST_ROUNDS_AT_ONE_MOMENT:
            raise Spinning(f"a busy loop at {self._now:.3f} s")
        ready, self._soon = self._soon, []
        if self._shuffle and len(ready) > 1:
            self._rng.shuffle(ready)
        for handle, node in ready:
            if handle.cancelled():
                continue
            if node in self._frozen:
                self._frozen[node].append((handle, node))
            else:
                handle._run()  # noqa: SLF001 - there is no other way to run a handle

    def _jump(self) -> None:
        if not self._timers:
            raise Spinning("nothing can ever happen again")
        self._now, self._rounds = max(self._now, self._timers[0][0]), 0
        while self._timers and self._timers[0][0] <= self._now:
            _, _, timer, node = heapq.heappop(self._timers)
            if not timer.cancelled():
                self._soon.append((timer, node))

    # --- what a simulation asks of it ---------------------------------------------------------------------------------

    def fail(self, failure: BaseException) -> None:
        """End the schedule: raised out of the loop before anything else runs."""
        self._failure = self._failure or failure

    def freeze(self, node: str) -> None:
        """Nothing of this node runs from here on; its timers ring when it thaws."""
        self._frozen.setdefault(node, [])

    def thaw(self, node: str) -> None:
        """Go on where the node stood."""
        self._soon.extend(self._frozen.pop(node, ()))

    def is_frozen(self, node: str) -> bool:
        """Whether it stands still."""
        return node in self._frozen

    def tasks_of(self, node: str) -> list[SimTask]:
        """The node's tasks that have not ended, oldest first."""
        alive = [task for task in self._tasks.get(node, ()) if not task.done()]
        self._tasks[node] = alive
        return list(alive)

    def dispose(self) -> None:
        """Cancel whatever is left and close."""
        self._failure = None
        self.set_exception_handler(lambda *_: None)
        for node in list(self._frozen):
            self.thaw(node)
        for _ in range(50):
            left = [task for tasks in self._tasks.values() for task in tasks if not task.done()]
            if not left:
                break
            for task in left:
                task.cancel()
            # A stop that was asked for before the failure may still be on its way.
            with contextlib.suppress(RuntimeError, Spinning):
                self.run_until_complete(asyncio.sleep(0.1))
        self.run_until_complete(self.shutdown_asyncgens())
        self.close()
