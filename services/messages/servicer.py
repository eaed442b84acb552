"""MessageService: talking to agents is CreateRun and reading the run's log, over RunService's own stub."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import UTC
from typing import TYPE_CHECKING, Any

from common.db.engine import Database
from common.db.paging import page_size
from common.pb.bridle.v1 import (
    message_pb2,
    message_service_pb2,
    message_service_pb2_grpc,
    run_pb2,
    run_service_pb2,
)
from common.rpc.context import current_call
from services.messages import store, validate_requests
from services.messages.convert import message_to_pb
from services.messages.preview import Previews
from services.messages.words import words

if TYPE_CHECKING:
    # The stub's async face exists for type checkers only.
    from common.pb.bridle.v1.run_service_pb2_grpc import RunServiceAsyncStub

Responses = AsyncGenerator[run_service_pb2.StreamRunResponse, None]

logger = logging.getLogger(__name__)

_CANCEL_RETRY_SECONDS = (0.05, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0)
_SAID_TO_IT = (message_pb2.Message.ROLE_USER, message_pb2.Message.ROLE_SYSTEM, message_pb2.Message.ROLE_APPROVAL)


class MessageServicer(message_service_pb2_grpc.MessageServiceServicer):
    """A reader of runs, and of the conversation log."""

    def __init__(self, *, db: Database, runs: "RunServiceAsyncStub", previews: Previews) -> None:
        self._db = db
        self._runs = runs
        self._previews = previews
        self._cancels: set[asyncio.Task[None]] = set()

    async def SendMessage(
        self, request: message_service_pb2.SendMessageRequest, context: Any
    ) -> message_service_pb2.SendMessageResponse:
        """Say something and wait until the run stops or needs an approval."""
        validate_requests.run(request.run)
        added: list[message_pb2.Message] = []
        final: run_pb2.Run | None = None
        created = await self._runs.CreateRun(request.run)
        async with aclosing(self._follow(created, request.cancel_on_disconnect, skip_deltas=True)) as responses:
            async for response in responses:
                event = response.event
                if event.HasField("message_added") and event.message_added.message.role not in _SAID_TO_IT:
                    added.append(event.message_added.message)
                elif event.HasField("run_stopped"):
                    final = event.run_stopped.run
        if final is None:
            final = await self._runs.GetRun(run_service_pb2.GetRunRequest(run_id=created.run.id))
        return message_service_pb2.SendMessageResponse(run=final, messages=added)

    async def StreamMessage(self, request: message_service_pb2.StreamMessageRequest, context: Any) -> Responses:
        """The same, showing every event as it happens."""
        validate_requests.run(request.run)
        created = await self._runs.CreateRun(request.run)
        yield run_service_pb2.StreamRunResponse(run=created.run)
        following = self._follow(created, request.cancel_on_disconnect, skip_deltas=request.skip_deltas)
        async with aclosing(following) as responses:
            async for response in responses:
                yield response

    async def _follow(
        self, created: run_service_pb2.CreateRunResponse, cancel_on_disconnect: bool, *, skip_deltas: bool
    ) -> Responses:
        request = run_service_pb2.StreamRunRequest(
            run_id=created.run.id, after_seq=created.after_seq, until_approval=True, skip_deltas=skip_deltas
        )
        ended = False
        call = self._runs.StreamRun(request)
        try:
            async for response in call:
                yield response
            ended = True
        finally:
            if not ended:
                call.cancel()
                if cancel_on_disconnect:
                    self._cancel_later(created.run.id)

    def _cancel_later(self, run_id: str) -> None:
        """The caller has gone, so nobody waits for this; it must happen all the same."""

        async def cancel() -> None:
            request = run_service_pb2.CancelRunRequest(run_id=run_id, reason="the client hung up")
            for pause in _CANCEL_RETRY_SECONDS:
                try:
                    await self._runs.CancelRun(request)
                    return
                except Exception:
                    logger.exception("a run whose client hung up is not cancelled yet")
                    await asyncio.sleep(pause)

        task = asyncio.ensure_future(cancel())
        self._cancels.add(task)
        task.add_done_callback(self._cancels.discard)

    async def PreviewMessage(
        self, request: message_service_pb2.PreviewMessageRequest, context: Any
    ) -> message_service_pb2.PreviewMessageResponse:
        """The provider request that a message would cause."""
        validate_requests.run(request.run)
        provider, body = await self._previews.make(current_call().organization_id, request.run)
        return message_service_pb2.PreviewMessageResponse(provider=provider, request=body.decode())

    async def ListMessages(
        self, request: message_service_pb2.ListMessagesRequest, context: Any
    ) -> message_service_pb2.ListMessagesResponse:
        """A page of messages."""
        validate_requests.listing(request)
        which = store.MessageFilter(
            organization_id=current_call().organization_id,
            conversation_id=request.conversation_id,
            run_id=request.run_id,
            agent_id=request.agent_id,
            in_context=request.in_context,
            after_message_id=request.after_message_id,
            before_message_id=request.before_message_id,
            descending=request.order_by == "create_time desc",
        )
        size = page_size(request.page_size, default=100)
        found, token = await self._db.read(store.list_messages, which, size, request.page_token)
        return message_service_pb2.ListMessagesResponse(messages=map(message_to_pb, found), next_page_token=token)

    async def GetMessage(self, request: message_service_pb2.GetMessageRequest, context: Any) -> message_pb2.Message:
        """One message."""
        validate_requests.message_id(request.message_id)
        organization_id = current_call().organization_id
        return message_to_pb(await self._db.lookup(store.get_message, organization_id, request.message_id))

    async def SearchMessages(
        self, request: message_service_pb2.SearchMessagesRequest, context: Any
    ) -> message_service_pb2.SearchMessagesResponse:
        """A page of messages that contain words, newest first."""
        validate_requests.search(request)
        wanted = store.Search(
            organization_id=current_call().organization_id,
            words=tuple(words(request.query)),
            agent_id=request.agent_id,
            conversation_id=request.conversation_id,
            since=request.created_after.ToDatetime(UTC) if request.HasField("created_after") else None,
            until=request.created_before.ToDatetime(UTC) if request.HasField("created_before") else None,
        )
        size = page_size(request.page_size)
        found, token = await self._db.read(store.search_messages, wanted, size, request.page_token)
        return message_service_pb2.SearchMessagesResponse(messages=map(message_to_pb, found), next_page_token=token)
