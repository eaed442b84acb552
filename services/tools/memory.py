"""Tools that every server has for an agent's memory: it edits its blocks, and searches its conversation."""

import json
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from msgspec.structs import replace
from sqlalchemy import Connection, select

from common.clock import Clock
from common.db import idempotency
from common.db.engine import Database
from common.db.tables import runs
from services.agents import store as agents_store
from services.blocks import store as blocks_store
from services.blocks.edit import EditRefused, inserted, replaced, require_room
from services.messages import store as messages_store
from services.messages.model import Message, Role
from services.messages.words import said, words
from services.tools.api import CrashPolicy, ToolContext, ToolDefinition
from services.tools.functions import FunctionTool, ToolFailed

# What an agent may search: what tools have returned only if it asks, or it would find its own findings.
_SPOKEN = (Role.USER, Role.ASSISTANT)
_SEARCHABLE = {"user": Role.USER, "assistant": Role.ASSISTANT, "tool": Role.TOOL}
_DEFAULT_FINDINGS = 5
_MOST_FINDINGS = 100
_MOST_QUERY = 1_000
_MOST_SHOWN = 2_000
# JSON can spell what no encoding can.
_HALF = re.compile("[\ud800-\udfff]")
_METHOD = "memory tool"

Edit = Callable[[str], str]


class Memory:
    """What the memory tools do."""

    def __init__(self, db: Database, clock: Clock) -> None:
        self._db = db
        self._clock = clock

    async def insert(self, arguments: dict[str, Any], context: ToolContext) -> str:
        """memory_insert(label, new_str, insert_line)."""
        text, line = _text(arguments, "new_str"), _integer(arguments, "insert_line", -1)
        return await self._edit(arguments, context, lambda value: inserted(value, text, line))

    async def replace(self, arguments: dict[str, Any], context: ToolContext) -> str:
        """memory_replace(label, old_str, new_str)."""
        old, new = _text(arguments, "old_str"), _text(arguments, "new_str")
        return await self._edit(arguments, context, lambda value: replaced(value, old, new))

    async def rethink(self, arguments: dict[str, Any], context: ToolContext) -> str:
        """memory_rethink(label, new_memory)."""
        text = _text(arguments, "new_memory")
        return await self._edit(arguments, context, lambda _: text)

    async def search(self, arguments: dict[str, Any], context: ToolContext) -> str:
        """conversation_search(query, roles, limit, start_date, end_date)."""
        query = _text(arguments, "query")
        if not query.strip() or len(query) > _MOST_QUERY:
            raise ToolFailed(f"query must be words to look for, at most {_MOST_QUERY:,} characters")
        limit = _integer(arguments, "limit", _DEFAULT_FINDINGS)
        if not 1 <= limit <= _MOST_FINDINGS:
            raise ToolFailed(f"limit must be 1 to {_MOST_FINDINGS}")
        found = await self._db.read(_search, arguments, context, query, limit)
        if not found:
            return f"Nothing was found for {query!r}."
        return "\n\n".join(_shown(message) for message in found)

    async def _edit(self, arguments: dict[str, Any], context: ToolContext, edit: Edit) -> str:
        label = _text(arguments, "label")
        try:
            return await self._db.write(self._apply, context, label, arguments, edit)
        except EditRefused as refused:
            raise ToolFailed(str(refused)) from None

    def _apply(self, conn: Connection, context: ToolContext, label: str, arguments: dict[str, Any], edit: Edit) -> str:
        """One edit of the text as it is now: whoever edits the same block waits, and goes on from the outcome."""
        content = idempotency.fingerprint(json.dumps(arguments, sort_keys=True).encode())
        # A call that was cut off by a crash is made again, and must not take effect twice.
        call = idempotency.fingerprint(f"{context.run_id}/{context.call_id}".encode())
        key = (context.organization_id, _METHOD, call, content)
        known = idempotency.replay(conn, *key)
        if known is not None:
            return f"The memory block {label!r} was changed."
        block = blocks_store.lock_labelled(conn, context.organization_id, context.agent_id, label)
        if block is None:
            labels = [each.label for each in blocks_store.of_agent(conn, context.agent_id)]
            have = f"there are: {', '.join(labels)}" if labels else "there are none"
            raise EditRefused(f"there is no memory block {label!r}; {have}")
        if block.spec.read_only:
            raise EditRefused(f"the memory block {label!r} is read-only")
        value = edit(block.value)
        require_room(value, block.spec.limit)
        now = self._clock.now()
        if value != block.value:
            blocks_store.replace(conn, block, replace(block, value=value, version=block.version + 1, updated_at=now))
        idempotency.remember(conn, *key, block.id, now)
        return f"The memory block {label!r} was changed. It has {len(value):,} of {block.spec.limit:,} characters now."


def _search(conn: Connection, arguments: dict[str, Any], context: ToolContext, query: str, limit: int) -> list[Message]:
    conversation_id = conn.execute(select(runs.c.conversation_id).where(runs.c.id == context.run_id)).scalar_one()
    zone = ZoneInfo(agents_store.get(conn, context.organization_id, context.agent_id).spec.timezone or "UTC")
    wanted = messages_store.Search(
        organization_id=context.organization_id,
        words=tuple(words(query)),
        conversation_id=conversation_id,
        since=_moment(arguments, "start_date", zone),
        until=_moment(arguments, "end_date", zone, end=True),
        roles=_roles(arguments),
    )
    return messages_store.search_messages(conn, wanted, limit, "")[0]


