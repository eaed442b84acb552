"""What a run's model is shown: the log as the owner knows it, and the tools that may be called now."""

from collections.abc import Iterable

from services.context.prompt import shown, system_prompt
from services.messages.store import context
from services.models.api import ContextMessage, ModelRequest, ToolSpec
from services.runs.events import Entry, MessageAdded
from services.runs.journal import Journal
from services.runs.protocol import CallModel, Config
from services.runs.store.claim import Claim


class Requests:
    """Builds one run's requests. The log is read once; only its owner adds to it while it is live."""

    def __init__(self, claim: Claim, journal: Journal) -> None:
        self._claim = claim
        self._journal = journal
        self._context: list[ContextMessage] | None = None

    def added(self, entries: Iterable[Entry]) -> None:
        """These were committed."""
        if self._context is not None:
            messages = [entry.event.message for entry in entries if isinstance(entry.event, MessageAdded)]
            self._context += shown((message.role, message.body) for message in messages)

    async def build(self, effect: CallModel, config: Config) -> ModelRequest:
        """The request of one turn."""
        run, agent = self._claim.run, self._claim.agent
        if self._context is None:
            self._context = shown(await self._journal.read(context, run.conversation_id))
        tools = [config.tools[name] for name in effect.tool_names]
        return ModelRequest(
            model=config.model,
            system=system_prompt(agent, config.rules, run.request.options.system),
            messages=tuple(self._context),
            tools=tuple(ToolSpec(tool.name, tool.description, tool.parameters) for tool in tools),
            forced=effect.forced,
            parallel=effect.parallel,
            settings=agent.spec.model_settings,
        )
