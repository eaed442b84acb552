"""`bridle chat` without a terminal: one message, piped lines, approvals, errors."""

import os
import re
import subprocess

from tests.cli.conftest import DICE, Bridle, MakeAgent
from tests.helpers.server import BRIDLE, ServerProcess, environment, free_address

AGENT = re.compile(r"agent-[0-9a-f-]{36}")
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


async def test_one_message(bridle: Bridle, server: ServerProcess) -> None:
    ended = await bridle("chat", "--address", server.grpc_address, "Hello, horse")
    assert ended.code == 0, ended
    assert "Hello, horse" in ended.out
    assert ended.out.endswith("\n")


async def test_output_in_a_file_has_no_control_codes(bridle: Bridle, server: ServerProcess) -> None:
    ended = await bridle(
        "chat", "--address", server.grpc_address, "--tool", DICE, f'call {DICE} {{"sides": 6}}', FORCE_COLOR="1"
    )
    assert ended.code == 0, ended
    assert not CONTROL.search(ended.out + ended.err)


async def test_tool_calls_and_results_are_shown(bridle: Bridle, server: ServerProcess) -> None:
    ended = await bridle("chat", "--address", server.grpc_address, "--tool", DICE, f'call {DICE} {{"sides": 6}}')
    assert f'* call {DICE} {{"sides": 6}}' in ended.out
    assert f"* {DICE} returned" in ended.out


async def test_a_new_agent_is_named_and_can_be_gone_on_with(bridle: Bridle, server: ServerProcess) -> None:
    first = await bridle("chat", "--address", server.grpc_address, "first words")
    named = AGENT.search(first.err)
    assert named, first.err
    assert f"bridle chat --agent {named[0]}" in first.err

    second = await bridle(
        "chat", "--address", server.grpc_address, "--agent", named[0], stdin="second words\n/history\n"
    )
    assert second.code == 0, second
    assert "you: first words" in second.out
    assert "you: second words" in second.out


async def test_each_line_of_a_pipe_is_a_message(bridle: Bridle, server: ServerProcess) -> None:
    ended = await bridle("chat", "--address", server.grpc_address, stdin="one fish\n\ntwo fish\n")
    assert ended.code == 0, ended
    assert ended.out.index("one fish") < ended.out.index("two fish")


async def test_commands(bridle: Bridle, server: ServerProcess) -> None:
    ended = await bridle("chat", "--address", server.grpc_address, stdin="/help\n/new\n//path\n/exit\nnever said\n")
    assert ended.code == 0, ended
    assert "/history" in ended.out
    assert "/path" in ended.out
    assert "never said" not in ended.out
    assert len(set(AGENT.findall(ended.err))) == 2


async def test_an_unknown_command_is_not_sent(bridle: Bridle, server: ServerProcess) -> None:
    ended = await bridle("chat", "--address", server.grpc_address, stdin="/hlep\n")
    assert ended.code == 1
    assert "no such command: /hlep" in ended.err
    assert ended.out == ""


def test_tokens_arrive_before_the_end(server: ServerProcess) -> None:
    words = " ".join(f"word{number}" for number in range(20_000))
    with subprocess.Popen(
        [*BRIDLE, "chat", "--address", server.grpc_address],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(words.encode() + b"\n")
        process.stdin.close()
        first = os.read(process.stdout.fileno(), 65_536)
        assert b"word19999" not in first
        assert b"word19999" in process.stdout.read()
        assert process.wait() == 0


async def test_an_approval_is_answered_from_the_pipe(
    bridle: Bridle, server: ServerProcess, make_agent: MakeAgent
) -> None:
    agent = await make_agent(DICE, approve=(DICE,))
    ended = await bridle(
        "chat", "--address", server.grpc_address, "--agent", agent, f'call {DICE} {{"sides": 6}}', stdin="a\n"
    )
    assert ended.code == 0, ended
    assert f'  {DICE} {{"sides": 6}}' in ended.out
    assert f"* {DICE} returned" in ended.out


async def test_an_approval_is_denied_with_a_reason(
    bridle: Bridle, server: ServerProcess, make_agent: MakeAgent
) -> None:
    agent = await make_agent(DICE, approve=(DICE,))
    lines = f'call {DICE} {{"sides": 6}}\nd not on a Sunday\n'
    ended = await bridle("chat", "--address", server.grpc_address, "--agent", agent, stdin=lines)
    assert ended.code == 0, ended
    assert f"* {DICE} was denied:" in ended.out
    assert "not on a Sunday" in ended.out
    assert f"* {DICE} returned" not in ended.out


async def test_nobody_to_ask_exits_with_3_and_the_answer_can_be_given_later(
    bridle: Bridle, server: ServerProcess, make_agent: MakeAgent
) -> None:
    agent = await make_agent(DICE, approve=(DICE,))
    chat = ("chat", "--address", server.grpc_address, "--agent", agent)

    asked = await bridle(*chat, f'call {DICE} {{"sides": 6}}')
    assert asked.code == 3, asked
    assert DICE in asked.out
    assert f"bridle chat --agent {agent}" in asked.err

    answered = await bridle(*chat, stdin="a\n")
    assert answered.code == 0, answered
    assert f"* {DICE} returned" in answered.out


async def test_a_new_message_meets_the_open_approval_first(
    bridle: Bridle, server: ServerProcess, make_agent: MakeAgent
) -> None:
    agent = await make_agent(DICE, approve=(DICE,))
    chat = ("chat", "--address", server.grpc_address, "--agent", agent)
    assert (await bridle(*chat, f'call {DICE} {{"sides": 6}}')).code == 3

    ended = await bridle(*chat, "and now?", stdin="d\n")
    assert ended.code == 0, ended
    assert ended.out.index("was denied") < ended.out.index("and now?")


async def test_several_calls_are_asked_about_one_by_one(
    bridle: Bridle, server: ServerProcess, make_agent: MakeAgent
) -> None:
    agent = await make_agent(DICE, approve=(DICE,))
    ended = await bridle(
        "chat",
        "--address",
        server.grpc_address,
        "--agent",
        agent,
        f'call {DICE} {{"sides": 6}} and call {DICE} {{"sides": 20}}',
        stdin="a\nd\n",
    )
    assert ended.code == 0, ended
    assert f"* {DICE} returned" in ended.out
    assert f"* {DICE} was denied" in ended.out


async def test_no_server(bridle: Bridle) -> None:
    address = free_address()
    ended = await bridle("chat", "--address", address, "hello")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err == f"bridle: cannot reach a server at {address} (start one with: bridle serve)\n"


async def test_refusals_of_the_server_are_one_line(bridle: Bridle, server: ServerProcess) -> None:
    unknown = "agent-00000000-0000-4000-8000-000000000000"
    cases = [("--agent", unknown), ("--agent", "agent-1"), ("--tool", "no_such_tool"), ("--model", "demo/none")]
    for flags in cases:
        ended = await bridle("chat", "--address", server.grpc_address, *flags, "hello")
        assert (ended.code, ended.out) == (1, ""), ended
        assert ended.err.startswith("bridle: ")
        assert ended.err.count("\n") == 1, ended.err
