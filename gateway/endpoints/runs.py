"""Runs: list, look at, follow, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from msgspec import Meta, Struct

from common.pb.bridle.v1 import run_pb2, run_service_pb2, stop_reason_pb2
from gateway.http.endpoint import Empty, Endpoint, Exchange
from gateway.http.problems import invalid
from gateway.messages import listing
from gateway.messages.listing import Limit, Order, Window
from gateway.messages.live import View
from gateway.messages.model import LettaMessage
from gateway.runs import answer, paging
from gateway.runs.begin import Begun, guarded, kept
from gateway.runs.follow import WAITING, get_run
from gateway.runs.model import (
    STATUSES,
    Run,
    RunMetrics,
    RunUsage,
    Step,
    metrics_object,
    run_object,
    step_object,
    usage_object,
)
from gateway.runs.paging import Cursor

if TYPE_CHECKING:
    from gateway.http.events import EventStream

Status = Literal["created", "running", "completed", "failed", "cancelled", "pending", "expired"]
_ACTIVE: Final = (run_pb2.Run.STATE_QUEUED, run_pb2.Run.STATE_RUNNING)


class ListQuery(Struct, frozen=True, kw_only=True):
    """Which runs."""

    agent_id: str | None = None
    agent_ids: list[str] | None = None
    statuses: list[Status] | None = None
    background: bool | None = None
    stop_reason: str | None = None
    conversation_id: str | None = None
    active: bool = False
    after: str | None = None
    before: str | None = None
    limit: Limit = 100
    order: Order | None = None
    ascending: bool | None = None

    @property
    def descending(self) -> bool:
        """Newest first, unless asked otherwise."""
        return not self.ascending if self.order is None else self.order == "desc"


class PartQuery(Struct, frozen=True, kw_only=True):
    """Which of a run's steps."""

    after: str | None = None
    before: str | None = None
    limit: Limit = 100
    order: Order = "desc"


class MessagesQuery(Struct, frozen=True, kw_only=True):
    """Which of a run's messages."""

    after: str | None = None
    before: str | None = None
    limit: Limit = 100
    order: Order = "asc"


class StreamBody(Struct, frozen=True, kw_only=True):
    """From where to follow. `poll_interval` and `batch_size` tune nothing here: events come when they happen."""

    starting_after: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    include_pings: bool | None = None
    poll_interval: float | None = None
    batch_size: int | None = None
    # For streams of a conversation: which run; none: the newest that is live.
    run_id: str | None = None
    otid: str | None = None
    agent_id: str | None = None


async def list_runs(exchange: Exchange[None, ListQuery]) -> list[Run]:
    """Runs, newest first unless asked otherwise."""
    query = exchange.query
    request = _filter(query)
    if request is None:
        return []
    cursor = Cursor(query.limit, query.descending, query.after, query.before)
    return [run_object(run) for run in await paging.runs(exchange, request, cursor)]


def _filter(query: ListQuery) -> run_service_pb2.ListRunsRequest | None:
    """What gRPC is asked for; None if nothing can be meant."""
    request = run_service_pb2.ListRunsRequest(
        agent_ids=[*(query.agent_ids or ()), *([query.agent_id] if query.agent_id else ())],
        conversation_id=query.conversation_id or "",
        background=query.background,
    )
    if query.stop_reason is not None:
        request.stop_reasons.append(_stop_reason(query.stop_reason))
    states: set[Any] | None = None
    if query.statuses is not None:
        states = {state for status in query.statuses for state in STATUSES[status]}
    if query.active:
        states = set(_ACTIVE) if states is None else states & set(_ACTIVE)
    if states is not None:
        request.states.extend(sorted(states))
        return request if states else None
    return request


def _stop_reason(word: str) -> stop_reason_pb2.StopReason.ValueType:
    try:
        return stop_reason_pb2.StopReason.Value(f"STOP_REASON_{word.upper()}")
    except ValueError:
        raise invalid(("query", "stop_reason"), f"{word[:100]!r} is not a stop reason") from None


async def active(exchange: Exchange[None, ListQuery]) -> list[Run]:
    """Runs that have not stopped (deprecated: the list has a filter for it)."""
    query = exchange.query
    request = _filter(query) or run_service_pb2.ListRunsRequest()
    request.ClearField("states")
    request.states.extend(_ACTIVE)
    cursor = Cursor(query.limit, query.descending, query.after, query.before)
    return [run_object(run) for run in await paging.runs(exchange, request, cursor)]


