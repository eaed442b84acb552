"""The run's brain: `advance(state, config, input) -> (state, effects)`.

Pure. It decides and never acts: no I/O, no clock, no asyncio. The actor carries out the effects in order and feeds
their outcomes back as inputs. Everything a run does, in any mode, is one walk through this function; streams, unary
calls and background runs only differ in who reads the log.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from common.ids import Prefix, derive_id
from services.messages.model import (
    Approve,
    Body,
    Decision,
    Deny,
    InputMessage,
    NewMessage,
    Outcome,
    Result,
    Role,
    Text,
    ToolReturn,
)
from services.runs import rules, turns
from services.runs.model import ApprovalState, RunError, RunState, StepDetail, StepStatus, StopReason, Usage
from services.runs.protocol import (
    AddMessage,
    Answered,
    Begin,
    BeginStep,
    Broken,
    Call,
    CallModel,
    Cancelled,
    CloseApproval,
    Commit,
    Compact,
    Compacted,
    CompactionFailed,
    Config,
    Effect,
    EndStep,
    Finish,
    FinishTool,
    Input,
    ModelFailed,
    ModelTurn,
    MoveFloor,
    OpenApproval,
    Overflow,
    Passivate,
    Phase,
    Proceed,
    Record,
    Recovered,
    RunTools,
    Start,
    StartTool,
    State,
    Steered,
    Stop,
    ToolDone,
)
from services.tools.api import CrashPolicy

DENIED_BY_CANCEL = "The user cancelled the request, so the tool call was denied."
CANCELLED_CALL = "Error: the run was cancelled before this tool call finished."
UNKNOWN_CALL = "Error: the server stopped while this tool was running. Whether it took effect is unknown."

# A context that still does not fit after so many summaries never will.
MOST_COMPACTIONS = 3

Step = tuple[State, tuple[Effect, ...]]


# Inputs that only matter in one phase; elsewhere they come too late.
_ONLY_IN: dict[type[Input], Phase] = {
    Start: Phase.NEW,
    ModelTurn: Phase.MODEL,
    ModelFailed: Phase.MODEL,
    Overflow: Phase.MODEL,
    Compacted: Phase.COMPACTING,
    CompactionFailed: Phase.COMPACTING,
    ToolDone: Phase.TOOLS,
    Answered: Phase.WAITING,
    Proceed: Phase.TOOLS,
}


def advance(state: State, config: Config, event: Input) -> Step:
    """The next state and what must be done about it. An input that no longer matters changes nothing."""
    if state.phase is Phase.DONE or state.phase is not _ONLY_IN.get(type(event), state.phase):
        return state, ()
    return _HANDLERS[type(event)](state, config, event)


def _start(state: State, config: Config, start: Start) -> Step:
    state, added = _add_inputs(state, start.messages)
    return _next_step(state, config, [Begin(), *added])


def _next_step(state: State, config: Config, records: list[Record]) -> Step:
    if state.step_no >= config.max_steps:
        return _stop(state, records, StopReason.MAX_STEPS)
    state, joined = _add_inputs(state, state.joining)
    number = state.step_no + 1
    state = state.replace(
        joining=(),
        phase=Phase.MODEL,
        step_no=number,
        step_id=derive_id(Prefix.STEP, state.run_id, number),
        detail=StepDetail(model=config.model),
        compactions=0,
        calls=(),
    )
    return _call_model(state, config, [*records, *joined])


def _call_model(state: State, config: Config, records: list[Record]) -> Step:
    state, message_id = _mint(state)
    detail = msgspec.structs.replace(state.detail, model=config.model)
    state = state.replace(message_id=message_id, detail=detail)
    begin = BeginStep(state.step_id, state.step_no, message_id)
    return state, (Commit((*records, begin), RunState.RUNNING), _call(state, config))


def _call(state: State, config: Config) -> CallModel:
    offer = rules.offer(config.rules, config.tool_names, state.history)
    return CallModel(
        step_id=state.step_id,
        message_id=state.message_id,
        tool_names=offer.names,
        forced=offer.forced,
        parallel=config.parallel_calls and rules.plain(config.rules),
    )


def _overflow(state: State, config: Config, overflow: Overflow) -> Step:
    state = _pay(state, overflow.usage)
    if config.compaction.mode == "off":
        return _fail(state, [], overflow.stop_reason, overflow.error)
    return _compact(state, overflow)


def _compact(state: State, failure: Overflow | CompactionFailed) -> Step:
    """Try to make the context fit, or give up for the reason that the last attempt failed for."""
    if state.compactions == MOST_COMPACTIONS:
        return _fail(state, [], failure.stop_reason, failure.error)
    state = state.replace(phase=Phase.COMPACTING, compactions=state.compactions + 1)
    return state, (Compact(state.compactions, failure.trigger, failure.error),)


def _compacted(state: State, config: Config, done: Compacted) -> Step:
    """The same call again; nothing of it has been shown, so that it keeps its id."""
    state, summary_id = _mint(_pay(state, done.usage).replace(phase=Phase.MODEL))
    records = (
        AddMessage(NewMessage(summary_id, Role.SUMMARY, Body((Text(done.summary),)), state.step_id)),
        MoveFloor(summary_id, done.floor, done.messages_before, done.messages_after),
    )
    return state, (Commit(records, RunState.RUNNING), _call(state, config))


def _compaction_failed(state: State, config: Config, failed: CompactionFailed) -> Step:
    state = _pay(state, failed.usage)
    if failed.again:
        return _compact(state, failed)
    return _fail(state, [], failed.stop_reason, failed.error)


def _model_turn(state: State, config: Config, turn: ModelTurn) -> Step:
    state = _spend(state, turn.usage, turn.first_token_us, turn.model_us)
    parts, calls = turns.read(turn, config, state)
    if not parts:
        error = RunError("llm_empty_response", "The model answered with nothing.")
        return _fail(state, [], StopReason.INVALID_LLM_RESPONSE, error)
    message = AddMessage(NewMessage(state.message_id, Role.ASSISTANT, Body(parts), state.step_id))
    if not calls:
        return _turn_without_calls(state, config, turn, message)
    state = state.replace(calls=calls, call_ids=state.call_ids + tuple(call.call.id for call in calls))
    records: list[Record] = [message, *(FinishTool(call.result) for call in calls if call.result is not None)]
    if any(call.misfit for call in calls):
        return _stop_at_misfit(state, records)
    if any(call.waits for call in calls):
        return _ask(state, config, records)
    return _go_on_with_tools(state.replace(phase=Phase.TOOLS), config, records)


def _stop_at_misfit(state: State, records: list[Record]) -> Step:
    """A rule prefills arguments that do not fit: no answer of the model can mend that."""
    state, concluded = _give_up_calls(state)
    error = RunError("internal_error", "A tool rule prefills arguments that do not fit.")
    return _fail(state, [*records, *concluded], StopReason.INVALID_TOOL_CALL, error)


def _turn_without_calls(state: State, config: Config, turn: ModelTurn, message: Record) -> Step:
    failure = turns.failure_of(turn)
    if failure is not None:
        reason, error = failure
        return _fail(state, [message], reason, error)
    missing = rules.missing_before_exit(config.rules, config.tool_names, state.history)
    if missing:
        return _nudge(state, config, [message], missing)
    if turn.forced:
        error = RunError("llm_error", "The model had to call a tool and did not.")
        return _fail(state, [message], StopReason.NO_TOOL_CALL, error)
    if state.joining:
        return _next_step(state, config, [message, _end_step(state, StepStatus.SUCCEEDED)])
    return _stop(state, [message, _end_step(state, StepStatus.SUCCEEDED, StopReason.END_TURN)], StopReason.END_TURN)


def _nudge(state: State, config: Config, records: list[Record], missing: Sequence[str]) -> Step:
    state, nudge = _add_inputs(state, [InputMessage((Text(rules.nudge(missing)),))])
    return _next_step(state, config, [*records, _end_step(state, StepStatus.SUCCEEDED), *nudge])


def _ask(state: State, config: Config, records: list[Record]) -> Step:
    waiting = tuple(call for call in state.calls if call.waits)
    approval_id = derive_id(Prefix.APPROVAL, state.run_id, state.step_no, state.epoch)
    state = state.replace(phase=Phase.WAITING, approval_id=approval_id)
    records.append(OpenApproval(approval_id, state.step_id, state.message_id, waiting))
    commit = Commit(
        tuple(records),
        RunState.AWAITING_APPROVAL,
        StopReason.REQUIRES_APPROVAL,
        approval_ttl=config.approval_ttl,
    )
    return state, (commit, Passivate())


def _answered(state: State, config: Config, answer: Answered) -> Step:
    if answer.approval_id != state.approval_id:
        return state, ()
    verdicts = {decision.call_id: decision for decision in answer.decisions}
    calls = tuple(_decide(call, verdicts.get(call.call.id)) for call in state.calls)
    state = state.replace(
        phase=Phase.TOOLS,
        approval_id="",
        calls=calls,
        joining=state.joining + answer.follow_up,
        client_tools=answer.client_tools or state.client_tools,
    )
    state, message_id = _mint(state)
    records: list[Record] = [
        CloseApproval(answer.approval_id, answer.state, answer.decisions),
        AddMessage(NewMessage(message_id, Role.APPROVAL, Body(answer.decisions), state.step_id)),
        *(FinishTool(call.result) for call in calls if call.waits and call.result is not None),
    ]
    return _take_in(state.replace(calls=tuple(call.answered() for call in calls)), config, records)


def _decide(call: Call, decision: Decision | None) -> Call:
    match decision.verdict if decision else None:
        case Deny(reason=reason):
            return call.finished(_denied(call, reason))
        case Result(value=value):
            return call.finished(value)
        case Approve() if call.client_side:
            return call.finished(turns.failed(call.call, f"Error: Tool not found: {call.call.name}"))
        case _:
            return call


def _denied(call: Call, reason: str | None) -> ToolReturn:
    """A denial did not prevent a call that was running at a crash; it only keeps it from being run again."""
    if call.lost:
        text = f"{UNKNOWN_CALL} Running it again was denied. User reason: {reason}"
        return turns.ended(call.call, Outcome.UNKNOWN, text)
    return turns.denial(call.call, reason)


def _take_in(state: State, config: Config, records: list[Record]) -> Step:
    """Go on with what came in. If the run would stop, that is made durable first: a cancel may forbid the stop, but
    must not undo an answer that was accepted or the outcome of a tool that has run."""
    step = _go_on_with_tools(state, config, list(records))
    if step[0].phase is Phase.DONE:
        return state, (Commit(tuple(records), RunState.RUNNING), Proceed())
    return step


def _proceed(state: State, config: Config, proceed: Proceed) -> Step:
    return _go_on_with_tools(state, config, [])


def _go_on_with_tools(state: State, config: Config, records: list[Record]) -> Step:
    """Start what may start now; when every call has its outcome, the step is over."""
    if all(call.result is not None for call in state.calls):
        return _tools_done(state, config, records)
    if any(call.started and call.result is None for call in state.calls):
        return state, (Commit(tuple(records), RunState.RUNNING),)
    batch = turns.next_batch(state.calls, config)
    starting = {call.call.id for call in batch}
    state = state.replace(calls=tuple(c.begun() if c.call.id in starting else c for c in state.calls))
    records += [StartTool(call.call.id, call.call.name) for call in batch]
    return state, (Commit(tuple(records), RunState.RUNNING), RunTools(tuple(call.call for call in batch)))


def _tool_done(state: State, config: Config, done: ToolDone) -> Step:
    call = next((call for call in state.calls if call.call.id == done.result.call_id), None)
    if call is None or call.result is not None:
        return state, ()
    calls = tuple(c.finished(done.result) if c is call else c for c in state.calls)
    detail = turns.with_tool_time(state.detail, done.tool_us)
    return _take_in(state.replace(calls=calls, detail=detail), config, [FinishTool(done.result)])


def _tools_done(state: State, config: Config, records: list[Record]) -> Step:
    executed = [call for call in state.calls if call.executed]
    history = state.history + tuple(rules.Called(c.call.name, c.result.text) for c in executed if c.result)
    state, returns = _add_returns(state.replace(history=history))
    records.append(returns)
    terminal = any(rules.is_terminal(config.rules, call.call.name) for call in executed)
    missing = rules.missing_before_exit(config.rules, config.tool_names, state.history)
    if terminal and missing:
        return _nudge(state, config, records, missing)
    if terminal:
        records.append(_end_step(state, StepStatus.SUCCEEDED, StopReason.TOOL_RULE))
        return _stop(state, records, StopReason.TOOL_RULE)
    return _next_step(state, config, [*records, _end_step(state, StepStatus.SUCCEEDED)])


def _model_failed(state: State, config: Config, failed: ModelFailed) -> Step:
    state = _spend(state, failed.usage, failed.first_token_us)
    return _fail(state, _kept(state, failed.shown), failed.stop_reason, failed.error)


def _cancelled(state: State, config: Config, cancel: Cancelled) -> Step:
    if state.phase is Phase.NEW:
        return _stop(state, [], StopReason.CANCELLED)
    records: list[Record] = []
    if state.phase in (Phase.MODEL, Phase.COMPACTING):
        state = _spend(state, cancel.usage, cancel.first_token_us)
        records = _kept(state, cancel.shown)
    elif state.phase is Phase.WAITING:
        state, records = _deny_all(state)
    elif state.phase is Phase.TOOLS:
        state, records = _give_up_calls(state, lost=cancel.lost)
    records.append(_end_step(state, StepStatus.CANCELLED, StopReason.CANCELLED))
    return _stop(state, records, StopReason.CANCELLED)


def _steered(state: State, config: Config, steered: Steered) -> Step:
    return state.replace(joining=state.joining + steered.messages), ()


def _broken(state: State, config: Config, broken: Broken) -> Step:
    """Fail, whatever the run was at, and leave no call without its outcome: the agent must stay usable."""
    error = broken.error
    if state.phase is Phase.NEW:
        return _stop(state, [], StopReason.ERROR, error)
    records: list[Record] = []
    if state.phase is Phase.WAITING:
        state, records = _deny_all(state)
    elif state.phase is Phase.TOOLS:
        state, records = _give_up_calls(state)
    return _fail(state, records, StopReason.ERROR, error)


def _deny_all(state: State) -> tuple[State, list[Record]]:
    waiting = [call for call in state.calls if call.waits]
    decisions = tuple(Decision(call.call.id, Deny(DENIED_BY_CANCEL)) for call in waiting)
    state, message_id = _mint(state)
    records: list[Record] = [
        CloseApproval(state.approval_id, ApprovalState.CANCELLED, decisions),
        AddMessage(NewMessage(message_id, Role.APPROVAL, Body(decisions), state.step_id)),
    ]
    outcomes = [_denied(call, DENIED_BY_CANCEL) for call in state.calls if call.result is None]
    return _conclude(state.replace(approval_id=""), records, outcomes)


def _give_up_calls(state: State, *, lost: bool = False) -> tuple[State, list[Record]]:
    outcomes = [
        turns.ended(call.call, Outcome.UNKNOWN, UNKNOWN_CALL)
        if call.lost or (lost and call.started)
        else turns.ended(call.call, Outcome.CANCELLED, CANCELLED_CALL)
        for call in state.calls
        if call.result is None
    ]
    return _conclude(state, [], outcomes)


def _conclude(state: State, records: list[Record], outcomes: list[ToolReturn]) -> tuple[State, list[Record]]:
    """Give the open calls these outcomes and tell the model of all of them."""
    by_id = {result.call_id: result for result in outcomes}
    calls = tuple(c.finished(by_id[c.call.id]) if c.call.id in by_id else c for c in state.calls)
    state, returns = _add_returns(state.replace(calls=calls))
    return state, [*records, *(FinishTool(result) for result in outcomes), returns]


def _recovered(state: State, config: Config, recovered: Recovered) -> Step:
    """Go on from the last checkpoint under a new owner."""
    state = state.replace(epoch=recovered.epoch)
    if state.phase is Phase.MODEL:
        return _call_model(state, config, [])
    if state.phase is not Phase.TOOLS:
        return state, ()
    records: list[Record] = []
    calls: list[Call] = []
    for call in state.calls:
        if not call.started or call.result is not None:
            calls.append(call)
            continue
        policy = config.crash_policy(call.call.name)
        if policy is CrashPolicy.RETRY:
            calls.append(call.unstarted())
        elif policy is CrashPolicy.ASK:
            calls.append(call.asked_again())
        else:
            result = turns.ended(call.call, Outcome.UNKNOWN, UNKNOWN_CALL)
            records.append(FinishTool(result))
            calls.append(call.finished(result))
    state = state.replace(calls=tuple(calls))
    if any(call.waits for call in state.calls):
        return _ask(state, config, records)
    return _go_on_with_tools(state, config, records)


def _kept(state: State, shown: tuple[Text, ...]) -> list[Record]:
    """What a client has already seen of a turn that was cut stays in the log, marked."""
    if not any(part.text for part in shown):
        return []
    body = Body(shown, interrupted=True)
    return [AddMessage(NewMessage(state.message_id, Role.ASSISTANT, body, state.step_id))]


def _fail(state: State, records: list[Record], reason: StopReason, error: RunError) -> Step:
    records.append(_end_step(state, StepStatus.FAILED, reason, error))
    return _stop(state, records, reason, error)


def _stop(state: State, records: list[Record], reason: StopReason, error: RunError | None = None) -> Step:
    # What was accepted to join the run must not be lost with it: the next run will see it.
    state, joined = _add_inputs(state, state.joining)
    state = state.replace(joining=(), phase=Phase.DONE, calls=())
    return state, (Commit((*records, *joined, Stop(reason, error)), reason.state, reason, error), Finish())


def _end_step(
    state: State, status: StepStatus, reason: StopReason | None = None, error: RunError | None = None
) -> EndStep:
    tools = tuple(dict.fromkeys(call.call.name for call in state.calls))
    return EndStep(state.step_id, status, turns.closed(state.detail, tools, reason, error))


def _spend(state: State, usage: Usage, first_token_us: int | None, model_us: int | None = None) -> State:
    """The step's own model call is over."""
    state = _pay(state, usage)
    detail = msgspec.structs.replace(state.detail, first_token_us=first_token_us, model_us=model_us)
    first = state.first_token_us if state.first_token_us is not None else first_token_us
    return state.replace(detail=detail, first_token_us=first)