def _shown(message: Message) -> str:
    text = said(message.body)
    if len(text) > _MOST_SHOWN:
        text = f"{text[:_MOST_SHOWN]}... [{len(text) - _MOST_SHOWN:,} more characters]"
    return f"[{message.created_at.isoformat(timespec='seconds')}] {message.role}: {text}"


def _text(arguments: dict[str, Any], name: str) -> str:
    value = arguments.get(name)
    if not isinstance(value, str):
        raise ToolFailed(f"{name} is required and must be a text")
    if "\0" in value or _HALF.search(value):
        raise ToolFailed(f"{name} has characters that cannot be stored: NUL, or half of a pair")
    return value


def _integer(arguments: dict[str, Any], name: str, default: int) -> int:
    value = arguments.get(name)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool):
        raise ToolFailed(f"{name} must be a whole number")
    return value


def _roles(arguments: dict[str, Any]) -> tuple[Role, ...]:
    given = arguments.get("roles")
    if given is None or given == []:
        return _SPOKEN
    if not isinstance(given, list) or not all(isinstance(each, str) and each in _SEARCHABLE for each in given):
        raise ToolFailed("roles must be a list of 'user', 'assistant' and 'tool'")
    return tuple(dict.fromkeys(_SEARCHABLE[each] for each in given))


def _moment(arguments: dict[str, Any], name: str, zone: ZoneInfo, *, end: bool = False) -> datetime | None:
    """A day, or a time of day, in the agent's zone. What ends with a day includes it, and so with a minute."""
    given = arguments.get(name)
    if given is None or given == "":
        return None
    try:
        if len(given) == len("2026-01-31"):
            day = date.fromisoformat(given) + timedelta(days=end)
            return datetime.combine(day, time(), zone).astimezone(UTC)
        moment = datetime.fromisoformat(given)
        aware = moment if moment.tzinfo else moment.replace(tzinfo=zone)
        return (aware.replace(second=0, microsecond=0) + timedelta(minutes=1) if end else aware).astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        raise ToolFailed(f"{name} must be a date like 2026-01-31, or a time like 2026-01-31T14:30") from None


def memory_tools(db: Database, clock: Clock) -> tuple[FunctionTool, ...]:
    """The tools. Their ids are part of the contract, like those of the other built-in ones."""
    memory = Memory(db, clock)
    functions = (memory.insert, memory.replace, memory.rethink, memory.search)
    return tuple(map(FunctionTool, MEMORY_TOOLS, functions))


def _object(required: tuple[str, ...], **properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def _string(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


_LABEL = _string("Label of the memory block.")

MEMORY_TOOLS = (
    ToolDefinition(
        id="tool-0b1d1e00-0000-4000-8000-000000000004",
        name="memory_insert",
        description="Adds text to a memory block.",
        parameters=_object(
            ("label", "new_str"),
            label=_LABEL,
            new_str=_string("The text to add."),
            insert_line={
                "type": "integer",
                "description": "The line after which to add it: 0 for the beginning, -1 (if not given) for the end.",
            },
        ),
        crash_policy=CrashPolicy.RETRY,
    ),
    ToolDefinition(
        id="tool-0b1d1e00-0000-4000-8000-000000000005",
        name="memory_replace",
        description="Changes one place in a memory block. To remove text, replace it with nothing.",
        parameters=_object(
            ("label", "old_str", "new_str"),
            label=_LABEL,
            old_str=_string("The text to change, exactly as it stands in the block, where it must occur only once."),
            new_str=_string("The text to put in its place."),
        ),
        crash_policy=CrashPolicy.RETRY,
    ),
    ToolDefinition(
        id="tool-0b1d1e00-0000-4000-8000-000000000006",
        name="memory_rethink",
        description="Rewrites a memory block as a whole. For small changes use memory_insert or memory_replace.",
        parameters=_object(
            ("label", "new_memory"),
            label=_LABEL,
            new_memory=_string("The new text of the whole block; what is not in it is forgotten."),
        ),
        crash_policy=CrashPolicy.RETRY,
    ),
    ToolDefinition(
        id="tool-0b1d1e00-0000-4000-8000-000000000007",
        name="conversation_search",
        description="Finds earlier messages of this conversation, newest first, also those that you no longer see.",
        parameters=_object(
            ("query",),
            query=_string("Words that must all occur in a message, in any order, ignoring case."),
            roles={
                "type": "array",
                "items": {"type": "string", "enum": list(_SEARCHABLE)},
                "description": "Whose messages; those of user and assistant if not given.",
            },
            limit={"type": "integer", "description": f"Most messages to return, {_DEFAULT_FINDINGS} if not given."},
            start_date=_string("Only messages from this day on, like 2026-01-31, or this time, like 2026-01-31T14:30."),
            end_date=_string("Only messages up to and including this day or minute."),
        ),
        parallel=True,
        crash_policy=CrashPolicy.RETRY,
    ),
)
