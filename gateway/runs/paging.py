"""Lists of runs and steps by cursor. gRPC has pages; the wire has ids after and before which to look."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from google.protobuf.timestamp_pb2 import Timestamp
from msgspec import Struct

from common.pb.bridle.v1 import run_pb2, run_service_pb2
from gateway.runs.follow import get_run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gateway.http.endpoint import Exchange

T = TypeVar("T")

_MOST: Final = 1000
_MICROSECOND: Final = 1000


class Cursor(Struct, frozen=True):
    """Which part of a list, in the list's own order."""

    limit: int
    descending: bool
    after: str | None = None
    before: str | None = None


async def runs(
    exchange: Exchange[Any, Any], which: run_service_pb2.ListRunsRequest, cursor: Cursor
) -> list[run_pb2.Run]:
    """Runs after the cursor; or, if only `before` is given, the nearest ones before it."""
    if cursor.after is None and cursor.before is not None:
        found = await _after(exchange, which, cursor.limit, not cursor.descending, cursor.before, None)
        return found[::-1]
    return await _after(exchange, which, cursor.limit, cursor.descending, cursor.after, cursor.before)


async def _after(
    exchange: Exchange[Any, Any],
    which: run_service_pb2.ListRunsRequest,
    limit: int,
    descending: bool,
    after: str | None,
    before: str | None,
) -> list[run_pb2.Run]:
    request = run_service_pb2.ListRunsRequest()
    request.CopyFrom(which)
    request.order_by = "create_time desc" if descending else "create_time"
    start = key(await get_run(exchange, after)) if after is not None else None
    end = key(await get_run(exchange, before)) if before is not None else None
    if start is not None and descending:
        # One tick more: the bound itself is not included, and others may have been created in the same tick.
        request.created_before.CopyFrom(Timestamp(seconds=start[0], nanos=start[1] + _MICROSECOND))
    elif start is not None:
        request.created_after.CopyFrom(Timestamp(seconds=start[0], nanos=start[1]))
    found: list[run_pb2.Run] = []
    while True:
        request.page_size = min(_MOST, limit - len(found) + 1)
        page = await exchange.caller(exchange.backend.runs.ListRuns, request)
        for run in page.runs:
            if start is not None and not _beyond(key(run), start, descending):
                continue
            if len(found) == limit or (end is not None and not _beyond(end, key(run), descending)):
                return found
            found.append(run)
        if not page.next_page_token or len(found) == limit:
            return found
        request.page_token = page.next_page_token


def key(run: run_pb2.Run) -> tuple[int, int, str]:
    """Where a run stands in the order of lists."""
    return run.create_time.seconds, run.create_time.nanos, run.id


def _beyond(found: tuple[int, int, str], cursor: tuple[int, int, str], descending: bool) -> bool:
    return found < cursor if descending else found > cursor


async def steps(exchange: Exchange[Any, Any], run_id: str) -> list[run_pb2.Step]:
    """All steps of a run, in order."""
    request = run_service_pb2.ListStepsRequest(run_id=run_id, page_size=_MOST)
    found: list[run_pb2.Step] = []
    while True:
        page = await exchange.caller(exchange.backend.runs.ListSteps, request)
        found += page.steps
        if not page.next_page_token:
            return found
        request.page_token = page.next_page_token


def cut(items: Sequence[T], cursor: Cursor, name: Callable[[T], str]) -> list[T]:
    """The part of a whole list that is in ascending order. A cursor that is not in it cuts nothing off."""
    ordered = list(reversed(items)) if cursor.descending else list(items)
    names = [name(each) for each in ordered]
    start = names.index(cursor.after) + 1 if cursor.after in names else 0
    end = names.index(cursor.before) if cursor.before in names else len(ordered)
    if cursor.before is not None and cursor.after is None:
        return ordered[max(start, end - cursor.limit) : end]
    return ordered[start:end][: cursor.limit]
