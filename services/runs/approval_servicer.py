"""ApprovalService: people in the loop."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from sqlalchemy import Connection

from common.clock import Clock
from common.db import idempotency
from common.db.engine import Database
from common.db.paging import page_size
from common.pb.bridle.v1 import approval_pb2, approval_service_pb2, approval_service_pb2_grpc
from common.rpc.context import current_call
from services.messages.convert import decision_from_pb, input_from_pb
from services.runs import convert, validate
from services.runs.feed import ApprovalFeed
from services.runs.model import Approval, Run
from services.runs.store import approvals
from services.runs.store.queries import Listing, get_run
from services.runs.supervisor import Supervisor
from services.runs.watch import ApprovalWatch
from services.wire.repeats import fingerprint


class ApprovalServicer(approval_service_pb2_grpc.ApprovalServiceServicer):
    """Asks nobody: it tells what is open and takes answers. An answer is durable before the run hears of it."""

    def __init__(
        self, *, db: Database, clock: Clock, supervisor: Supervisor, feed: ApprovalFeed, watch: ApprovalWatch
    ) -> None:
        self._db = db
        self._clock = clock
        self._supervisor = supervisor
        self._feed = feed
        self._watch = watch

    async def GetApproval(
        self, request: approval_service_pb2.GetApprovalRequest, context: Any
    ) -> approval_pb2.Approval:
        """One approval."""
        validate.approval_id(request.approval_id)
        organization_id = current_call().organization_id
        return convert.approval_to_pb(
            await self._db.lookup(approvals.get_approval, organization_id, request.approval_id)
        )

    async def ListApprovals(
        self, request: approval_service_pb2.ListApprovalsRequest, context: Any
    ) -> approval_service_pb2.ListApprovalsResponse:
        """A page of approvals."""
        validate.approvals(request)
        which = convert.approval_filter_from_pb(request, current_call().organization_id)
        listing = Listing(page_size(request.page_size), request.page_token, descending=False)
        found, token = await self._db.read(approvals.list_approvals, which, listing)
        return approval_service_pb2.ListApprovalsResponse(
            approvals=map(convert.approval_to_pb, found), next_page_token=token
        )

    async def WatchApprovals(
        self, request: approval_service_pb2.WatchApprovalsRequest, context: Any
    ) -> AsyncGenerator[approval_service_pb2.WatchApprovalsResponse, None]:
        """Open approvals, then every change."""
        validate.watch(request)
        which = approvals.ApprovalFilter(current_call().organization_id, request.agent_id)
        async with aclosing(self._watch.follow(which)) as changes:
            async for approval in changes:
                found = None if approval is None else convert.approval_to_pb(approval)
                yield approval_service_pb2.WatchApprovalsResponse(approval=found)

    async def SubmitApproval(
        self, request: approval_service_pb2.SubmitApprovalRequest, context: Any
    ) -> approval_service_pb2.SubmitApprovalResponse:
        """Answer; the same run goes on."""
        validate.answer(request)
        approval, run = await self._db.write(self._submit, request, _answer(request))
        self._supervisor.wake([run.id])
        self._feed.ring()
        return approval_service_pb2.SubmitApprovalResponse(
            approval=convert.approval_to_pb(approval), run=convert.run_to_pb(run), after_seq=run.last_seq
        )

    def _submit(
        self, conn: Connection, request: approval_service_pb2.SubmitApprovalRequest, answer: approvals.Answer
    ) -> tuple[Approval, Run]:
        print_of = fingerprint(request) if request.request_id else ""
        key = (answer.organization_id, "SubmitApproval", request.request_id, print_of)
        first = idempotency.replay(conn, *key)
        if first is not None:
            approval = approvals.get_approval(conn, answer.organization_id, first)
            return approval, get_run(conn, answer.organization_id, approval.run_id)
        now = self._clock.now()
        approval, run = approvals.submit(conn, answer, now)
        idempotency.remember(conn, *key, approval.id, now)
        return approval, run


def _answer(request: approval_service_pb2.SubmitApprovalRequest) -> approvals.Answer:
    call = current_call()
    return approvals.Answer(
        organization_id=call.organization_id,
        decisions=tuple(decision_from_pb(decision) for decision in request.decisions),
        approval_id=request.approval_id,
        run_id=request.run_id,
        agent_id=request.agent_id,
        sha256=dict(request.arguments_sha256),
        follow_up=tuple(input_from_pb(message) for message in request.follow_up),
        client_tools=convert.client_tools_from_pb(request.client_tools),
        principal=call.principal,
    )
