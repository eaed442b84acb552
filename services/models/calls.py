"""Puts tool calls together from pieces that come in any order.

Providers that speak "OpenAI compatible" send ids late or again, names in pieces or again, arguments before either, and
the calls of one turn mixed. What comes out is always: a call starts, then its arguments, calls in their own order.
"""

from msgspec import Struct, field

from services.models.api import CallArguments, CallStarted, ModelEvent


class _Call(Struct):
    """What is known of a call so far. `number` is its place among those that were announced."""

    id: str = ""
    name: str = ""
    whole: bool = False
    written: bool = False
    number: int | None = None
    held: list[str] = field(default_factory=list)


class Calls:
    """The tool calls of one turn, by the key the provider tells them apart by: 0, 1, 2, ..."""

    def __init__(self, tool_names: frozenset[str]) -> None:
        self._tool_names = tool_names
        self._calls: dict[int, _Call] = {}
        self._started = 0
        self._next = 0

    def __bool__(self) -> bool:
        return any(call.name for call in self._calls.values())

    def id_of(self, key: int) -> str:
        """The id of a call, as far as it is known."""
        call = self._calls.get(key)
        return call.id if call is not None else ""

    def last_key(self) -> int:
        """The key of the newest call, or -1."""
        return max(self._calls, default=-1)

    def add(self, key: int, *, call_id: str = "", name: str = "", arguments: str = "") -> list[ModelEvent]:
        """Take a piece of a call."""
        call = self._calls.setdefault(key, _Call())
        call.id = call.id or call_id
        # Said again, not continued: some servers repeat the name in every piece.
        if name and not (name == call.name and name in self._tool_names):
            call.name += name
        return self._write(call, arguments)

    def announce(self, key: int, call_id: str, name: str) -> list[ModelEvent]:
        """A call whose id and name are complete."""
        call = self._calls.setdefault(key, _Call())
        call.id, call.name, call.whole = call_id, name, True
        return self._advance()

    def complete(self, key: int, arguments: str) -> list[ModelEvent]:
        """All arguments of a call, of which pieces may have come before."""
        call = self._calls.setdefault(key, _Call())
        return [] if call.written or not arguments else self._write(call, arguments)

    def end(self) -> list[ModelEvent]:
        """Nothing more comes: start what still waits, in order, and give an empty object to calls without arguments."""
        events: list[ModelEvent] = []
        for key in sorted(self._calls):
            call = self._calls[key]
            if call.number is None and call.name:
                events += self._start(call)
            if call.number is not None and not call.written:
                call.written = True
                events.append(CallArguments(call.number, "{}"))
        return events

    def _write(self, call: _Call, arguments: str) -> list[ModelEvent]:
        if arguments:
            call.written = True
            if call.number is not None:
                return [CallArguments(call.number, arguments)]
            call.held.append(arguments)
        return self._advance() if call.number is None else []

    def _advance(self) -> list[ModelEvent]:
        events: list[ModelEvent] = []
        while (call := self._calls.get(self._next)) is not None and self._ready(call):
            events += self._start(call)
            self._next += 1
        return events

    def _ready(self, call: _Call) -> bool:
        # Arguments end the name, unless the name is not a tool's yet.
        return call.whole or bool(call.id and call.written and call.name in self._tool_names)

    def _start(self, call: _Call) -> list[ModelEvent]:
        call.number = self._started
        self._started += 1
        events: list[ModelEvent] = [CallStarted(call.number, call.id, call.name)]
        if call.held:
            events.append(CallArguments(call.number, "".join(call.held)))
            call.held = []
        return events
