"""Anthropic Messages."""

from collections.abc import Iterator
from typing import Any

import msgspec

from services.fakellm import failures
from services.fakellm.frames import Frame, Job, Place, encode, named_event
from services.fakellm.scripts import Api, Call, Fault, Finish, Part, Refuse, Say, Think
from services.fakellm.strokes import Kind, arguments, finish_of, strokes, text_of, usage_of

_FINISH = {
    Finish.STOP: "end_turn",
    Finish.TOOL_CALLS: "tool_use",
    Finish.LENGTH: "max_tokens",
    Finish.CONTENT_FILTER: "refusal",
    Finish.REFUSAL: "refusal",
}


class MessagesWriter:
    """Writes one message."""

    ping = named_event({"type": "ping"})

    def __init__(self, job: Job) -> None:
        self._job = job

    def frames(self) -> Iterator[Frame]:
        """The stream."""
        message = {**self._head(), "content": [], "stop_reason": None, "stop_sequence": None}
        yield _event(Place.META, {"type": "message_start", "message": {**message, **self._start_usage()}})
        opened = False
        # What is the same in all deltas of a part is encoded once.
        deltas = [(_delta_head(number, part), b"}}\n\n") for number, part in enumerate(self._job.answer.parts)]
        for kind, number, text in strokes(self._job.answer):
            if kind is Kind.PIECE:
                before, after = deltas[number]
                yield Frame(Place.TOKEN, b"%b%b%b" % (before, encode(text), after))
                continue
            part = self._job.answer.parts[number]
            yield from self._open(number, part) if kind is Kind.OPEN else _close(number, part)
            if not opened:
                opened = True
                yield Frame(Place.META, self.ping)
        yield _event(Place.TAIL, {"type": "message_delta", "delta": self._stop(), **self._end_usage()})
        yield _event(Place.LAST, {"type": "message_stop"})

    def whole(self) -> dict[str, Any]:
        """The answer to a request that does not stream."""
        content = [self._block(number, part) for number, part in enumerate(self._job.answer.parts)]
        usage = {} if self._job.answer.no_usage else {"usage": {**self._input_usage(), **self._output_usage()}}
        return {**self._head(), "content": content, **self._stop(), **usage}

    def error(self, fault: Fault) -> bytes:
        """The event that ends a stream with an error."""
        return named_event(failures.body(Api.MESSAGES, fault.failure))

    def _head(self) -> dict[str, Any]:
        return {
            "id": f"msg_{self._job.unique}",
            "type": "message",
            "role": "assistant",
            "model": self._job.asked.model,
        }

    def _open(self, number: int, part: Part) -> Iterator[Frame]:
        match part:
            case Call():
                block: dict[str, Any] = {**self._block(number, part), "input": {}}
            case Think(redacted=""):
                block = {"type": "thinking", "thinking": "", "signature": ""}
            case Think():
                block = self._block(number, part)
            case Say() | Refuse():
                block = {"type": "text", "text": ""}
        yield _event(Place.META, {"type": "content_block_start", "index": number, "content_block": block})

    def _block(self, number: int, part: Part) -> dict[str, Any]:
        """A part as it is in the whole message."""
        match part:
            case Call(name=name):
                call_id = part.id or f"toolu_{self._job.unique}_{number}"
                return {"type": "tool_use", "id": call_id, "name": name, "input": _input(part)}
            case Think(redacted="", signature=signature):
                return {"type": "thinking", "thinking": text_of(part), "signature": signature}
            case Think(redacted=data):
                return {"type": "redacted_thinking", "data": data}
            case Say() | Refuse():
                return {"type": "text", "text": text_of(part)}

    def _stop(self) -> dict[str, Any]:
        return {"stop_reason": _FINISH[finish_of(self._job.answer)], "stop_sequence": None}

    def _input_usage(self) -> dict[str, Any]:
        usage = usage_of(self._job.answer, self._job.asked.input_tokens)
        return {
            # Here, unlike at OpenAI, the prompt's tokens are without those of the cache.
            "input_tokens": usage.input_tokens - usage.cached_input_tokens - usage.cache_write_tokens,
            "cache_creation_input_tokens": usage.cache_write_tokens,
            "cache_read_input_tokens": usage.cached_input_tokens,
        }

    def _output_usage(self) -> dict[str, Any]:
        usage = usage_of(self._job.answer, self._job.asked.input_tokens)
        details = {"output_tokens_details": {"thinking_tokens": usage.reasoning_tokens}}
        return {"output_tokens": usage.output_tokens, **(details if usage.reasoning_tokens else {})}

    def _start_usage(self) -> dict[str, Any]:
        if self._job.answer.no_usage:
            return {}
        written = self._input_usage()["cache_creation_input_tokens"]
        creation = {"ephemeral_5m_input_tokens": written, "ephemeral_1h_input_tokens": 0}
        rest = {"cache_creation": creation, "output_tokens": 1, "service_tier": "standard"}
        return {"usage": {**self._input_usage(), **rest}}

    def _end_usage(self) -> dict[str, Any]:
        if self._job.answer.no_usage:
            return {}
        return {"usage": {**self._input_usage(), **self._output_usage()}}


def _event(place: Place, value: dict[str, Any]) -> Frame:
    return Frame(place, named_event(value))


def _close(number: int, part: Part) -> Iterator[Frame]:
    if isinstance(part, Think) and part.signature and not part.redacted:
        delta = {"type": "signature_delta", "signature": part.signature}
        yield _event(Place.META, {"type": "content_block_delta", "index": number, "delta": delta})
    yield _event(Place.META, {"type": "content_block_stop", "index": number})


def _delta_head(number: int, part: Part) -> bytes:
    kind, field = "text_delta", "text"
    if isinstance(part, Call):
        kind, field = "input_json_delta", "partial_json"
    elif isinstance(part, Think):
        kind, field = "thinking_delta", "thinking"
    event = {"type": "content_block_delta", "index": number, "delta": {"type": kind, field: ""}}
    return named_event(event).removesuffix(b'""}}\n\n')


def _input(call: Call) -> dict[str, Any]:
    """The arguments as an object, which is all that a whole message can hold."""
    text = arguments(call)
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError:
        return {"INVALID_JSON": text}
