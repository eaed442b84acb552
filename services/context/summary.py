"""Has a model write the summary that takes the place of older messages."""

from collections.abc import Iterable, Sequence
from contextlib import aclosing

import msgspec
from msgspec import Struct

from services.agents.model import AgentSpec, ModelSettings
from services.context.compaction import Plan
from services.context.window import window_of
from services.messages.model import Image, InContext, Part, Role, Text, ToolCall, ToolReturn
from services.models import tokens
from services.models.api import ContextMessage, Finish, ModelRequest, Models
from services.models.errors import ModelError, ModelErrorType
from services.models.fold import TurnFold
from services.models.watching import CallWatch
from services.runs.model import Usage

# Failures after which the same call, or a smaller one, may do better. The others come again.
PASSING = frozenset(
    {
        ModelErrorType.TIMEOUT,
        ModelErrorType.RATE_LIMIT,
        ModelErrorType.ERROR,
        ModelErrorType.EMPTY_RESPONSE,
        ModelErrorType.CONTEXT_WINDOW_EXCEEDED,
    }
)

PROMPT = (
    "You write the memory of an assistant whose conversation has become too long. You are given its older part, which "
    "the assistant will not see again. Write a summary that lets it go on as if it did: who wants what and why, what "
    "was decided, promised or refused, names, numbers, dates, addresses and other facts word for word, what tools were "
    "called for and what came of it, what is still open. If the text begins with an earlier summary, carry over "
    "everything of it that still matters. No preface, no comment: only the summary."
)
_TASK = "Conversation to summarise"
_OLDER_SUMMARY = "[summary of what came before]"
_IMAGE = "[an image]"
# What the prompt's last line and the frame of a call take.
_FRAME = 64
# No single message gets more of the transcript than this share when all of it does not fit.
_SHARE = 8
# No model that is worth its name has less.
_SMALLEST_WINDOW = 4_096
# What the word about the rest of a text takes.
_MARK = 10


class SummaryJob(Struct, frozen=True):
    """A call to be made: of which model, with what; and the plan that it is part of."""

    handle: str
    request: ModelRequest
    # What the request weighs: whoever cancels it must not wait for a count.
    tokens: int
    plan: Plan


def summary_job(plan: Plan, spec: AgentSpec, handle: str, attempt: int = 1) -> SummaryJob:
    """What the summarising model is asked. `handle` is the agent's own model; less is sent with each attempt."""
    compaction = spec.compaction
    if compaction.model and compaction.model != handle:
        # The agent's settings are for its own model.
        handle, settings = compaction.model, _patience(spec.model_settings)
    else:
        settings = msgspec.structs.replace(spec.model_settings, response_schema=None, parallel_tool_calls=None)
    system = f"{compaction.prompt or PROMPT}\n\nAt most {max(1, plan.room * 3 // 4)} words."
    limit = window_of(handle, settings, compaction).limit
    if limit is None:
        # Nothing is known of this model but that what was too big for somebody may be too big for it.
        limit = max(plan.tokens_before, _SMALLEST_WINDOW)
    said = transcript(plan.old, max(1, limit // 2 ** (attempt - 1) - tokens.count(system) - _FRAME))
    request = ModelRequest(
        model="", system=system, messages=(ContextMessage(Role.USER, (Text(said),)),), settings=settings
    )
    return SummaryJob(handle, request, tokens.of_request(request), plan)


def _patience(settings: ModelSettings) -> ModelSettings:
    return ModelSettings(
        first_token_timeout=settings.first_token_timeout,
        token_gap_timeout=settings.token_gap_timeout,
        call_timeout=settings.call_timeout,
    )


class SummaryCall:
    """One call of the summarising model. What it has cost can be asked for at any moment."""

    def __init__(self, job: SummaryJob) -> None:
        self._job = job
        self._watch = CallWatch()
        self._sent = False
        self._fold = TurnFold("")

    def usage(self, *, failed: bool = False) -> Usage:
        """Tokens spent so far; what the provider has refused, or was never asked, costs nothing."""
        watch = self._watch
        told = self._fold.usage or (watch.usage if watch.whole else None)
        if told is not None:
            return watch.earlier + told
        if not self._sent or watch.refused or (failed and not self._fold.started and not watch.costs):
            return watch.earlier
        told = watch.usage or Usage(input_tokens=self._job.tokens)
        written = max(told.output_tokens, tokens.of_parts(self._fold.parts()))
        return watch.earlier + msgspec.structs.replace(told, output_tokens=written, estimated=True)

    async def run(self, models: Models, organization_id: str) -> str:
        """The summary, cut to its room. Raises ModelError."""
        provider, name = await models.resolve(organization_id, self._job.handle)
        self._sent = True
        request = msgspec.structs.replace(self._job.request, model=name, watch=self._watch)
        async with aclosing(provider.stream(request)) as events:
            async for event in events:
                self._fold.add(event)
        if self._fold.finish is None:
            raise ModelError(ModelErrorType.ERROR, "The summary broke off.")
        if self._fold.finish is Finish.REFUSAL:
            raise ModelError(ModelErrorType.ERROR, "The model refused to summarise the conversation.")
        written = "".join(part.text for part in self._fold.shown_text()).strip()
        if not written:
            raise ModelError(ModelErrorType.EMPTY_RESPONSE, "The model summarised the conversation as nothing.")
        return clip(written, self._job.plan.room - tokens.PER_MESSAGE)


def transcript(messages: Sequence[InContext], room: int) -> str:
    """What was said, as text. Where all of it does not fit, long messages are cut first, then old ones left out."""
    lines = [line for entry in messages if (line := _line(entry))]
    weights = [tokens.count(line) + 1 for line in lines]
    if sum(weights) > room:
        lines = [clip(line, max(1, room // _SHARE)) for line in lines]
        weights = [tokens.count(line) + 1 for line in lines]
    # A summary stands for far more than its length.
    first = 1 if messages and messages[0].role is Role.SUMMARY else 0
    gone, weight = first, sum(weights)
    while weight > room and gone < len(lines) - 1:
        weight -= weights[gone]
        gone += 1
    if gone > first:
        lines[first:gone] = [f"[{gone - first} older messages are left out here: they did not fit]"]
    return "\n".join([f"{_TASK}:", *lines])


def clip(text: str, most: int) -> str:
    """The beginning of a text, with a word about the rest if there is any."""
    weight = tokens.count(text)
    if weight <= most:
        return text
    kept, room = text, max(1, most - _MARK)
    while weight > room:
        # A token may be longer than the others; the next look is at what is left.
        kept = kept[: min(len(kept) - 1, len(kept) * room // weight)]
        weight = tokens.count(kept)
    return f"{kept} [... {len(text) - len(kept)} characters left out]"


def _line(entry: InContext) -> str:
    match entry.role:
        case Role.SUMMARY:
            return f"{_OLDER_SUMMARY} {_said(entry.body.parts)}"
        case Role.APPROVAL:
            return ""
        case role:
            said = _said(entry.body.parts)
            return f"[{entry.body.name or role.value}] {said}" if said else ""


def _said(parts: Iterable[Part]) -> str:
    return "\n".join(text for part in parts if (text := _text(part)))


def _text(part: Part) -> str:
    match part:
        case Text(text=text):
            return text
        case Image():
            return _IMAGE
        case ToolCall(name=name, arguments=arguments):
            return f"(calls {name} {arguments})"
        case ToolReturn(name=name, outcome=outcome, content=content):
            return f"({name} {outcome.value}: {_said(content)})"
        case _:
            return ""
