"""Calls of Python tools as jobs of a sandbox."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from common.errors import SecretKeyWrong
from services.messages.model import Outcome, ToolCall, ToolReturn
from services.sandbox.model import Reason, Result
from services.tools.api import Python, ToolContext, ToolDefinition
from services.tools.python import PythonRunner
from services.tools.schema.source import derive
from tests.helpers.models import Gate
from tests.helpers.sandbox import ScriptedSandbox

SOURCE = '''
def add(agent_state, a: int, b: int | None):
    """Adds.

    Args:
        a: One.
        b: The other.
    """
'''
CONTEXT = ToolContext("org-1", "agent-1", "run-1", "c-1", lambda text: None)


async def secrets(organization_id: str, agent_id: str) -> Mapping[str, str]:
    return {"KEY": f"{organization_id}/{agent_id}", "BRIDLE_TOOL_CALL_ID": "forged"}


def tool(source: str = SOURCE, **fields: Any) -> ToolDefinition:
    return ToolDefinition(
        id="tool-1",
        name="add",
        description="d",
        parameters=fields.pop("parameters", None) or derive(source).parameters,
        kind=Python(source, ("requests==2.0",)),
        timeout=9.0,
        **fields,
    )


async def run(sandbox: ScriptedSandbox, arguments: str = '{"a": 1}', context: ToolContext = CONTEXT) -> ToolReturn:
    return await PythonRunner(sandbox, secrets).run(tool(), ToolCall("c-1", "add", arguments), context)


async def test_a_call_is_a_job() -> None:
    sandbox = ScriptedSandbox()
    await run(sandbox)
    (job,) = sandbox.jobs
    assert (job.source, job.function, job.requirements, job.wall_seconds) == (SOURCE, "add", ("requests==2.0",), 9.0)
    assert json.loads(job.arguments) == {"a": 1, "b": None, "agent_state": None}
    assert job.env == {
        "KEY": "org-1/agent-1",
        "BRIDLE_TOOL_CALL_ID": "c-1",
        "BRIDLE_RUN_ID": "run-1",
        "BRIDLE_AGENT_ID": "agent-1",
        "LETTA_AGENT_ID": "agent-1",
    }


async def test_without_an_agent_there_are_no_secrets() -> None:
    sandbox = ScriptedSandbox()
    await run(sandbox, context=ToolContext("org-1", "", "", "c-1", lambda text: None))
    assert sandbox.jobs[0].env == {"BRIDLE_TOOL_CALL_ID": "c-1"}


@pytest.mark.parametrize(
    ("value", "text"),
    [('"plain"', "plain"), ("3", "3"), ('{"a":[1,null]}', '{"a":[1,null]}'), ("null", "null"), ("true", "true")],
)
async def test_a_text_is_itself_and_anything_else_is_json(value: str, text: str) -> None:
    returned = await run(ScriptedSandbox(Result(Reason.OK, value=value, stdout="a\nb\n", stderr="c")))
    assert (returned.outcome, returned.text) == (Outcome.SUCCEEDED, text)
    assert (returned.call_id, returned.name) == ("c-1", "add")
    assert (returned.stdout, returned.stderr) == (("a", "b"), ("c",))


@pytest.mark.parametrize(
    ("result", "told"),
    [
        (Result(Reason.RAISED, error="Traceback\nValueError: no\n"), "Traceback\nValueError: no"),
        (Result(Reason.TIMEOUT), "the tool did not finish within 9 s and was stopped"),
        (Result(Reason.TIMEOUT, error="The call ran for 5 s."), "The call ran for 5 s."),
        (Result(Reason.KILLED), "the tool ended without a result (killed)"),
        (Result(Reason.OK, value="{broken"), "the tool ended without a result (ok)"),
    ],
)
async def test_a_failure_is_an_outcome_with_what_was_printed(result: Result, told: str) -> None:
    returned = await run(ScriptedSandbox(Result(result.reason, result.value, result.error, "printed", "")))
    assert (returned.outcome, returned.text) == (Outcome.FAILED, f"Error: {told}")
    assert returned.stdout == ("printed",)


async def test_a_long_traceback_keeps_its_beginning_and_its_end() -> None:
    returned = await run(ScriptedSandbox(Result(Reason.RAISED, error="first\n" + "x" * 10_000 + "\nlast")))
    assert returned.text.startswith("Error: first")
    assert returned.text.endswith("last")
    assert "[6011 characters left out]" in returned.text
    assert len(returned.text) < 4_100


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("{}", "the arguments do not fit: 'a' is missing"),
        ('{"a": "1"}', "the arguments do not fit: 'a' must be a whole number"),
        ("[]", "the arguments are not a JSON object"),
        ("{", "the arguments are not a JSON object"),
        ("[" * 100_000, "the arguments are not a JSON object"),
    ],
)
async def test_what_does_not_fit_is_not_run(arguments: str, told: str) -> None:
    sandbox = ScriptedSandbox()
    returned = await run(sandbox, arguments)
    assert (returned.outcome, returned.text) == (Outcome.FAILED, f"Error: {told}")
    assert sandbox.jobs == []


async def test_a_schema_of_the_callers_own_says_what_may_be_null() -> None:
    source = "def add(a, b, c=3): pass"
    schema = {"type": "object", "properties": {"a": {"type": ["string", "null"]}, "b": {"anyOf": [{"type": "null"}]}}}
    sandbox = ScriptedSandbox()
    call = ToolCall("c-1", "add", '{"a": null, "c": null}')
    await PythonRunner(sandbox, secrets).run(tool(source, parameters=schema), call, CONTEXT)
    assert json.loads(sandbox.jobs[0].arguments) == {"a": None, "b": None}


async def test_secrets_that_cannot_be_read_fail_the_call() -> None:
    async def broken(organization_id: str, agent_id: str) -> Mapping[str, str]:
        raise SecretKeyWrong("agent")

    sandbox = ScriptedSandbox()
    returned = await PythonRunner(sandbox, broken).run(tool(), ToolCall("c-1", "add", '{"a": 1}'), CONTEXT)
    assert returned.outcome is Outcome.FAILED
    assert "sealed with another BRIDLE_SECRET_KEY" in returned.text
    assert sandbox.jobs == []


async def test_cancelling_the_call_cancels_the_job() -> None:
    sandbox = ScriptedSandbox(gate=Gate())
    task = asyncio.ensure_future(run(sandbox))
    await sandbox.gate.reached()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sandbox.killed == 1
