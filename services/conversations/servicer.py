"""ConversationService: validate, convert, one transaction, convert back."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from google.protobuf.empty_pb2 import Empty
from msgspec.structs import replace
from sqlalchemy import Connection

from common.clock import Clock
from common.db import idempotency
from common.db.engine import Database
from common.db.paging import page_size
from common.errors import ConversationBusy, EtagMismatch, NotFound, ResourceInUse
from common.ids import IdSource, Prefix, new_id
from common.pb.bridle.v1 import conversation_pb2, conversation_service_pb2, conversation_service_pb2_grpc
from common.rpc.context import current_call
from services.agents import store as agents_store
from services.agents.convert import etag
from services.context.overview import overview
from services.context.situation import situation
from services.conversations import convert, store, validate
from services.conversations.compact import Compactor
from services.conversations.fork import fork
from services.conversations.model import Conversation
from services.tools.catalog import ToolCatalog
from services.wire import masks
from services.wire.repeats import fingerprint

Making = conversation_service_pb2.CreateConversationRequest | conversation_service_pb2.ForkConversationRequest


class ConversationServicer(conversation_service_pb2_grpc.ConversationServiceServicer):
    """Threads of messages. What is said in them is MessageService's business."""

    def __init__(
        self,
        *,
        db: Database,
        clock: Clock,
        catalog: ToolCatalog,
        knows_model: Callable[[str, str], Awaitable[bool]],
        default_model: str,
        compactor: Compactor,
        ids: IdSource = new_id,
    ) -> None:
        self._db = db
        self._clock = clock
        self._catalog = catalog
        self._knows_model = knows_model
        self._default_model = default_model
        self._compactor = compactor
        self._ids = ids

    async def CreateConversation(
        self, request: conversation_service_pb2.CreateConversationRequest, context: Any
    ) -> conversation_pb2.Conversation:
        """Open an empty conversation with an agent."""
        validate.create(request)
        await self._require_model(request.conversation.model)
        create = partial(self._create, request)
        made = await self._db.write(self._once, _organization(), "CreateConversation", request, create)
        return convert.conversation_to_pb(made)

    async def GetConversation(
        self, request: conversation_service_pb2.GetConversationRequest, context: Any
    ) -> conversation_pb2.Conversation:
        """One conversation."""
        validate.conversation_id(request.conversation_id)
        return convert.conversation_to_pb(await self._db.lookup(store.get, _organization(), request.conversation_id))

    async def ListConversations(
        self, request: conversation_service_pb2.ListConversationsRequest, context: Any
    ) -> conversation_service_pb2.ListConversationsResponse:
        """A page of conversations."""
        validate.listing(request)
        size = page_size(request.page_size)
        found, token = await self._db.read(
            _list_page, _organization(), request.agent_id, size=size, token=request.page_token
        )
        return conversation_service_pb2.ListConversationsResponse(
            conversations=map(convert.conversation_to_pb, found), next_page_token=token
        )

    async def UpdateConversation(
        self, request: conversation_service_pb2.UpdateConversationRequest, context: Any
    ) -> conversation_pb2.Conversation:
        """Change some fields of a conversation."""
        paths = validate.update(request)
        if "model" in paths:
            await self._require_model(request.conversation.model)
        changed = await self._db.write(self._update, _organization(), request.conversation, paths)
        return convert.conversation_to_pb(changed)

    async def DeleteConversation(
        self, request: conversation_service_pb2.DeleteConversationRequest, context: Any
    ) -> Empty:
        """Delete a conversation that nothing depends on."""
        validate.conversation_id(request.conversation_id)
        await self._db.write(self._delete, _organization(), request.conversation_id)
        return Empty()

    async def ForkConversation(
        self, request: conversation_service_pb2.ForkConversationRequest, context: Any
    ) -> conversation_pb2.Conversation:
        """Copy a conversation up to now."""
        validate.fork(request)
        copy = partial(self._fork, request.conversation_id)
        made = await self._db.write(self._once, _organization(), "ForkConversation", request, copy)
        return convert.conversation_to_pb(made)

    async def CompactConversation(
        self, request: conversation_service_pb2.CompactConversationRequest, context: Any
    ) -> conversation_service_pb2.CompactConversationResponse:
        """Summarise older messages now."""
        validate.conversation_id(request.conversation_id)
        done = await self._compactor.compact(_organization(), request.conversation_id)
        return conversation_service_pb2.CompactConversationResponse(
            summary=done.summary, messages_before=done.messages_before, messages_after=done.messages_after
        )

    async def ResetConversation(
        self, request: conversation_service_pb2.ResetConversationRequest, context: Any
    ) -> conversation_pb2.Conversation:
        """Empty the context; the log stays."""
        validate.conversation_id(request.conversation_id)
        changed = await self._db.write(self._reset, _organization(), request.conversation_id)
        return convert.conversation_to_pb(changed)

    async def GetContext(
        self, request: conversation_service_pb2.GetContextRequest, context: Any
    ) -> conversation_pb2.ContextOverview:
        """What the model would be shown now, whatever the conversation's runs are at."""
        validate.conversation_id(request.conversation_id)
        now = await self._db.read(situation, _organization(), request.conversation_id, self._catalog)
        # Counting tokens takes longer than anything that may be done between two events of a stream.
        return convert.overview_to_pb(await asyncio.to_thread(overview, now, self._default_model))

    async def _require_model(self, handle: str) -> None:
        if handle and not await self._knows_model(_organization(), handle):
            raise NotFound("model", handle)

    def _once(
        self,
        conn: Connection,
        organization_id: str,
        method: str,
        request: Making,
        effect: Callable[[Connection, str], Conversation],
    ) -> Conversation:
        """The effect, or for a repeated request the conversation as it is now."""
        if not request.request_id:
            return effect(conn, organization_id)
        key = (organization_id, method, request.request_id, fingerprint(request))
        known = idempotency.replay(conn, *key)
        if known is not None:
            return store.get(conn, organization_id, known)
        made = effect(conn, organization_id)
        idempotency.remember(conn, *key, made.id, self._clock.now())
        return made

    def _create(
        self, request: conversation_service_pb2.CreateConversationRequest, conn: Connection, organization_id: str
    ) -> Conversation:
        # Locked, so that it cannot be deleted before it has the conversation.
        agents_store.lock(conn, organization_id, request.conversation.agent_id)
        conversation_id = self._ids(Prefix.CONVERSATION)
        made = convert.new_conversation(request.conversation, conversation_id, organization_id, self._clock.now())
        store.insert(conn, made)
        return made

    def _update(
        self, conn: Connection, organization_id: str, wanted: conversation_pb2.Conversation, paths: tuple[str, ...]
    ) -> Conversation:
        current = store.lock(conn, organization_id, wanted.id)
        if wanted.etag and wanted.etag != etag(current.version):
            raise EtagMismatch("conversation", current.id, etag(current.version))
        before = convert.conversation_to_pb(current)
        merged = masks.copy(wanted, convert.conversation_to_pb(current), paths)
        validate.merged(before, merged)
        return self._save(conn, current, replace(current, spec=convert.spec_from_pb(merged)))

    def _delete(self, conn: Connection, organization_id: str, conversation_id: str) -> None:
        current = store.lock(conn, organization_id, conversation_id)
        if current.is_default:
            raise ResourceInUse("conversation", current.id, f"agent '{current.agent_id}'")
        busy = store.open_run(conn, current.id)
        if busy is not None:
            raise ResourceInUse("conversation", current.id, f"run '{busy}'")
        store.delete(conn, replace(current, version=current.version + 1, updated_at=self._clock.now()))

    def _fork(self, conversation_id: str, conn: Connection, organization_id: str) -> Conversation:
        return fork(conn, store.lock(conn, organization_id, conversation_id), self._ids, self._clock.now())

    def _reset(self, conn: Connection, organization_id: str, conversation_id: str) -> Conversation:
        current = store.lock(conn, organization_id, conversation_id)
        busy = store.open_run(conn, current.id)
        if busy is not None:
            raise ConversationBusy(busy, "reset the conversation")
        emptied = replace(current, context_floor=current.next_message_seq, summary_message_id="")
        return self._save(conn, current, emptied)

    def _save(self, conn: Connection, current: Conversation, wanted: Conversation) -> Conversation:
        if wanted == current:
            return current
        changed = replace(wanted, version=current.version + 1, updated_at=self._clock.now())
        store.replace(conn, changed)
        return changed


def _organization() -> str:
    return current_call().organization_id


def _list_page(
    conn: Connection, organization_id: str, agent_id: str, *, size: int, token: str
) -> tuple[list[Conversation], str]:
    if agent_id:
        agents_store.get(conn, organization_id, agent_id)
    return store.list_page(conn, organization_id, agent_id, size=size, token=token)
