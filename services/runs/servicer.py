"""RunService: start, follow, stop."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

from google.protobuf.empty_pb2 import Empty

from common.clock import Clock
from common.db.engine import Database
from common.db.paging import page_size
from common.errors import CursorOutOfRange, Draining, NotFound
from common.ids import IdSource, Prefix, new_id
from common.pb.bridle.v1 import run_pb2, run_service_pb2, run_service_pb2_grpc
from common.rpc.context import current_call
from services.runs import convert, validate
from services.runs.events import DELTAS, Entry
from services.runs.log import RunLog
from services.runs.model import CancelSignal, Run
from services.runs.store import queries, signals
from services.runs.store import traces as trace_store
from services.runs.store.create import NewRun, create_run
from services.runs.supervisor import Supervisor
from services.runs.traces import Traces
from services.wire.repeats import fingerprint

Responses = AsyncGenerator[run_service_pb2.StreamRunResponse, None]


class RunServicer(run_service_pb2_grpc.RunServiceServicer):
    """Accepts, tells and stops. The work is done by the supervisor's actors; no handler ever waits for one of them."""

    def __init__(
        self,
        *,
        db: Database,
        clock: Clock,
        supervisor: Supervisor,
        log: RunLog,
        knows_model: Callable[[str, str], Awaitable[bool]],
        check_callback: Callable[[str], None],
        traces: Traces | None = None,
        ids: IdSource = new_id,
    ) -> None:
        self._db = db
        self._clock = clock
        self._supervisor = supervisor
        self._log = log
        self._knows_model = knows_model
        self._traces = traces
        self._check_callback = check_callback
        self._ids = ids

    async def CreateRun(
        self, request: run_service_pb2.CreateRunRequest, context: Any
    ) -> run_service_pb2.CreateRunResponse:
        """Accept messages; the run is durable when this returns."""
        validate.create(request)
        if self._supervisor.draining:
            raise Draining
        handle = request.options.model
        if handle and not await self._knows_model(current_call().organization_id, handle):
            raise NotFound("model", handle)
        if request.options.callback_url:
            self._check_callback(request.options.callback_url)
        created = await self._db.write(create_run, self._new_run(request), self._clock.now())
        run = created.run
        self._supervisor.wake(created.wake)
        if not created.joined:
            self._supervisor.offer(run.id, run.conversation_id)
        return run_service_pb2.CreateRunResponse(
            run=convert.run_to_pb(run), joined=created.joined, after_seq=created.after_seq
        )

    def _new_run(self, request: run_service_pb2.CreateRunRequest) -> NewRun:
        call = current_call()
        return NewRun(
            id=self._ids(Prefix.RUN),
            organization_id=call.organization_id,
            agent_id=request.agent_id,
            conversation_id=request.conversation_id,
            request=convert.request_from_pb(request),
            principal=call.principal,
            request_id=request.request_id,
            fingerprint=fingerprint(request) if request.request_id else "",
        )

    async def GetRun(self, request: run_service_pb2.GetRunRequest, context: Any) -> run_pb2.Run:
        """One run."""
        validate.run_id(request.run_id)
        return convert.run_to_pb(await self._get(request.run_id))

    async def ListRuns(
        self, request: run_service_pb2.ListRunsRequest, context: Any
    ) -> run_service_pb2.ListRunsResponse:
        """A page of runs."""
        validate.listing(request)
        listing = queries.Listing(page_size(request.page_size), request.page_token, request.order_by != "create_time")
        which = convert.filter_from_pb(request, current_call().organization_id)
        runs, token = await self._db.read(queries.list_runs, which, listing)
        return run_service_pb2.ListRunsResponse(runs=map(convert.run_to_pb, runs), next_page_token=token)

    async def CancelRun(self, request: run_service_pb2.CancelRunRequest, context: Any) -> run_pb2.Run:
        """Stop a run, in whatever it is doing."""
        wait = validate.cancel(request)
        run = await self._cancel(request.run_id, request.reason)
        if wait:
            await self._until_stopped([run], wait)
            run = await self._get(request.run_id)
        return convert.run_to_pb(run)

    async def CancelRuns(
        self, request: run_service_pb2.CancelRunsRequest, context: Any
    ) -> run_service_pb2.CancelRunsResponse:
        """Stop several runs, or whatever an agent is doing."""
        wait = validate.cancel_several(request)
        run_ids = list(request.run_ids)
        if request.agent_id:
            organization_id = current_call().organization_id
            run_ids = await self._db.read(signals.open_runs, organization_id, request.agent_id)
        runs, unknown = await self._cancel_each(run_ids, request.reason)
        if wait:
            await self._until_stopped(runs, wait)
            runs = [await self._get(run.id) for run in runs]
        return run_service_pb2.CancelRunsResponse(runs=map(convert.run_to_pb, runs), unknown_run_ids=unknown)

    async def _cancel_each(self, run_ids: list[str], reason: str) -> tuple[list[Run], list[str]]:
        runs: list[Run] = []
        unknown: list[str] = []
        for run_id in run_ids:
            try:
                runs.append(await self._cancel(run_id, reason))
            except NotFound:
                unknown.append(run_id)
        return runs, unknown

    async def _cancel(self, run_id: str, reason: str) -> Run:
        call = current_call()
        signal = CancelSignal(self._clock.now(), call.principal, reason)
        return await self._supervisor.cancel(call.organization_id, run_id, signal)

    async def _until_stopped(self, runs: list[Run], seconds: float) -> None:
        """Wait for the final state by reading the log, like everybody else."""

        async def stopped(run: Run) -> None:
            async with aclosing(self._log.follow(run.id, run.last_seq)) as batches:
                async for _ in batches:
                    pass

        waits = [asyncio.ensure_future(stopped(run)) for run in runs if not run.state.final]
        try:
            if waits:
                await asyncio.wait(waits, timeout=seconds)
        finally:
            # Also when the caller hung up: nobody may go on reading for it.
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def StreamRun(self, request: run_service_pb2.StreamRunRequest, context: Any) -> Responses:
        """The run's events after a cursor, until its end."""
        validate.stream(request)
        bounds = await self._db.lookup(queries.log_bounds, current_call().organization_id, request.run_id)
        if request.after_seq > bounds.reserved_seq:
            raise CursorOutOfRange(request.after_seq, 1, bounds.last_seq)
        if bounds.final and request.after_seq >= bounds.last_seq:
            return
        following = self._log.follow(request.run_id, request.after_seq, until_approval=request.until_approval)
        async with aclosing(following) as batches:
            last_seq = request.after_seq
            async for batch in batches:
                if not batch:
                    yield run_service_pb2.StreamRunResponse(heartbeat=run_service_pb2.Heartbeat(last_seq=last_seq))
                    continue
                for entry in _wanted(batch, request.skip_deltas):
                    yield run_service_pb2.StreamRunResponse(event=convert.entry_to_pb(entry))
                last_seq = batch[-1].seq

    async def DeleteRun(self, request: run_service_pb2.DeleteRunRequest, context: Any) -> Empty:
        """Delete a run that has stopped."""
        validate.run_id(request.run_id)
        await self._db.write(queries.delete_run, current_call().organization_id, request.run_id)
        return Empty()

    async def ListSteps(
        self, request: run_service_pb2.ListStepsRequest, context: Any
    ) -> run_service_pb2.ListStepsResponse:
        """A page of steps."""
        validate.steps(request)
        organization_id = current_call().organization_id
        if request.run_id:
            await self._get(request.run_id)
        listing = queries.Listing(page_size(request.page_size), request.page_token, descending=False)
        steps, token = await self._db.read(
            queries.list_steps, organization_id, request.run_id, request.agent_id, listing
        )
        return run_service_pb2.ListStepsResponse(steps=map(convert.step_to_pb, steps), next_page_token=token)

    async def GetStep(self, request: run_service_pb2.GetStepRequest, context: Any) -> run_pb2.Step:
        """One step."""
        validate.step_id(request.step_id)
        organization_id = current_call().organization_id
        return convert.step_to_pb(await self._db.lookup(queries.get_step, organization_id, request.step_id))

    async def GetStepTrace(
        self, request: run_service_pb2.GetStepTraceRequest, context: Any
    ) -> run_service_pb2.GetStepTraceResponse:
        """What was sent to the provider for a step and what it answered."""
        validate.step_id(request.step_id)
        if self._traces is not None:
            await self._traces.settled()
        trace = await self._db.lookup(trace_store.get, current_call().organization_id, request.step_id)
        return run_service_pb2.GetStepTraceResponse(request=trace.request, response=trace.response)

    async def _get(self, run_id: str) -> Run:
        return await self._db.lookup(queries.get_run, current_call().organization_id, run_id)


def _wanted(batch: list[Entry], skip_deltas: bool) -> list[Entry]:
    return [entry for entry in batch if not isinstance(entry.event, DELTAS)] if skip_deltas else batch
