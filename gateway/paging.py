"""Lists by cursor over pages by token: the wire looks after and before ids, gRPC gives one page after the other."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from gateway.http.endpoint import Exchange

T = TypeVar("T")

_PAGE: Final = 1000


class Cursor(Struct, frozen=True):
    """Which part of a list, in the list's own order."""

    limit: int
    after: str | None = None
    before: str | None = None


async def pages(
    exchange: Exchange[Any, Any], method: Any, request: Any, field: str, size: int = _PAGE
) -> AsyncIterator[Any]:
    """Everything that a list method has, one by one."""
    request.page_size = min(size, _PAGE)
    while True:
        page = await exchange.caller(method, request)
        for each in getattr(page, field):
            yield each
        if not page.next_page_token:
            return
        request.page_token = page.next_page_token


async def window(found: AsyncIterator[T], cursor: Cursor, name: Callable[[T], str]) -> list[T]:
    """What lies after the cursor; or, with `before` only, what is nearest before it. An unknown cursor has nothing."""
    if cursor.after is None and cursor.before is not None:
        nearest: deque[T] = deque(maxlen=cursor.limit)
        async for each in found:
            if name(each) == cursor.before:
                return list(nearest)
            nearest.append(each)
        return []
    taken: list[T] = []
    passed = cursor.after is None
    async for each in found:
        if name(each) == cursor.before or len(taken) == cursor.limit:
            break
        if passed:
            taken.append(each)
        elif name(each) == cursor.after:
            passed = True
    return taken
