"""OpenAI Responses."""

from collections.abc import Iterator
from typing import Any

from services.fakellm import failures
from services.fakellm.frames import Frame, Job, Place, encode, named_event
from services.fakellm.scripts import Api, Call, Fault, FaultKind, Finish, Part, Refuse, Say, Think
from services.fakellm.strokes import Kind, Stroke, arguments, finish_of, strokes, text_of, usage_of

_INCOMPLETE = {Finish.LENGTH: "max_output_tokens", Finish.CONTENT_FILTER: "content_filter"}
_PREFIXES = {Say: "msg", Refuse: "msg", Think: "rs", Call: "fc"}


class ResponsesWriter:
    """Writes one response. Each part of the answer is an output item of its own."""

    ping = b": keep-alive\n\n"

    def __init__(self, job: Job) -> None:
        self._job = job
        self._sequence = 0
        self._incomplete = _INCOMPLETE.get(finish_of(job.answer))

    def frames(self) -> Iterator[Frame]:
        """The stream."""
        parts = self._job.answer.parts
        yield self._event(Place.META, "response.created", response=self._response("in_progress"))
        yield self._event(Place.META, "response.in_progress", response=self._response("in_progress"))
        # What is the same in all deltas of a part is encoded once.
        deltas = [_delta_halves(self._place(number, part), part) for number, part in enumerate(parts)]
        for stroke in strokes(self._job.answer):
            if stroke.kind is Kind.PIECE:
                before, after = deltas[stroke.part]
                yield Frame(Place.TOKEN, b"%b%b%b%d}\n\n" % (before, encode(stroke.text), after, self._sequence))
                self._sequence += 1
            else:
                yield from self._edge(stroke, parts[stroke.part])
        status = "incomplete" if self._incomplete else "completed"
        yield self._event(Place.LAST, f"response.{status}", response=self._finished(status))

    def whole(self) -> dict[str, Any]:
        """The answer to a request that does not stream."""
        return self._finished("incomplete" if self._incomplete else "completed")

    def error(self, fault: Fault) -> bytes:
        """The event that ends a stream with an error."""
        said = failures.words(Api.RESPONSES, fault.failure)
        if fault.kind is FaultKind.FAILED:
            failed = {**self._response("failed"), "error": {"code": said.code or said.type, "message": said.message}}
            return self._event(Place.LAST, "response.failed", response=failed).data
        return self._event(Place.LAST, "error", code=said.code, message=said.message, param=None).data

    def _event(self, place: Place, kind: str, **fields: Any) -> Frame:
        data = named_event({"type": kind, **fields, "sequence_number": self._sequence})
        self._sequence += 1
        return Frame(place, data)

    def _edge(self, stroke: Stroke, part: Part) -> Iterator[Frame]:
        """The events around the pieces of a part: the item opens before what is in it, and closes after."""
        added = stroke.kind is Kind.OPEN
        outer = {"output_index": stroke.part, "item": self._item(stroke.part, part, empty=added)}
        if added:
            yield self._event(Place.META, "response.output_item.added", **outer)
        for kind, fields in _inner_edge(part, added):
            yield self._event(Place.META, kind, **self._place(stroke.part, part), **fields)
        if not added:
            yield self._event(Place.META, "response.output_item.done", **outer)

    def _place(self, number: int, part: Part) -> dict[str, Any]:
        """Where in the response a piece of this part belongs."""
        place: dict[str, Any] = {"item_id": self._item_id(number, part), "output_index": number}
        if isinstance(part, Think):
            return {**place, "summary_index": 0}
        return place if isinstance(part, Call) else {**place, "content_index": 0}

    def _item_id(self, number: int, part: Part) -> str:
        return f"{_PREFIXES[type(part)]}_{self._job.unique}_{number}"

    def _item(self, number: int, part: Part, empty: bool = False) -> dict[str, Any]:
        """A part as an output item; at first it has nothing in it."""
        status = "in_progress" if empty else "incomplete" if self._incomplete else "completed"
        item: dict[str, Any] = {"id": self._item_id(number, part)}
        match part:
            case Call(name=name):
                call_id = part.id or f"call_{self._job.unique}_{number}"
                call = {"arguments": "" if empty else arguments(part), "call_id": call_id, "name": name}
                return {**item, "type": "function_call", "status": status, **call}
            case Think(signature=signature, redacted=redacted):
                summary = [] if empty or not part.text else [{"type": "summary_text", "text": part.text}]
                sealed = {"encrypted_content": signature or redacted} if signature or redacted else {}
                return {**item, "type": "reasoning", "summary": summary, **({} if empty else sealed)}
            case Say() | Refuse():
                content = [] if empty else [_content(part, text_of(part))]
                return {**item, "type": "message", "status": status, "role": "assistant", "content": content}

    def _response(self, status: str) -> dict[str, Any]:
        return {
            "id": f"resp_{self._job.unique}",
            "object": "response",
            "created_at": self._job.created,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "max_output_tokens": None,
            "metadata": {},
            "model": self._job.asked.model,
            "output": [],
            "parallel_tool_calls": True,
            "previous_response_id": None,
            "reasoning": {"effort": None, "summary": None},
            "service_tier": "default",
            "store": False,
            "temperature": 1.0,
            "text": {"format": {"type": "text"}},
            "tool_choice": "auto",
            "tools": [],
            "top_p": 1.0,
            "truncation": "disabled",
            "usage": None,
            "user": None,
        }

    def _finished(self, status: str) -> dict[str, Any]:
        response = self._response(status)
        response["output"] = [self._item(number, part) for number, part in enumerate(self._job.answer.parts)]
        response["incomplete_details"] = {"reason": self._incomplete} if self._incomplete else None
        response["usage"] = None if self._job.answer.no_usage else self._usage()
        return response

    def _usage(self) -> dict[str, Any]:
        usage = usage_of(self._job.answer, self._job.asked.input_tokens)
        cache = {"cached_tokens": usage.cached_input_tokens, "cache_write_tokens": usage.cache_write_tokens}
        return {
            "input_tokens": usage.input_tokens,
            "input_tokens_details": cache,
            "output_tokens": usage.output_tokens,
            "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
            "total_tokens": usage.input_tokens + usage.output_tokens,
        }


