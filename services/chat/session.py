"""The conversation: reads lines, runs turns, asks for approvals. Blocks at its prompts; a turn has the event loop."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, Final, TypeVar

import grpc
import grpc.aio

from common.pb.bridle.v1 import agent_pb2, approval_pb2, run_pb2
from services.chat.follow import Follower, StreamLost
from services.chat.prompts import ask, show_calls
from services.chat.render import EventView
from services.chat.turn import Left, Turn

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine

    from services.chat.client import Client
    from services.chat.prompts import Keyboard
    from services.chat.screen import Screen

T = TypeVar("T")

_HISTORY: Final = 50
_HELP: Final = """\
/new      start over with a fresh agent like this one
/history  what was said so far
/help     this list
/exit     leave (so do Ctrl-D, and Ctrl-C twice)
//text    say "/text"
Ctrl-C while the agent is busy cancels its run."""


class Exit(enum.IntEnum):
    """How the program ends."""

    OK = 0
    FAILED = 1
    APPROVAL_NEEDED = 3
    INTERRUPTED = 130


class _Leave(Exception):
    """The program is to end now."""

    def __init__(self, code: Exit) -> None:
        super().__init__(code)
        self.code = code


class Session:
    """A person, or a pipe, and one agent."""

    def __init__(
        self, runner: asyncio.Runner, client: Client, agent: agent_pb2.Agent, screen: Screen, keyboard: Keyboard
    ) -> None:
        self._runner = runner
        self._client = client
        self._agent = agent
        self._screen = screen
        self._keyboard = keyboard
        self._view = EventView(screen)
        self._turn = Turn(client, Follower(client, self._view.show, screen.note), screen.note)

    def one_message(self, text: str) -> Exit:
        """Say one thing, show what comes of it, and end."""
        try:
            return self._say(text)
        except _Leave as leave:
            return leave.code

    def conversation(self) -> Exit:
        """Go on until there is no more input."""
        code = Exit.OK
        try:
            self._settle_open_approval()
            while True:
                code = self._attend(self._next_line())
                if code is not Exit.OK and not self._keyboard.interactive:
                    return code
        except EOFError:
            self._screen.end_line()
            return Exit.OK
        except _Leave as leave:
            return leave.code

    def _next_line(self) -> str:
        """A line that says something; EOFError to leave, also for a second Ctrl-C in a row."""
        pressed = False
        while True:
            try:
                text = self._keyboard.line("> ").strip()
            except KeyboardInterrupt:
                if not self._keyboard.interactive:
                    raise
                if pressed:
                    raise EOFError from None
                pressed = True
                self._screen.note("Ctrl-C again, or Ctrl-D, to leave")
                continue
            pressed = False
            if text:
                return text

    def _attend(self, text: str) -> Exit:
        """Do what a line asks for. A person is told what went wrong and can go on."""
        try:
            if text.startswith("//"):
                return self._say(text[1:])
            if text.startswith("/"):
                return self._command(text)
            return self._say(text)
        except grpc.aio.AioRpcError as error:
            self._screen.error(self._client.describe(error))
        except StreamLost as error:
            self._screen.error(str(error))
        return Exit.FAILED

    def _command(self, text: str) -> Exit:
        match text.split():
            case ["/help"]:
                self._screen.line(_HELP)
            case ["/new"]:
                self._agent = self._do(self._client.create_agent(_like(self._agent)))
                self.introduce()
            case ["/history"]:
                self._view.history(self._do(self._client.history(self._agent.id, _HISTORY)))
            case ["/exit"] | ["/quit"]:
                raise _Leave(Exit.OK)
            case _:
                self._screen.note(f"no such command: {text}; /help lists them, //text says /text")
                return Exit.FAILED
        return Exit.OK

    def introduce(self) -> None:
        """Name the agent, so that it can be found again."""
        agent = self._agent
        self._screen.note(f"{agent.id}, {agent.model}; to go on with it later: bridle chat --agent {agent.id}")

    def _say(self, text: str) -> Exit:
        def begin() -> run_pb2.Run | approval_pb2.Approval:
            return self._do(self._turn.say(self._agent.id, text))

        try:
            return self._see_through(begin)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.FAILED_PRECONDITION or not self._settle_open_approval():
                raise
        return self._see_through(begin)

    def _settle_open_approval(self) -> bool:
        """Ask what a run of an earlier turn waits for, if one does: nothing new can be said before it is answered."""
        approval = self._do(self._client.open_approval(self._agent.id))
        if approval is None:
            return False
        self._do(self._turn.rejoin(approval.run_id))
        self._see_through(lambda: self._settle(approval))
        return True

    def _see_through(self, begin: Callable[[], run_pb2.Run | approval_pb2.Approval]) -> Exit:
        """Follow a run to its end, asking whatever it asks on the way."""
        try:
            ending = begin()
            while isinstance(ending, approval_pb2.Approval):
                ending = self._settle(ending)
        except Left as left:
            self._screen.note(f"left; {left} may still be going on")
            return Exit.INTERRUPTED
        self._screen.end_line()
        if ending.state == run_pb2.Run.STATE_CANCELLED:
            return Exit.INTERRUPTED
        return Exit.FAILED if ending.state == run_pb2.Run.STATE_FAILED else Exit.OK

    def _settle(self, approval: approval_pb2.Approval) -> run_pb2.Run | approval_pb2.Approval:
        show_calls(approval, self._screen)
        try:
            decisions = ask(approval, self._keyboard, self._screen)
        except KeyboardInterrupt:
            return self._do(self._turn.cancel())
        except EOFError:
            self._screen.error(
                f"{approval.run_id} waits for an answer to {approval.id}; "
                f"give it with: bridle chat --agent {approval.agent_id}"
            )
            raise _Leave(Exit.APPROVAL_NEEDED) from None
        try:
            return self._do(self._turn.answer(approval, decisions))
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.INVALID_ARGUMENT or not self._keyboard.interactive:
                raise
            # The answer was refused (a reason too long, say) and changed nothing: ask again.
            self._screen.error(self._client.describe(error))
            return approval

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)


def _like(agent: agent_pb2.Agent) -> agent_pb2.Agent:
    """What makes an agent what it is, without what happened to it."""
    return agent_pb2.Agent(
        name=agent.name,
        system=agent.system,
        model=agent.model,
        model_settings=agent.model_settings if agent.HasField("model_settings") else None,
        tool_ids=agent.tool_ids,
        tool_rules=agent.tool_rules,
    )
