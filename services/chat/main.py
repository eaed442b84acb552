"""Puts the chat together and runs it."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from io import TextIOWrapper
from typing import TYPE_CHECKING

import grpc.aio

from common.pb.bridle.v1 import agent_pb2
from services.chat.client import Client
from services.chat.follow import StreamLost
from services.chat.prompts import Keyboard
from services.chat.screen import Screen
from services.chat.session import Exit, Session

if TYPE_CHECKING:
    from typing import TextIO


@dataclass(frozen=True, kw_only=True)
class ChatOptions:
    """What the command line asked for."""

    address: str
    message: str | None = None
    agent_id: str = ""
    model: str = ""
    system: str = ""
    tools: tuple[str, ...] = ()


def chat(options: ChatOptions) -> int:
    """Run the chat on the process's own streams; the exit code."""
    screen = Screen(_forgiving(sys.stdout), _forgiving(sys.stderr))
    interactive = sys.stdin.isatty() and sys.stdout.isatty()
    keyboard = Keyboard(sys.stdin, screen, interactive=interactive)
    try:
        with asyncio.Runner() as runner:
            client = runner.run(_connect(options.address))
            try:
                return _converse(options, runner, client, screen, keyboard)
            except grpc.aio.AioRpcError as error:
                screen.error(client.describe(error))
            except StreamLost as error:
                screen.error(str(error))
            finally:
                runner.run(client.close())
    except KeyboardInterrupt:
        screen.end_line()
        return Exit.INTERRUPTED
    return Exit.FAILED


def _converse(options: ChatOptions, runner: asyncio.Runner, client: Client, screen: Screen, keyboard: Keyboard) -> Exit:
    if options.agent_id:
        agent = runner.run(client.agent(options.agent_id))
    else:
        wanted = agent_pb2.Agent(name="chat", model=options.model, system=options.system)
        agent = runner.run(client.create_agent(wanted, options.tools))
    session = Session(runner, client, agent, screen, keyboard)
    session.introduce()
    if options.message is not None:
        return session.one_message(options.message)
    if keyboard.interactive:
        screen.note("/help lists what you can do here")
    return session.conversation()


async def _connect(address: str) -> Client:
    # A gRPC channel belongs to the loop that it is made in.
    return Client(address)


def _forgiving(stream: TextIO) -> TextIO:
    """A character that the stream's encoding does not have must not end the chat."""
    if isinstance(stream, TextIOWrapper):
        stream.reconfigure(errors="replace")
    return stream
