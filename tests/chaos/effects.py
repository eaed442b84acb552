"""Tools with an effect outside of the server: a line in a file for each start and each end, for good."""

import asyncio
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from common.ids import Prefix, derive_id
from services.tools.api import CrashPolicy, ToolContext, ToolDefinition
from services.tools.functions import FunctionTool


class Effect(Struct, frozen=True):
    """A line of the file."""

    finished: bool
    token: str
    run_id: str
    call_id: str
    # Names one execution; it is also what the tool returns.
    nonce: str
    process: int


class Traits(Struct, frozen=True):
    """What the accounts must know of a tool."""

    policy: CrashPolicy
    guarded: bool
    parallel: bool


TOOLS = {
    "mark_never": Traits(CrashPolicy.NEVER, guarded=False, parallel=False),
    "mark_retry": Traits(CrashPolicy.RETRY, guarded=False, parallel=True),
    "mark_ask": Traits(CrashPolicy.ASK, guarded=False, parallel=True),
    "guarded_never": Traits(CrashPolicy.NEVER, guarded=True, parallel=True),
    "guarded_retry": Traits(CrashPolicy.RETRY, guarded=True, parallel=True),
    "guarded_ask": Traits(CrashPolicy.ASK, guarded=True, parallel=False),
}

_decoder = msgspec.json.Decoder(Effect)


def marking_tools(file: Path) -> Iterator[FunctionTool]:
    """Every tool of the table, writing to this file."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    process = os.getpid()
    numbers = itertools.count(1)

    def write(effect: Effect) -> None:
        # One write: a kill leaves the whole line or none of it, and what the kernel has a kill does not take.
        os.write(descriptor, msgspec.json.encode(effect) + b"\n")

    async def mark(arguments: dict[str, Any], context: ToolContext) -> str:
        nonce = f"{process}-{next(numbers)}"
        started = Effect(False, arguments["token"], context.run_id, context.call_id, nonce, process)
        write(started)
        await asyncio.sleep(arguments["seconds"])
        write(msgspec.structs.replace(started, finished=True))
        return nonce

    for name, traits in TOOLS.items():
        definition = ToolDefinition(
            id=derive_id(Prefix.TOOL, name),
            name=name,
            description="Leaves a mark.",
            parameters={"type": "object", "properties": {}},
            default_requires_approval=traits.guarded,
            parallel=traits.parallel,
            crash_policy=traits.policy,
        )
        yield FunctionTool(definition, mark)


def read_effects(file: Path) -> list[Effect]:
    """What happened so far."""
    return [_decoder.decode(line) for line in file.read_bytes().splitlines()] if file.exists() else []
