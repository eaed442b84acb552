"""`bridle chat` on a terminal: prompts, Ctrl-C, approvals, a server that goes away and comes back."""

import shlex
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.cli.conftest import DICE, MakeAgent
from tests.cli.terminal import Terminal, terminal
from tests.helpers.server import BRIDLE, ServerProcess, environment, running_server, start_server

# Echoed by demo/slow, this takes three seconds: long enough to be interrupted.
LONG = " ".join(f"word{number}" for number in range(60))


@asynccontextmanager
async def chat(server: ServerProcess, *argv: str) -> AsyncIterator[Terminal]:
    """A person in front of the chat."""
    async with terminal([*BRIDLE, "chat", "--address", server.grpc_address, *argv], environment()) as person:
        yield person


async def test_a_conversation(server: ServerProcess) -> None:
    async with chat(server) as person:
        await person.expect("bridle chat --agent")
        await person.expect("> ")
        person.type("good morning\n")
        await person.expect("good morning\n")
        await person.expect("good morning\n")
        await person.expect("> ")
        person.press_ctrl_d()
        assert await person.exit_code() == 0


async def test_ctrl_c_cancels_the_run_and_not_the_program(server: ServerProcess) -> None:
    async with chat(server, "--model", "demo/slow") as person:
        await person.expect("> ")
        person.type(f"{LONG}\n")
        await person.expect("word59\n")
        await person.expect("word5")
        person.press_ctrl_c()
        await person.expect("(cancelled)")
        await person.expect("> ")
        person.type("short\n")
        await person.expect("short\n")
        await person.expect("short\n")
        await person.expect("> ")
        person.press_ctrl_d()
        assert await person.exit_code() == 0


async def test_ctrl_c_in_a_one_message_chat_cancels_and_ends(server: ServerProcess) -> None:
    async with chat(server, "--model", "demo/slow", LONG) as person:
        await person.expect("word5")
        person.press_ctrl_c()
        await person.expect("(cancelled)")
        assert await person.exit_code() == 130


async def interrupt(person: Terminal) -> None:
    """Press Ctrl-C at a prompt, again if need be: Python does not hear one that falls between prompt and reading."""
    person.press_ctrl_c()
    try:
        await person.expect("Ctrl-C again", timeout=3)
    except AssertionError:
        person.press_ctrl_c()
        await person.expect("Ctrl-C again")


async def test_ctrl_c_twice_at_the_prompt_leaves(server: ServerProcess) -> None:
    async with chat(server) as person:
        await person.expect("> ")
        await interrupt(person)
        person.type("still here\n")
        await person.expect("still here\n")
        await person.expect("still here\n")
        await person.expect("> ")
        await interrupt(person)
        await person.expect("> ")
        person.press_ctrl_c()
        assert await person.exit_code() == 0


async def test_an_approval_is_given(server: ServerProcess, make_agent: MakeAgent) -> None:
    async with chat(server, "--agent", await make_agent(DICE, approve=(DICE,))) as person:
        await person.expect("> ")
        person.type(f'call {DICE} {{"sides": 6}}\n')
        await person.expect("Waiting for your answer:")
        await person.expect(f'{DICE} {{"sides": 6}}')
        await person.expect("[a]pprove or [d]eny REASON? ")
        person.type("a\n")
        await person.expect(f"{DICE} returned")
        await person.expect("> ")
        person.type("/exit\n")
        assert await person.exit_code() == 0


async def test_a_denial_asks_for_the_reason(server: ServerProcess, make_agent: MakeAgent) -> None:
    async with chat(server, "--agent", await make_agent(DICE, approve=(DICE,))) as person:
        await person.expect("> ")
        person.type(f'call {DICE} {{"sides": 6}}\n')
        await person.expect("REASON? ")
        person.type("d\n")
        await person.expect("why?")
        person.type("too loud\n")
        await person.expect("was denied:")
        await person.expect("too loud")


async def test_ctrl_c_at_an_approval_cancels_the_run(server: ServerProcess, make_agent: MakeAgent) -> None:
    async with chat(server, "--agent", await make_agent(DICE, approve=(DICE,))) as person:
        await person.expect("> ")
        person.type(f'call {DICE} {{"sides": 6}}\n')
        await person.expect("REASON? ")
        person.press_ctrl_c()
        await person.expect("(cancelled)")
        await person.expect("> ")
        person.type("next\n")
        await person.expect("next\n")
        await person.expect("next\n")


async def test_a_second_ctrl_c_leaves_a_run_that_does_not_stop() -> None:
    async with running_server() as server, chat(server, "--model", "demo/slow") as person:
        await person.expect("> ")
        person.type(f"{LONG}\n")
        await person.expect("word59\n")
        await person.expect("word5")
        server.process.send_signal(signal.SIGSTOP)
        person.press_ctrl_c()
        await person.expect("Ctrl-C again to leave without waiting")
        person.press_ctrl_c()
        await person.expect("may still be going on")
        await person.expect("> ")
        server.process.send_signal(signal.SIGCONT)


async def test_a_person_whose_output_goes_to_a_file_is_prompted(server: ServerProcess, tmp_path: Path) -> None:
    said = tmp_path / "said"
    command = shlex.join([*BRIDLE, "chat", "--address", server.grpc_address])
    async with terminal(["/bin/sh", "-c", f"{command} > {said}"], environment()) as person:
        await person.expect("> ")
        person.type("into the file\n")
        await person.expect("> ")
        person.press_ctrl_d()
        assert await person.exit_code() == 0
    assert "into the file" in said.read_text()
    assert "\x1b" not in said.read_text()


async def test_a_restart_of_the_server_is_survived() -> None:
    async with running_server() as first, chat(first, "--model", "demo/slow") as person:
        await person.expect("> ")
        person.type(f"{LONG}\n")
        await person.expect("word59\n")
        await person.expect("word5")
        await first.kill()
        await person.expect("connection lost")
        second = await start_server(**first.settings)
        try:
            await person.expect("word59", timeout=15)
            await person.expect("> ")
        finally:
            await second.kill()


async def test_a_server_that_stays_away_is_one_line_and_the_prompt_again() -> None:
    async with running_server() as server, chat(server) as person:
        await person.expect("> ")
        await server.kill()
        person.type("anybody?\n")
        await person.expect("cannot reach a server at")
        await person.expect("> ")
        person.press_ctrl_d()
        assert await person.exit_code() == 0
