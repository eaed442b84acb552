"""A run's events as a chat completion, whole or in chunks."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

import grpc.aio
from msgspec import UNSET, UnsetType

from common.pb.bridle.v1 import approval_service_pb2, message_pb2, run_pb2, stop_reason_pb2
from gateway import errors
from gateway.chat import model
from gateway.chat.errors import told
from gateway.http import events
from gateway.messages import ending
from gateway.runs.follow import END, HEARTBEAT, follow

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from common.pb.bridle.v1 import run_event_pb2
    from gateway.http.endpoint import Exchange
    from gateway.runs.begin import Begun

# Between what the agent says before and after it used a tool.
_BREAK: Final = "\n\n"
_ASSISTANT: Final = message_pb2.Message.ROLE_ASSISTANT
# Why OpenAI's models stop. An agent has more reasons; its run tells them.
_FINISH: Final[dict[int, model.FinishReason]] = {
    stop_reason_pb2.STOP_REASON_MAX_TOKENS_EXCEEDED: "length",
    stop_reason_pb2.STOP_REASON_REFUSAL: "content_filter",
}


class Transcript:
    """What the agent says in a run, as one text that only grows."""

    def __init__(self) -> None:
        self._message_id = ""
        self._shown = ""
        self._begun = False

    def add(self, kind: str, event: run_event_pb2.RunEvent) -> str:
        """What an event adds to the text."""
        if kind == "text_delta":
            return self._more(event.text_delta.message_id, event.text_delta.text)
        if kind == "restarted":
            # What was shown of the turn is void; the turn is made again, and may be another one.
            self._message_id = ""
        elif kind == "message_added" and event.message_added.message.role == _ASSISTANT:
            return self._rest(event.message_added.message)
        return ""

    def _rest(self, message: message_pb2.Message) -> str:
        """What of a whole message was not shown in deltas."""
        whole = "".join(part.text.text for part in message.parts if part.HasField("text"))
        shown = self._shown if message.id == self._message_id else ""
        return self._more(message.id, whole.removeprefix(shown)) if whole.startswith(shown) else ""

    def _more(self, message_id: str, text: str) -> str:
        if not text:
            return ""
        if message_id == self._message_id:
            self._shown += text
            return text
        lead = _BREAK if self._begun else ""
        self._message_id, self._shown, self._begun = message_id, text, True
        return lead + text


class Completion:
    """The objects that answer one request."""

    def __init__(self, exchange: Exchange[Any, Any], agent_id: str, begun: Begun) -> None:
        self._exchange = exchange
        self._begun = begun
        self._names: dict[str, Any] = {
            "id": f"chatcmpl-{begun.run.id.partition('-')[2]}",
            "created": begun.run.create_time.seconds,
            "model": agent_id,
        }

    async def whole(self) -> model.ChatCompletion:
        """All of it; raises how the run failed."""
        transcript, text, run = Transcript(), "", self._begun.run
        if not self._begun.idle:
            async with aclosing(self._follow(skip_deltas=True)) as found:
                async for kind, event in found:
                    if kind is END:
                        run = event
                    elif kind is not HEARTBEAT:
                        text += transcript.add(kind, event)
        problem = errors.run_problem(run)
        if problem is not None:
            raise problem
        calls = await self._calls(run)
        message = model.Message(content=text or None, tool_calls=calls or UNSET)
        choice = model.Choice(message=message, finish_reason=_finish(run))
        return model.ChatCompletion(choices=[choice], usage=self._usage(run), **self._names)

    async def chunks(self, *, with_usage: bool) -> AsyncGenerator[bytes, None]:
        """Frame by frame, the end marker included, whatever happens to the server meanwhile."""
        unset = None if with_usage else UNSET
        transcript, run = Transcript(), self._begun.run
        yield self._chunk(model.Delta(role="assistant", content=""), unset)
        try:
            if not self._begun.idle:
                async with aclosing(self._follow(skip_deltas=False)) as found:
                    async for kind, event in found:
                        if kind is END:
                            run = event
                        elif kind is HEARTBEAT:
                            yield events.KEEP_ALIVE
                        elif text := transcript.add(kind, event):
                            yield self._chunk(model.Delta(content=text), unset)
            yield await self._ending(run, unset)
        except grpc.aio.AioRpcError as error:
            yield events.frame(told(errors.problem(errors.read(error)))) + events.DONE

    async def _ending(self, run: run_pb2.Run, unset: UnsetType | None) -> bytes:
        problem = errors.run_problem(run)
        if problem is not None:
            return events.frame(told(problem)) + events.DONE
        calls = [self._chunk(model.Delta(tool_calls=[call]), unset) for call in await self._calls(run, numbered=True)]
        last = self._chunk(model.Delta(), unset, _finish(run))
        spent = b""
        if unset is None:
            spent = events.frame(model.ChatChunk(choices=[], usage=self._usage(run), **self._names))
        return b"".join((*calls, last, spent, events.DONE))

    def _follow(self, *, skip_deltas: bool) -> AsyncGenerator[tuple[str, Any], None]:
        return follow(self._exchange, self._begun.run.id, self._begun.after_seq, skip_deltas=skip_deltas)

    def _chunk(
        self, delta: model.Delta, usage: UnsetType | None, finish_reason: model.FinishReason | None = None
    ) -> bytes:
        choice = model.ChunkChoice(delta=delta, finish_reason=finish_reason)
        return events.frame(model.ChatChunk(choices=[choice], usage=usage, **self._names))

    async def _calls(self, run: run_pb2.Run, *, numbered: bool = False) -> list[model.ToolCall]:
        """The calls that wait for an answer."""
        if run.state != run_pb2.Run.STATE_AWAITING_APPROVAL:
            return []
        request = approval_service_pb2.GetApprovalRequest(approval_id=run.approval_id)
        approval = await self._exchange.caller(self._exchange.backend.approvals.GetApproval, request)
        return [
            model.ToolCall(
                index=index if numbered else UNSET,
                id=each.call.id,
                function=model.FunctionCall(each.call.name, each.call.arguments),
            )
            for index, each in enumerate(approval.calls)
        ]

    def _usage(self, run: run_pb2.Run) -> model.Usage:
        spent = ending.usage(run, self._begun.before)
        return model.Usage(
            spent.prompt_tokens,
            spent.completion_tokens,
            spent.total_tokens,
            model.PromptDetails(spent.cached_input_tokens or 0),
            model.CompletionDetails(spent.reasoning_tokens or 0),
        )


def _finish(run: run_pb2.Run) -> model.FinishReason:
    if run.state == run_pb2.Run.STATE_AWAITING_APPROVAL:
        return "tool_calls"
    return _FINISH.get(run.stop_reason, "stop")
