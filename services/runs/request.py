"""What a run's models are asked: the context as the owner knows it, and the tools that may be called now."""

from collections.abc import Iterable

from services.blocks import store as blocks_store
from services.context.compaction import plan, strained
from services.context.request import model_request
from services.context.summary import SummaryJob, summary_job
from services.context.weights import Weights
from services.context.window import require_fit, surely_fits, window_of
from services.messages.model import InContext, Role
from services.messages.store import context
from services.models.api import ModelRequest
from services.runs.events import ContextCompacted, Entry, MessageAdded
from services.runs.journal import Journal
from services.runs.model import Trigger
from services.runs.protocol import CallModel, Compact, Config
from services.runs.store.claim import Claim


class Requests:
    """Builds one run's requests. The log is read once; only its owner adds to it while it is live."""

    def __init__(self, claim: Claim, journal: Journal, weights: Weights) -> None:
        self._claim = claim
        self._journal = journal
        self._weights = weights
        self._context: list[InContext] | None = None
        # The last one that was built: what a compaction has to make smaller.
        self._request: ModelRequest | None = None

    def added(self, entries: Iterable[Entry]) -> None:
        """These were committed."""
        if self._context is None:
            return
        for entry in entries:
            match entry.event:
                case MessageAdded(message=message):
                    self._context.append(InContext(message.id, message.seq, message.role, message.body))
                case ContextCompacted(message_id=summary_id, floor=floor):
                    self._context = _compacted(self._context, summary_id, floor)

    async def build(self, effect: CallModel, config: Config) -> ModelRequest:
        """The request of one turn. ModelError if it does not fit."""
        run, agent = self._claim.run, self._claim.agent
        if self._context is None:
            self._context = await self._journal.read(context, run.conversation_id)
        request = self._request = model_request(
            agent,
            model=config.model,
            context=self._context,
            tools=[config.tools[name] for name in effect.tool_names],
            # Read for every turn: others may have changed them since the last one, and so may the agent itself.
            blocks=await self._journal.read(blocks_store.of_agent, agent.id),
            rules=config.rules,
            system=run.request.options.system,
            forced=effect.forced,
            parallel=effect.parallel,
        )
        window = window_of(config.model, agent.spec.model_settings, config.compaction)
        if window.limit is not None and not surely_fits(request, window):
            require_fit(await self._weights.weigh(request, self._context), window.limit)
        return request

    async def compaction(self, effect: Compact, config: Config) -> SummaryJob:
        """What has to be asked so that the request that did not fit will. ModelError if nothing can help."""
        if self._context is None or self._request is None:
            raise RuntimeError("only a context that was built can be too big")
        spec, attempt = self._claim.agent.spec, effect.attempt
        scale = await self._weights.weigh(self._request, self._context)
        window = window_of(config.model, spec.model_settings, config.compaction)
        if effect.trigger is Trigger.PROVIDER:
            window = strained(window, scale.tokens, config.compaction.threshold)
        return summary_job(plan(scale, window, config.compaction, attempt), spec, config.model, attempt)


def _compacted(known: Iterable[InContext], summary_id: str, floor: int) -> list[InContext]:
    """As the store would read it again."""
    summary = [entry for entry in known if entry.id == summary_id]
    return [*summary, *(entry for entry in known if entry.seq >= floor and entry.role is not Role.SUMMARY)]
