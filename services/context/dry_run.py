"""The request that a message would cause, made as a run makes it, up to the point where it would be sent."""

from collections.abc import Iterator

from common.errors import ConversationBusy, PendingApproval
from services.context.request import model_request
from services.context.situation import Live, Situation
from services.messages.model import InContext
from services.models.api import ModelRequest
from services.runs.config import settle
from services.runs.machine import advance
from services.runs.model import OnBusy, OnPendingApproval, RunOptions, RunRequest, RunState
from services.runs.protocol import AddMessage, CallModel, Cancelled, Commit, Effect, Start, State


def dry_run(now: Situation, request: RunRequest, default_model: str) -> ModelRequest:
    """The first call of a run with this request. A message that would be refused is refused.

    A live run that the message would interrupt is taken as interrupted. One that it would wait for is taken as it
    stands: nobody knows what it is going to say.
    """
    options = request.options
    ended = _ended(now, options, default_model)
    config = settle(options, now.agent.spec, now.tools, options.client_tools, default_model)
    _, effects = advance(State(run_id="", epoch=0), config, Start(request.messages))
    call = next(effect for effect in effects if isinstance(effect, CallModel))
    return model_request(
        now.agent,
        model=config.model,
        context=[*now.log, *ended, *_added(effects)],
        tools=[config.tools[name] for name in call.tool_names],
        blocks=now.blocks,
        rules=config.rules,
        system=options.system,
        forced=call.forced,
        parallel=call.parallel,
    )


def _ended(now: Situation, options: RunOptions, default_model: str) -> list[InContext]:
    """What the busy policy would add to the log before the run starts."""
    # Who is told to stop already is in nobody's way.
    live = now.live if now.live and now.live.run.cancel_requested_at is None else None
    if live is not None and live.run.state is RunState.AWAITING_APPROVAL:
        if options.on_pending_approval is OnPendingApproval.REFUSE:
            raise PendingApproval(live.run.outcome.approval_id, live.run.id)
        return _cancelled(now, live, default_model)
    if now.busy_with and options.on_busy is OnBusy.REJECT:
        raise ConversationBusy(now.busy_with)
    if live is not None and options.on_busy is OnBusy.INTERRUPT:
        return _cancelled(now, live, default_model)
    return []


def _cancelled(now: Situation, live: Live, default_model: str) -> list[InContext]:
    config = settle(live.run.request.options, now.agent.spec, now.tools, live.state.client_tools, default_model)
    _, effects = advance(live.state, config, Cancelled())
    return list(_added(effects))


def _added(effects: tuple[Effect, ...]) -> Iterator[InContext]:
    """The messages that a run would have written."""
    for effect in effects:
        if isinstance(effect, Commit):
            for record in effect.records:
                if isinstance(record, AddMessage):
                    yield InContext(record.message.id, 0, record.message.role, record.message.body)
