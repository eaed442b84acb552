"""Short ways to drive the machine."""

from collections.abc import Sequence

from services.agents.model import RequiresApproval, ToolRule
from services.messages.model import InputMessage, Outcome, Role, Text, ToolCall, ToolReturn
from services.models.api import Finish as ModelFinish
from services.runs.machine import advance
from services.runs.model import Usage
from services.runs.protocol import (
    AddMessage,
    Commit,
    Config,
    Effect,
    Input,
    ModelTurn,
    Proceed,
    Record,
    Start,
    State,
    ToolDone,
)
from services.tools.api import CrashPolicy, ToolDefinition

RUN = "run-00000000-0000-4000-8000-000000000001"
HELLO = InputMessage((Text("hello"),))


def tool(name: str, *, parallel: bool = False, crash: CrashPolicy = CrashPolicy.NEVER) -> ToolDefinition:
    return ToolDefinition(
        id=f"tool-{name}", name=name, description="", parameters={}, parallel=parallel, crash_policy=crash
    )


def config(
    *tools: ToolDefinition,
    rules: Sequence[ToolRule] = (),
    client: Sequence[str] = (),
    max_steps: int = 50,
    parallel: bool = True,
) -> Config:
    return Config(
        model="demo/echo",
        max_steps=max_steps,
        rules=tuple(rules),
        tools={each.name: each for each in tools},
        client_tools=frozenset(client),
        parallel_calls=parallel,
    )


def asks(*names: str) -> tuple[ToolRule, ...]:
    return tuple(RequiresApproval(name) for name in names)


def say(text: str) -> ModelTurn:
    return ModelTurn((Text(text),), ModelFinish.STOP, Usage(input_tokens=3, output_tokens=2))


def call(*calls: tuple[str, str], text: str = "", arguments: str = "{}") -> ModelTurn:
    """A turn that makes calls, given as (id, tool)."""
    said = (Text(text),) if text else ()
    made = tuple(ToolCall(call_id, name, arguments) for call_id, name in calls)
    return ModelTurn((*said, *made), ModelFinish.TOOL_CALLS)


def done(call_id: str, name: str, text: str = "ok") -> ToolDone:
    return ToolDone(ToolReturn(call_id, name, Outcome.SUCCEEDED, (Text(text),)), tool_us=10)


class Walk:
    """A run walking through the machine; keeps everything it asked for."""

    def __init__(self, settings: Config) -> None:
        self.config = settings
        self.state = State(RUN, 1)
        self.effects: tuple[Effect, ...] = ()
        self.records: list[Record] = []

    def feed(self, *events: Input) -> "Walk":
        for event in events:
            self.state, self.effects = advance(self.state, self.config, event)
            for effect in self.effects:
                if isinstance(effect, Commit):
                    self.records += effect.records
            # As the actor does.
            self.feed(*(effect for effect in self.effects if isinstance(effect, Proceed)))
        return self

    def start(self) -> "Walk":
        return self.feed(Start((HELLO,)))

    def of(self, kind: type[Effect]) -> list[Effect]:
        return [effect for effect in self.effects if isinstance(effect, kind)]

    @property
    def commit(self) -> Commit:
        (found,) = [effect for effect in self.effects if isinstance(effect, Commit)]
        return found

    @property
    def log(self) -> list[tuple[Role, object]]:
        """The messages the run has written, as (role, parts)."""
        return [(r.message.role, r.message.body.parts) for r in self.records if isinstance(r, AddMessage)]

    @property
    def roles(self) -> list[str]:
        return [str(role) for role, _ in self.log]

    def returns(self) -> dict[str, ToolReturn]:
        found: dict[str, ToolReturn] = {}
        for record in self.records:
            if isinstance(record, AddMessage) and record.message.role is Role.TOOL:
                for part in record.message.body.parts:
                    assert isinstance(part, ToolReturn)
                    assert part.call_id not in found, "a call has one return"
                    found[part.call_id] = part
        return found
