"""Python tools: a call becomes a job of the sandbox, and its result what the model reads."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from common.errors import BridleError
from services.messages.model import Outcome, Text, ToolCall, ToolReturn
from services.sandbox.api import Runs
from services.sandbox.model import Job, Result
from services.tools.api import Python, ToolContext, ToolDefinition
from services.tools.arguments import Misfit, fit
from services.tools.runner import failed, timed_out
from services.tools.schema.source import Function, derive, function_of

# (organization id, agent id) -> what the agent's tools find in their environment.
Secrets = Callable[[str, str], Awaitable[Mapping[str, str]]]

_MAX_ERROR = 4_000


class PythonRunner:
    """Runs Python tools in a sandbox."""

    def __init__(self, sandbox: Runs, secrets: Secrets) -> None:
        self._sandbox = sandbox
        self._secrets = secrets

    async def run(self, tool: ToolDefinition, call: ToolCall, context: ToolContext) -> ToolReturn:
        """The call's outcome; cancelling the task kills the process."""
        if not isinstance(tool.kind, Python):
            raise TypeError(f"{tool.name} is not a Python tool")
        try:
            function = function_of(tool.kind.source)
            arguments = fit(_object(call.arguments), tool.parameters, function, _nullable(tool, function))
            secrets = await self._secrets(context.organization_id, context.agent_id) if context.agent_id else {}
        except (BridleError, Misfit) as error:
            return failed(call, str(error))
        job = Job(
            source=tool.kind.source,
            function=function.name,
            arguments=msgspec.json.encode(arguments).decode(),
            env={**secrets, **_about(context)},
            requirements=tool.kind.requirements,
            wall_seconds=tool.timeout,
        )
        return _returned(call, tool, await self._sandbox.run(job))


def _object(text: str) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(text or "{}")
    except (msgspec.DecodeError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Misfit("the arguments are not a JSON object")
    return found


def _nullable(tool: ToolDefinition, function: Function) -> frozenset[str]:
    """The parameters that take None; of a function whose schema somebody wrote, those that the schema lets be null."""
    try:
        return derive(tool.kind.source).nullable if isinstance(tool.kind, Python) else frozenset()
    except BridleError:
        properties = tool.parameters.get("properties", {})
        return frozenset(each.name for each in function.parameters if _takes_null(properties.get(each.name)))


def _takes_null(schema: Any) -> bool:
    if not isinstance(schema, dict):
        return False
    kinds = schema.get("type", [])
    return "null" in ([kinds] if isinstance(kinds, str) else kinds) or any(map(_takes_null, schema.get("anyOf", [])))


def _about(context: ToolContext) -> dict[str, str]:
    """What a tool may know of its call. The id is the same when the call is made again after a crash."""
    known = {
        "BRIDLE_TOOL_CALL_ID": context.call_id,
        "BRIDLE_RUN_ID": context.run_id,
        "BRIDLE_AGENT_ID": context.agent_id,
        # What Letta calls it.
        "LETTA_AGENT_ID": context.agent_id,
    }
    return {name: value for name, value in known.items() if value}


def _returned(call: ToolCall, tool: ToolDefinition, result: Result) -> ToolReturn:
    outcome, text = Outcome.SUCCEEDED, _text(result.value)
    if text is None:
        outcome, text = Outcome.FAILED, f"Error: {_complaint(tool, result)}"
    return ToolReturn(
        call_id=call.id,
        name=call.name,
        outcome=outcome,
        content=(Text(text),),
        stdout=tuple(result.stdout.splitlines()),
        stderr=tuple(result.stderr.splitlines()),
    )


def _text(value: str | None) -> str | None:
    """What the model reads: a text as it is, anything else as JSON; None if there is no value."""
    if value is None:
        return None
    try:
        plain = msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError):
        return None
    return plain if isinstance(plain, str) else value


def _complaint(tool: ToolDefinition, result: Result) -> str:
    text = result.error.strip()
    if not text and result.reason == "timeout" and tool.timeout is not None:
        text = timed_out(tool.timeout)
    text = text or f"the tool ended without a result ({result.reason})"
    if len(text) <= _MAX_ERROR:
        return text
    # The end says what happened; the beginning says where it started.
    half = _MAX_ERROR // 2
    return f"{text[:half]}\n... [{len(text) - 2 * half} characters left out]\n{text[-half:]}"