def _pay(state: State, usage: Usage) -> State:
    """Whatever a step has spent, on summaries too, counts in it and in the run."""
    detail = msgspec.structs.replace(state.detail, usage=state.detail.usage + usage)
    return state.replace(detail=detail, usage=state.usage + usage)


def _add_inputs(state: State, messages: Sequence[InputMessage]) -> tuple[State, list[Record]]:
    records: list[Record] = []
    for message in messages:
        state, message_id = _mint(state)
        body = Body(message.parts, name=message.name, otid=message.otid)
        records.append(AddMessage(NewMessage(message_id, message.role, body)))
    return state, records


def _add_returns(state: State) -> tuple[State, Record]:
    state, message_id = _mint(state)
    returns: tuple[ToolReturn, ...] = tuple(
        call.result for call in sorted(state.calls, key=turns.return_order) if call.result is not None
    )
    return state, AddMessage(NewMessage(message_id, Role.TOOL, Body(returns), state.step_id))


def _mint(state: State) -> tuple[State, str]:
    """A new message id. The epoch is part of it: a turn that is repeated after a crash is another message."""
    minted = state.minted + 1
    return state.replace(minted=minted), derive_id(Prefix.MESSAGE, state.run_id, state.epoch, minted)


_HANDLERS: dict[type[Input], Callable[[State, Config, Any], Step]] = {
    Start: _start,
    ModelTurn: _model_turn,
    ModelFailed: _model_failed,
    Overflow: _overflow,
    Compacted: _compacted,
    CompactionFailed: _compaction_failed,
    ToolDone: _tool_done,
    Answered: _answered,
    Steered: _steered,
    Cancelled: _cancelled,
    Broken: _broken,
    Recovered: _recovered,
    Proceed: _proceed,
}
