"""What a run's model is shown: the log as the owner knows it, and the tools that may be called now."""

from collections.abc import Iterable

from services.blocks import store as blocks_store
from services.context.request import model_request
from services.messages.model import InContext
from services.messages.store import context
from services.models.api import ModelRequest
from services.runs.events import Entry, MessageAdded
from services.runs.journal import Journal
from services.runs.protocol import CallModel, Config
from services.runs.store.claim import Claim


class Requests:
    """Builds one run's requests. The log is read once; only its owner adds to it while it is live."""

    def __init__(self, claim: Claim, journal: Journal) -> None:
        self._claim = claim
        self._journal = journal
        self._context: list[InContext] | None = None

    def added(self, entries: Iterable[Entry]) -> None:
        """These were committed."""
        if self._context is not None:
            messages = [entry.event.message for entry in entries if isinstance(entry.event, MessageAdded)]
            self._context += [InContext(each.id, each.seq, each.role, each.body) for each in messages]

    async def build(self, effect: CallModel, config: Config) -> ModelRequest:
        """The request of one turn."""
        run, agent = self._claim.run, self._claim.agent
        if self._context is None:
            self._context = await self._journal.read(context, run.conversation_id)
        return model_request(
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
