"""Summarising a conversation because somebody asked for it, while no run works on it."""

from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import Connection

from common.clock import Clock
from common.db.engine import Database
from common.errors import ConversationBusy, ModelCallFailed, StoreConflict
from common.ids import IdSource, Prefix, new_id
from services.agents import store as agents_store
from services.agents.model import AgentSpec
from services.context.compaction import Plan, plan
from services.context.metrics import CompactionMetrics
from services.context.summary import PASSING, SummaryCall, summary_job
from services.context.weights import Weights
from services.context.window import Window, window_of
from services.conversations import store
from services.conversations.model import Conversation
from services.messages.model import Body, InContext, Message, Role, Text
from services.messages.store import add_message, context
from services.models import tokens
from services.models.api import ModelRequest, Models
from services.models.errors import ModelError
from services.runs.model import Trigger

_ATTEMPTS = 3


class Compaction(Struct, frozen=True):
    """What a compaction did."""

    summary: str
    messages_before: int
    messages_after: int


class _Loaded(Struct, frozen=True):
    """A conversation, the agent as it is in it, and what the model would be shown."""

    conversation: Conversation
    spec: AgentSpec
    context: list[InContext]


class Compactor:
    """Compacts conversations on request."""

    def __init__(
        self,
        *,
        db: Database,
        clock: Clock,
        models: Models,
        default_model: str,
        weights: Weights,
        metrics: CompactionMetrics,
        ids: IdSource = new_id,
    ) -> None:
        self._db = db
        self._clock = clock
        self._models = models
        self._default_model = default_model
        self._weights = weights
        self._metrics = metrics
        self._ids = ids

    async def compact(self, organization_id: str, conversation_id: str) -> Compaction:
        """Summarise what is old in it. What is too short to be cut stays as it is."""
        loaded = await self._db.read(_load, organization_id, conversation_id)
        try:
            cut = await self._plan(loaded)
        except ModelError:
            # Nothing is older than what must stay.
            return _unchanged(loaded)
        summary = await self._summarise(loaded, cut)
        message = Message(
            id=self._ids(Prefix.MESSAGE),
            organization_id=organization_id,
            agent_id=loaded.conversation.agent_id,
            conversation_id=conversation_id,
            seq=0,
            run_id="",
            step_id="",
            role=Role.SUMMARY,
            body=Body((Text(summary),)),
            created_at=self._clock.now(),
        )
        await self._db.write(_store, loaded.conversation, message, cut.floor, self._clock.now())
        after = cut.tokens_kept + tokens.PER_MESSAGE + tokens.count(summary)
        self._metrics.done(Trigger.REQUEST, cut.tokens_before, after)
        return Compaction(summary, cut.messages_before, cut.messages_after)

    async def _plan(self, loaded: _Loaded) -> Plan:
        # Whoever asks wants less than there is, however much would fit; instructions and tools are not in question.
        spec = loaded.spec
        scale = await self._weights.weigh(ModelRequest("", "", ()), loaded.context)
        window = window_of(spec.model or self._default_model, spec.model_settings, spec.compaction)
        size = min(window.size or scale.tokens, scale.tokens)
        return plan(scale, Window(size, window.limit), spec.compaction, live=False)

    async def _summarise(self, loaded: _Loaded, cut: Plan) -> str:
        handle = loaded.spec.model or self._default_model
        attempt = 1
        while True:
            try:
                call = SummaryCall(summary_job(cut, loaded.spec, handle, attempt))
                return await call.run(self._models, loaded.conversation.organization_id)
            except ModelError as error:
                if attempt == _ATTEMPTS or error.kind not in PASSING:
                    self._metrics.failed(Trigger.REQUEST)
                    raise ModelCallFailed(error.kind.value, error.message, error.detail) from None
            attempt += 1


def _unchanged(loaded: _Loaded) -> Compaction:
    count = len(loaded.context)
    first = loaded.context[0] if count else None
    if first is None or first.role is not Role.SUMMARY:
        return Compaction("", count, count)
    text = "".join(part.text for part in first.body.parts if isinstance(part, Text))
    return Compaction(text, count, count)


def _load(conn: Connection, organization_id: str, conversation_id: str) -> _Loaded:
    conversation = store.get(conn, organization_id, conversation_id)
    _require_idle(conn, conversation_id)
    agent = agents_store.get(conn, organization_id, conversation.agent_id)
    return _Loaded(conversation, conversation.spec.over(agent.spec), context(conn, conversation_id))


def _require_idle(conn: Connection, conversation_id: str) -> None:
    busy = store.open_run(conn, conversation_id)
    if busy is not None:
        raise ConversationBusy(busy)


def _store(conn: Connection, read: Conversation, message: Message, floor: int, now: datetime) -> None:
    """The summary and the floor in one transaction, unless somebody moved the floor or works on it meanwhile."""
    current = store.lock(conn, read.organization_id, read.id)
    _require_idle(conn, read.id)
    if (current.context_floor, current.summary_message_id) != (read.context_floor, read.summary_message_id):
        raise StoreConflict
    add_message(conn, replace(message, seq=current.next_message_seq))
    changed = replace(
        current,
        context_floor=floor,
        summary_message_id=message.id,
        next_message_seq=current.next_message_seq + 1,
        last_message_at=now,
        version=current.version + 1,
        updated_at=now,
    )
    store.replace(conn, changed)
    store.move_end(conn, changed)
