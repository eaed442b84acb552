"""Steps: one model call each, and what followed from it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from common.ids import Prefix, is_id
from common.pb.bridle.v1 import message_service_pb2, run_service_pb2
from gateway.http.endpoint import Empty, Endpoint, Exchange
from gateway.http.problems import invalid_id
from gateway.messages import stored
from gateway.messages.listing import Limit, Order
from gateway.messages.model import LettaMessage
from gateway.paging import Cursor, pages, window
from gateway.runs.model import Step, step_object

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from common.pb.bridle.v1 import run_pb2


class ListQuery(Struct, frozen=True, kw_only=True):
    """Which steps."""

    agent_id: str | None = None
    run_id: str | None = None
    model: str | None = None
    before: str | None = None
    after: str | None = None
    limit: Limit = 50
    order: Order = "desc"


class StepMetrics(Struct, frozen=True, kw_only=True):
    """How long a step took, in nanoseconds."""

    id: str
    run_id: str
    agent_id: str
    step_start_ns: int
    step_ns: int | None
    llm_request_ns: int | None
    tool_execution_ns: int | None
    llm_request_start_ns: None = None
    provider_id: None = None
    organization_id: None = None
    project_id: None = None


async def list_steps(exchange: Exchange[None, ListQuery]) -> list[Step]:
    """Steps, newest first unless asked otherwise."""
    query = exchange.query
    for name, prefix in (("agent_id", Prefix.AGENT), ("run_id", Prefix.RUN)):
        value = getattr(query, name)
        if value is not None and not is_id(prefix, value):
            raise invalid_id(name, prefix, value)
    request = run_service_pb2.ListStepsRequest(agent_id=query.agent_id or "", run_id=query.run_id or "")
    found = pages(exchange, exchange.backend.runs.ListSteps, request, "steps")
    # gRPC has the steps of a run oldest first, and those of an agent newest first.
    if (query.order == "asc") != bool(query.run_id):
        found = _reversed([each async for each in found])
    shown = (step_object(each) async for each in found)
    matching = (each async for each in shown if query.model is None or query.model in (each.model, each.model_handle))
    return await window(matching, Cursor(query.limit, query.after, query.before), lambda step: step.id)


async def _reversed(steps: list[run_pb2.Step]) -> AsyncIterator[run_pb2.Step]:
    for step in reversed(steps):
        yield step


async def _get(exchange: Exchange[Any, Any]) -> run_pb2.Step:
    request = run_service_pb2.GetStepRequest(step_id=exchange.path["step_id"])
    step: run_pb2.Step = await exchange.caller(exchange.backend.runs.GetStep, request)
    return step


async def retrieve(exchange: Exchange[None, Empty]) -> Step:
    """One step."""
    return step_object(await _get(exchange))


async def metrics(exchange: Exchange[None, Empty]) -> StepMetrics:
    """How long a step took."""
    step = await _get(exchange)
    start = step.create_time.ToNanoseconds()
    return StepMetrics(
        id=step.id,
        run_id=step.run_id,
        agent_id=step.agent_id,
        step_start_ns=start,
        step_ns=step.end_time.ToNanoseconds() - start if step.HasField("end_time") else None,
        llm_request_ns=step.model_duration.ToNanoseconds() if step.HasField("model_duration") else None,
        tool_execution_ns=step.tool_duration.ToNanoseconds() if step.HasField("tool_duration") else None,
    )


async def messages(exchange: Exchange[None, Empty]) -> list[LettaMessage]:
    """What was said in a step."""
    step = await _get(exchange)
    request = message_service_pb2.ListMessagesRequest(run_id=step.run_id)
    found = pages(exchange, exchange.backend.messages.ListMessages, request, "messages")
    return stored.of_many([each async for each in found if each.step_id == step.id])


_endpoint = partial(Endpoint, tag="steps")
_ONE: Final = "/v1/steps/{step_id}"
ENDPOINTS: Final = (
    _endpoint(
        method="GET", path="/v1/steps", summary="List steps", handler=list_steps, query=ListQuery, answer=list[Step]
    ),
    _endpoint(method="GET", path=_ONE, summary="Retrieve a step", handler=retrieve, answer=Step),
    _endpoint(
        method="GET", path=f"{_ONE}/metrics", summary="How long a step took", handler=metrics, answer=StepMetrics
    ),
    _endpoint(
        method="GET",
        path=f"{_ONE}/messages",
        summary="What was said in a step",
        handler=messages,
        answer=list[LettaMessage],
    ),
)