async def retrieve(exchange: Exchange[None, Empty]) -> Run:
    """One run."""
    return run_object(await get_run(exchange, exchange.path["run_id"]))


async def delete(exchange: Exchange[None, Empty]) -> None:
    """Delete a run that has stopped. Its messages stay."""
    request = run_service_pb2.DeleteRunRequest(run_id=exchange.path["run_id"])
    await exchange.caller(exchange.backend.runs.DeleteRun, request)


async def messages(exchange: Exchange[None, MessagesQuery]) -> list[LettaMessage]:
    """What was said to the run and what it said."""
    query, run_id = exchange.query, exchange.path["run_id"]
    run = await get_run(exchange, run_id)
    window = Window.in_order(query.limit, query.order, query.after, query.before)
    groups = await listing.read(exchange, window, None, run_id=run_id)
    return listing.flat(reversed(groups) if window.descending else groups, kept(run).get(_TYPES))


async def steps(exchange: Exchange[None, PartQuery]) -> list[Step]:
    """The run's model calls."""
    query = exchange.query
    found = await paging.steps(exchange, exchange.path["run_id"])
    cursor = Cursor(query.limit, query.order == "desc", query.after, query.before)
    return [step_object(step) for step in paging.cut(found, cursor, lambda step: step.id)]


async def usage(exchange: Exchange[None, Empty]) -> RunUsage:
    """What the run spent."""
    return usage_object((await get_run(exchange, exchange.path["run_id"])).usage)


async def metrics(exchange: Exchange[None, Empty]) -> RunMetrics:
    """How long the run took."""
    return metrics_object(await get_run(exchange, exchange.path["run_id"]))


async def stream(exchange: Exchange[StreamBody, Empty]) -> EventStream:
    """Follow a run from any point, during it and after it."""
    return await follow_run(exchange, await get_run(exchange, exchange.path["run_id"]))


_TYPES: Final = "include_return_message_types"


async def follow_run(exchange: Exchange[StreamBody, Any], run: run_pb2.Run) -> EventStream:
    """A run's frames after the cursor of the body or of the header `Last-Event-ID`, as it was first asked for."""
    body, asked = exchange.body, kept(run)
    after = body.starting_after
    if after is None:
        given = exchange.headers.get("last-event-id", "")
        after = int(given) if given.isdecimal() and len(given) < _DIGITS else 0
    types = asked.get(_TYPES)
    tokens = bool(asked.get("stream_tokens"))
    view = View(
        tokens=tokens,
        pings=body.include_pings is not False,
        numbered=True,
        types=frozenset(types) if types is not None else None,
        guarded=await guarded(exchange, run.agent_id, list(asked.get("client_tools", ()))) if tokens else frozenset(),
        after=after,
    )
    idle = run.state == WAITING and after >= run.last_seq
    return await answer.replayed(exchange, Begun(run, after, idle=idle), view)


_DIGITS: Final = 18
_BASE: Final = "/v1/runs/{run_id}"
ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/v1/runs",
        summary="Runs, newest first",
        tag="runs",
        handler=list_runs,
        query=ListQuery,
        answer=list[Run],
    ),
    Endpoint(
        method="GET",
        path="/v1/runs/active",
        summary="Runs that have not stopped",
        tag="runs",
        handler=active,
        query=ListQuery,
        answer=list[Run],
    ),
    Endpoint(method="GET", path=_BASE, summary="One run", tag="runs", handler=retrieve, answer=Run),
    Endpoint(method="DELETE", path=_BASE, summary="Delete a run that has stopped", tag="runs", handler=delete),
    Endpoint(
        method="GET",
        path=f"{_BASE}/messages",
        summary="Messages of a run",
        tag="runs",
        handler=messages,
        query=MessagesQuery,
        answer=list[LettaMessage],
    ),
    Endpoint(
        method="GET",
        path=f"{_BASE}/steps",
        summary="Steps of a run",
        tag="runs",
        handler=steps,
        query=PartQuery,
        answer=list[Step],
    ),
    Endpoint(
        method="GET", path=f"{_BASE}/usage", summary="Tokens a run spent", tag="runs", handler=usage, answer=RunUsage
    ),
    Endpoint(
        method="GET",
        path=f"{_BASE}/metrics",
        summary="How long a run took",
        tag="runs",
        handler=metrics,
        answer=RunMetrics,
    ),
    Endpoint(
        method="POST",
        path=f"{_BASE}/stream",
        summary="Follow a run from any point",
        tag="runs",
        handler=stream,
        body=StreamBody,
        streams=True,
    ),
)
