"""Waiting for something that happens soon."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

T = TypeVar("T")


@overload
async def eventually(
    probe: Callable[[], Awaitable[T]], *, timeout: float = ..., interval: float = ..., until: Callable[[T], bool] = ...
) -> T: ...
@overload
async def eventually(
    probe: Callable[[], T], *, timeout: float = ..., interval: float = ..., until: Callable[[T], bool] = ...
) -> T: ...
async def eventually(
    probe: Callable[[], Any], *, timeout: float = 5.0, interval: float = 0.01, until: Callable[[Any], bool] = bool
) -> Any:
    """Call `probe` until its (awaited) answer satisfies `until`, and return that answer.

    An AssertionError from `probe` means "not yet"; the last one, or the last answer, is shown when time runs out.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + timeout
    while True:
        try:
            answer = probe()
            last = await answer if inspect.isawaitable(answer) else answer
            if until(last):
                return last
        except AssertionError as failure:
            last = failure
        if clock() >= deadline:
            raise AssertionError(f"not within {timeout} s; last seen: {last!r}")
        await asyncio.sleep(interval)
