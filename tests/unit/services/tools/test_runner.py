"""What all kinds of tools have in common."""

import asyncio
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from common.clock import SystemClock
from services.messages.model import Image, Outcome, Text, ToolCall, ToolReturn
from services.tools.api import Builtin, Kind, Mcp, Python, Remote, ToolContext, ToolDefinition
from services.tools.metrics import ToolMetrics
from services.tools.runner import CompositeRunner, Runners, cut

CALL = ToolCall("c-1", "t", "{}")
CONTEXT = ToolContext("org-1", "agent-1", "run-1", "c-1", lambda text: None)
KINDS: list[tuple[Kind, str]] = [
    (Builtin(), "builtin"),
    (Python("def t(): ..."), "python"),
    (Remote("s"), "remote"),
    (Mcp("s"), "mcp"),
]


def tool(kind: Kind = Builtin(), **fields: Any) -> ToolDefinition:  # noqa: B008 - frozen
    return ToolDefinition(id="tool-1", name="t", description="d", parameters={}, kind=kind, **fields)


class Says:
    """A runner that says who it is, or does what it is told."""

    def __init__(self, text: str, *, error: Exception | None = None, hangs: bool = False) -> None:
        self.text = text
        self.error = error
        self.hangs = hangs
        self.seen: list[tuple[ToolDefinition, ToolContext]] = []
        self.started = asyncio.Event()

    async def run(self, tool: ToolDefinition, call: ToolCall, context: ToolContext) -> ToolReturn:
        self.seen.append((tool, context))
        self.started.set()
        if self.error is not None:
            raise self.error
        if self.hangs:
            await asyncio.Event().wait()
        return ToolReturn(call.id, call.name, Outcome.SUCCEEDED, (Text(self.text),))


class Rig:
    """A composite over four runners, and its metrics."""

    def __init__(self, *, seconds: float = 30.0, **given: Says) -> None:
        self.each = {name: given.get(name, Says(name)) for _, name in KINDS}
        self.registry = CollectorRegistry()
        self.runner = CompositeRunner(
            Runners(**self.each), seconds=seconds, metrics=ToolMetrics(self.registry), clock=SystemClock()
        )

    async def run(self, definition: ToolDefinition) -> ToolReturn:
        return await self.runner.run(definition, CALL, CONTEXT)

    def counted(self, kind: str, outcome: str) -> float | None:
        return self.registry.get_sample_value("bridle_tool_duration_seconds_count", {"kind": kind, "outcome": outcome})


@pytest.mark.parametrize(("kind", "name"), KINDS)
async def test_each_kind_has_its_runner(kind: Kind, name: str) -> None:
    rig = Rig()
    assert (await rig.run(tool(kind))).text == name
    assert rig.counted(name, "succeeded") == 1
    ((_, context),) = rig.each[name].seen
    assert context.call_id == "c-1", "the idempotency key arrives"


async def test_the_limit_is_the_tools_or_the_servers() -> None:
    rig = Rig(seconds=7.0)
    await rig.run(tool())
    await rig.run(tool(timeout=3.0))
    assert [seen.timeout for seen, _ in rig.each["builtin"].seen] == [7.0, 3.0]


@pytest.mark.parametrize("definition", [tool(timeout=0.01), tool()])
async def test_a_call_that_takes_too_long_is_stopped_and_says_so(definition: ToolDefinition) -> None:
    rig = Rig(seconds=0.01, builtin=Says("", hangs=True))
    returned = await rig.run(definition)
    assert returned.outcome is Outcome.FAILED
    assert returned.text == "Error: the tool did not finish within 0.01 s and was stopped"
    assert rig.counted("builtin", "timeout") == 1


async def test_a_timeout_of_the_tools_own_is_not_ours() -> None:
    rig = Rig(mcp=Says("", error=TimeoutError()))
    assert (await rig.run(tool(Mcp("s")))).text == "Error: the tool could not be run"
    assert rig.counted("mcp", "broken") == 1


async def test_a_runner_that_breaks_is_an_outcome_without_its_text() -> None:
    rig = Rig(python=Says("", error=RuntimeError("secret")))
    returned = await rig.run(tool(Python("")))
    assert (returned.outcome, returned.text) == (Outcome.FAILED, "Error: the tool could not be run")


async def test_a_cancelled_call_is_cancelled_and_counted() -> None:
    rig = Rig(builtin=Says("", hangs=True))
    task = asyncio.ensure_future(rig.run(tool()))
    await rig.each["builtin"].started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert rig.counted("builtin", "cancelled") == 1


async def test_a_long_return_is_cut() -> None:
    rig = Rig(builtin=Says("x" * 100))
    assert (await rig.run(tool(return_char_limit=10))).text == "x" * 10 + "... [truncated 90 chars]"


def test_cutting_counts_text_and_leaves_pictures() -> None:
    picture = Image(data=b"1")
    whole = ToolReturn("c", "t", Outcome.SUCCEEDED, (Text("abc"), picture, Text("defg"), Text("h")))
    assert cut(whole, 8) == whole
    assert cut(whole, 5).content == (
        Text("abc"),
        picture,
        Text("de... [truncated 2 chars]"),
        Text("... [truncated 1 chars]"),
    )
