"""MCP over the standard streams of a child process.

The package's own transport hands HOME, USER and more of our environment to the child, and reads lines of any length.
"""

import asyncio
import logging
import os
import signal
import tempfile
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import types as mcp_types
from mcp.shared.message import SessionMessage

from services.toolservers.api import Fate, ServerFailed

logger = logging.getLogger(__name__)

Incoming = SessionMessage | Exception
Streams = tuple[MemoryObjectReceiveStream[Incoming], MemoryObjectSendStream[SessionMessage]]

# For a server to end by itself once its input has; then it is killed with everything it has started.
_END_SECONDS: Final = 0.5
# For the loop to notice that a killed process is gone.
_REAP_SECONDS: Final = 2.0
_STDERR_BYTES: Final = 4096
_LAST_WORDS: Final = 2


@asynccontextmanager
async def stdio_transport(
    command: Sequence[str], environment: Mapping[str, str], max_bytes: int, session: Fate
) -> AsyncGenerator[Streams, None]:
    """The streams of a server that lives as long as the block."""
    with tempfile.TemporaryDirectory(prefix="bridle-mcp-", ignore_cleanup_errors=True) as folder:
        process = await _start(command, environment, folder, max_bytes)
        try:
            async with _piped(process, session) as streams:
                yield streams
        finally:
            _kill(process)
            with anyio.CancelScope(shield=True):
                await _reap(process)


async def _start(command: Sequence[str], environment: Mapping[str, str], folder: str, max_bytes: int) -> Process:
    try:
        return await asyncio.create_subprocess_exec(
            *command,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env={"PATH": os.environ.get("PATH", os.defpath), **environment},
            cwd=folder,
            # Its own group, so that it can be killed with its children.
            start_new_session=True,
            limit=max_bytes,
        )
    except OSError as error:
        raise ServerFailed("unavailable", f"could not be started: {command[0]}: {error.strerror}") from None


@asynccontextmanager
async def _piped(process: Process, session: Fate) -> AsyncGenerator[Streams, None]:
    arrived, incoming = anyio.create_memory_object_stream[Incoming](0)
    outgoing, leaving = anyio.create_memory_object_stream[SessionMessage](0)
    async with arrived, incoming, outgoing, leaving, anyio.create_task_group() as group:
        group.start_soon(_read, process, arrived, session)
        group.start_soon(_write, process, leaving)
        group.start_soon(_listen, process)
        try:
            yield incoming, outgoing
        finally:
            if process.stdin is not None:
                process.stdin.close()
            with anyio.CancelScope(shield=True), anyio.move_on_after(_END_SECONDS):
                await process.wait()
            group.cancel_scope.cancel()


async def _read(process: Process, arrived: MemoryObjectSendStream[Incoming], session: Fate) -> None:
    assert process.stdout is not None  # noqa: S101 - it was asked for
    reason = "has ended"
    async with arrived:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            try:
                while line := await process.stdout.readline():
                    await arrived.send(_parsed(line))
            except ValueError:
                reason = "answered with more than is allowed"
            session.end(reason)


def _parsed(line: bytes) -> Incoming:
    try:
        return SessionMessage(mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
        return error


async def _write(process: Process, leaving: MemoryObjectReceiveStream[SessionMessage]) -> None:
    assert process.stdin is not None  # noqa: S101 - it was asked for
    # A server that reads no more has ended or soon will: reading from it tells.
    with suppress(OSError):
        async for each in leaving:
            process.stdin.write(each.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
            await process.stdin.drain()


async def _listen(process: Process) -> None:
    """Let it complain as much as it wants, and log the end of that."""
    assert process.stderr is not None  # noqa: S101 - it was asked for
    words: deque[bytes] = deque(maxlen=_LAST_WORDS)
    try:
        while chunk := await process.stderr.read(_STDERR_BYTES):
            words.append(chunk)
    finally:
        said = b"".join(words).decode(errors="replace").strip()
        if said:
            logger.info("an MCP server wrote to stderr", extra={"fields": {"stderr": said[-_STDERR_BYTES:]}})


def _kill(process: Process) -> None:
    # Its group may have members left when it is gone itself.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


async def _reap(process: Process) -> None:
    with anyio.move_on_after(_REAP_SECONDS):
        await process.wait()
    # Somebody who has left the group may hold its pipes open.
    transport = process._transport  # type: ignore[attr-defined]  # noqa: SLF001 - there is no other way to it
    transport.close()
