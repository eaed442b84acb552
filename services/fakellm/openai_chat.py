"""OpenAI Chat Completions, also as vLLM, Ollama, DeepSeek and many others speak it."""

from collections.abc import Iterator
from typing import Any

from services.fakellm import failures
from services.fakellm.frames import Frame, Job, Place, data_event, encode
from services.fakellm.scripts import Api, Call, CallStyle, Fault, Finish, Part, Refuse, Say, Think
from services.fakellm.strokes import Kind, arguments, finish_of, strokes, text_of, usage_of

_FINISH = {Finish.REFUSAL: "stop"}


class ChatWriter:
    """Writes one completion."""

    ping = b": keep-alive\n\n"

    def __init__(self, job: Job) -> None:
        self._job = job
        self._style = job.answer.calls
        calls = [number for number, part in enumerate(job.answer.parts) if isinstance(part, Call)]
        self._call_index = {number: index for index, number in enumerate(calls)}
        self._named: set[int] = set()
        head = {**self._head("chat.completion.chunk"), "choices": []}
        # Only the delta differs between chunks: the rest is encoded once.
        self._before = b'data: %b[{"index":0,"delta":' % encode(head)[: -len(b"[]}")]
        null = b',"usage":null' if self._tells_usage else b""
        self._after = b',"logprobs":null,"finish_reason":null}]%b}\n\n' % null

    def frames(self) -> Iterator[Frame]:
        """The stream."""
        yield self._chunk(Place.META, {"role": "assistant", "content": "", "refusal": None})
        for kind, number, text in strokes(self._job.answer):
            part = self._job.answer.parts[number]
            if isinstance(part, Call):
                yield from self._call(kind, number, part, text)
            elif kind is Kind.PIECE:
                delta = b'{"%b":%b}' % (_field(part), encode(text))
                yield Frame(Place.TOKEN, b"%b%b%b" % (self._before, delta, self._after))
        reason = encode(_FINISH.get(finish_of(self._job.answer), finish_of(self._job.answer)))
        after = self._after.replace(b'"finish_reason":null', b'"finish_reason":%b' % reason)
        yield Frame(Place.TAIL, b"%b{}%b" % (self._before, after))
        if self._tells_usage:
            head = self._head("chat.completion.chunk")
            yield Frame(Place.TAIL, data_event({**head, "choices": [], "usage": self._usage()}))
        yield Frame(Place.LAST, b"data: [DONE]\n\n")

    def whole(self) -> dict[str, Any]:
        """The answer to a request that does not stream."""
        parts = self._job.answer.parts
        calls = [
            {"id": self._call_id(number, part), "type": "function", "function": _function(part.name, arguments(part))}
            for number, part in enumerate(parts)
            if isinstance(part, Call)
        ]
        refusal = _joined(parts, Refuse)
        message: dict[str, Any] = {"role": "assistant", "content": _joined(parts, Say), "refusal": refusal}
        if calls:
            message["tool_calls"] = calls
        if thought := _joined(parts, Think):
            message["reasoning_content"] = thought
        finish = finish_of(self._job.answer)
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _FINISH.get(finish, finish)}
        usage = {} if self._job.answer.no_usage else {"usage": self._usage()}
        return {**self._head("chat.completion"), "choices": [choice], **usage}

    def error(self, fault: Fault) -> bytes:
        """The event that ends a stream with an error."""
        return data_event(failures.body(Api.CHAT, fault.failure))

    @property
    def _tells_usage(self) -> bool:
        return self._job.asked.include_usage and not self._job.answer.no_usage

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": f"chatcmpl-{self._job.unique}",
            "object": kind,
            "created": self._job.created,
            "model": self._job.asked.model,
            "service_tier": "default",
            "system_fingerprint": "fp_fake",
        }

    def _chunk(self, place: Place, delta: dict[str, Any]) -> Frame:
        return Frame(place, b"%b%b%b" % (self._before, encode(delta), self._after))

    def _call(self, kind: Kind, number: int, call: Call, text: str) -> Iterator[Frame]:
        """The chunks of a call, in the style that is wanted."""
        names = _name_pieces(call.name, self._style)
        opening = {"id": self._call_id(number, call), "type": "function"}
        if kind is Kind.OPEN and self._style not in (CallStyle.WHOLE, CallStyle.LATE_ID):
            yield self._tool_chunk(Place.META, number, {**opening, "function": _function(names[0], "")})
            for rest in names[1:]:
                yield self._tool_chunk(Place.META, number, {"function": {"name": rest}})
        elif kind is Kind.PIECE and self._style is CallStyle.WHOLE:
            yield self._tool_chunk(Place.TOKEN, number, {**opening, "function": _function(call.name, text)})
        elif kind is Kind.PIECE:
            yield self._tool_chunk(Place.TOKEN, number, {"function": {"arguments": text}})
            if self._style is CallStyle.LATE_ID and number not in self._named:
                self._named.add(number)
                yield self._tool_chunk(Place.META, number, {**opening, "function": {"name": call.name}})

    def _tool_chunk(self, place: Place, number: int, fields: dict[str, Any]) -> Frame:
        return self._chunk(place, {"tool_calls": [{"index": self._call_index[number], **fields}]})

    def _call_id(self, number: int, call: Call) -> str:
        return call.id or f"call_{self._job.unique}_{number}"

    def _usage(self) -> dict[str, Any]:
        usage = usage_of(self._job.answer, self._job.asked.input_tokens)
        return {
            "prompt_tokens": usage.input_tokens,
            "completion_tokens": usage.output_tokens,
            "total_tokens": usage.input_tokens + usage.output_tokens,
            "prompt_tokens_details": {
                "cached_tokens": usage.cached_input_tokens,
                "cache_write_tokens": usage.cache_write_tokens,
                "audio_tokens": 0,
            },
            "completion_tokens_details": {
                "reasoning_tokens": usage.reasoning_tokens,
                "audio_tokens": 0,
                "accepted_prediction_tokens": 0,
                "rejected_prediction_tokens": 0,
            },
        }


def _field(part: Part) -> bytes:
    if isinstance(part, Think):
        return b"reasoning_content"
    return b"refusal" if isinstance(part, Refuse) else b"content"


def _function(name: str, text: str) -> dict[str, str]:
    return {"name": name, "arguments": text}


def _name_pieces(name: str, style: CallStyle) -> list[str]:
    middle = len(name) // 2
    return [name[:middle], name[middle:]] if style is CallStyle.SPLIT_NAME else [name]


def _joined(parts: tuple[Part, ...], kind: type[Part]) -> str | None:
    found = [text_of(part) for part in parts if isinstance(part, kind)]
    return "".join(found) if found else None
