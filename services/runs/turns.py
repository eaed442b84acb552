"""Reading a model's turn: which calls it makes, which of them may run, and what the others get instead."""

import json
from collections.abc import Sequence

import msgspec

from services.messages.model import Outcome, Part, Text, ToolCall, ToolReturn
from services.models.api import Finish
from services.models.fold import TurnPart, made_up_call_id
from services.runs import rules
from services.runs.model import RunError, StepDetail, StopReason
from services.runs.protocol import APPROVED, Call, Config, ModelTurn, State

_CLIENT = 0
_DENIED = 1


def read(turn: ModelTurn, config: Config, state: State) -> tuple[tuple[Part, ...], tuple[Call, ...]]:
    """The parts to store and the calls to deal with. Calls that cannot run come with their outcome already."""
    parts: list[Part] = []
    calls: list[Call] = []
    history = list(state.history)
    seen = set(state.call_ids)
    for part in turn.parts:
        if not isinstance(part, ToolCall):
            parts += _worth_keeping(part)
            continue
        if calls and not config.parallel_calls:
            continue
        call = _judge(_named(part, state, len(calls), seen), config, history)
        if call.result is None:
            history.append(rules.Called(call.call.name, ""))
        parts.append(call.call)
        calls.append(call)
    return tuple(parts), tuple(calls)


def _worth_keeping(part: TurnPart) -> list[Part]:
    return [] if isinstance(part, Text) and not part.text else [part]


def _named(call: ToolCall, state: State, index: int, seen: set[str]) -> ToolCall:
    """Some providers give no ids, or the same one twice; an outcome needs exactly one call to belong to."""
    call_id = call.id
    if not call_id or call_id in seen:
        call_id = made_up_call_id(state.message_id, index)
    seen.add(call_id)
    return msgspec.structs.replace(call, id=call_id)


def _judge(call: ToolCall, config: Config, history: Sequence[rules.Called]) -> Call:
    if call.name not in config.tools:
        return Call(call, result=failed(call, f"Error: Tool not found: {call.name}"))
    complaint = rules.violation(config.rules, config.tool_names, history, call.name)
    if complaint is not None:
        return Call(call, result=failed(call, complaint))
    try:
        call = msgspec.structs.replace(
            call, arguments=rules.prefilled(config.rules, call.name, history, call.arguments or "{}")
        )
    except rules.PrefillError as error:
        return Call(call, result=failed(call, f"Error: {error}"), misfit=True)
    if not _is_object(call.arguments):
        text = "Error: the arguments are not a JSON object. Call the tool again with valid JSON."
        return Call(call, result=failed(call, text))
    client_side = call.name in config.client_tools
    if client_side or rules.needs_approval(config.rules, call.name):
        call = msgspec.structs.replace(call, needs_approval=True)
        return Call(call, waits=True, client_side=client_side, rank=APPROVED)
    return Call(call)


def _is_object(arguments: str) -> bool:
    try:
        return isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        return False


def failure_of(turn: ModelTurn) -> tuple[StopReason, RunError] | None:
    """Why a turn without calls is not an answer, if it is not."""
    if turn.finish is Finish.LENGTH:
        return StopReason.MAX_TOKENS_EXCEEDED, RunError("llm_error", "The answer was cut at the output limit.")
    if turn.finish is Finish.REFUSAL:
        return StopReason.REFUSAL, RunError("llm_error", "The provider refused or filtered the content.")
    return None


def next_batch(calls: Sequence[Call], config: Config) -> list[Call]:
    """The calls to run next: one, or as many in a row as may run side by side."""
    pending = [call for call in calls if call.result is None]
    batch = pending[:1]
    if config.parallel(batch[0].call.name):
        for call in pending[1:]:
            if not config.parallel(call.call.name):
                break
            batch.append(call)
    return batch


def return_order(call: Call) -> int:
    """Returns are listed as the wire expects: client results, denials, what was approved, what merely waited."""
    if call.rank == APPROVED and call.result is not None and not call.started:
        return _DENIED if call.result.outcome is Outcome.DENIED else _CLIENT
    return call.rank


def ended(call: ToolCall, outcome: Outcome, text: str) -> ToolReturn:
    """An outcome that no tool produced."""
    return ToolReturn(call.id, call.name, outcome, (Text(text),))


def failed(call: ToolCall, text: str) -> ToolReturn:
    """The call could not be made."""
    return ended(call, Outcome.FAILED, text)


def denial(call: ToolCall, reason: str | None) -> ToolReturn:
    """The call was denied, in the words the wire promises."""
    return ended(call, Outcome.DENIED, f"Error: request to call tool denied. User reason: {reason}")


def with_tool_time(detail: StepDetail, tool_us: int) -> StepDetail:
    """Tools ran this much longer."""
    return msgspec.structs.replace(detail, tool_us=(detail.tool_us or 0) + tool_us)


def closed(detail: StepDetail, tools: tuple[str, ...], reason: StopReason | None, error: RunError | None) -> StepDetail:
    """As it is stored when the step is over."""
    return msgspec.structs.replace(detail, tools_used=tools, stop_reason=reason, error=error)