def _inner_edge(part: Part, added: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """The events around the pieces inside an item, without their place."""
    text = "" if added else text_of(part)
    end = "added" if added else "done"
    match part:
        case Call():
            if not added:
                yield "response.function_call_arguments.done", {"name": part.name, "arguments": text}
        case Think(text=""):
            return
        case Think():
            if not added:
                yield "response.reasoning_summary_text.done", {"text": text}
            yield f"response.reasoning_summary_part.{end}", {"part": {"type": "summary_text", "text": text}}
        case Say() | Refuse():
            if not added and isinstance(part, Refuse):
                yield "response.refusal.done", {"refusal": text}
            elif not added:
                yield "response.output_text.done", {"text": text, "logprobs": []}
            yield f"response.content_part.{end}", {"part": _content(part, text)}


def _content(part: Part, text: str) -> dict[str, Any]:
    if isinstance(part, Refuse):
        return {"type": "refusal", "refusal": text}
    return {"type": "output_text", "annotations": [], "logprobs": [], "text": text}


def _delta_halves(place: dict[str, Any], part: Part) -> tuple[bytes, bytes]:
    """The bytes of a delta event before its text, and between that and the sequence number."""
    rest: dict[str, Any] = {}
    match part:
        case Call():
            kind = "response.function_call_arguments.delta"
        case Think():
            kind = "response.reasoning_summary_text.delta"
        case Refuse():
            kind = "response.refusal.delta"
        case Say():
            kind, rest = "response.output_text.delta", {"logprobs": []}
    whole = named_event({"type": kind, **place, "delta": "", **rest, "sequence_number": 0})
    before, _, after = whole.partition(b'"delta":""')
    return before + b'"delta":', after.removesuffix(b"0}\n\n")
