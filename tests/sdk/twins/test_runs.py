"""What a run leaves behind, however it ended: the scenarios of seed 000 that HTTP can express."""

from collections.abc import Iterator
from typing import Any

import pytest
from helpers import ASK, THANKS, Agent, approve, kinds, user
from letta_client import APIError, Letta

DENIED = "The user cancelled the request, so the tool call was denied."
DRONE = "count slowly to 3000"


def latest_run(agent: Agent) -> Any:
    """The agent's newest run."""
    return agent.client.runs.list(agent_id=agent.id, limit=1).items[0]


def cancel(agent: Agent, *run_ids: str) -> Any:
    """Stop its runs, or these."""
    options = {"run_ids": list(run_ids)} if run_ids else {}
    return agent.client.agents.messages.cancel(agent_id=agent.id, **options)


def drone_and_cancel(agent: Agent, **options: Any) -> list[Any]:
    """Cancel in the middle of an answer; every chunk of the stream."""
    chunks: list[Any] = []
    for chunk in agent.open(user(DRONE), stream_tokens=True, **options):
        if chunk.message_type == "assistant_message" and "assistant_message" not in kinds(chunks):
            cancel(agent)
        chunks.append(chunk)
    return chunks


def assert_sound(agent: Agent) -> None:
    """What is in the context is what is stored, and every call has its return."""
    ids = set(agent.state().message_ids)
    messages = agent.log(limit=1000)
    assert ids <= {each.id for each in messages}
    called = [call for each in messages for call in calls_of(each)]
    returned = [
        result.tool_call_id
        for each in messages
        if each.message_type == "tool_return_message"
        for result in each.tool_returns
    ]
    assert sorted(called) == sorted(returned)


def calls_of(message: Any) -> list[str]:
    """Ids of the calls in a message."""
    if message.message_type not in ("tool_call_message", "approval_request_message"):
        return []
    return [call.tool_call_id for call in message.tool_calls]


def assert_usable(agent: Agent) -> None:
    """It still answers."""
    assert agent.send(user(THANKS)).stop_reason.stop_reason == "end_turn"
    assert_sound(agent)


def test_a_cancelled_stream_leaves_a_sound_log(agent: Agent) -> None:
    chunks = drone_and_cancel(agent)
    assert [each.stop_reason for each in chunks if each.message_type == "stop_reason"] == ["cancelled"]
    run = latest_run(agent)
    assert (run.status, run.stop_reason) == ("cancelled", "cancelled")
    assert agent.state().last_stop_reason == "cancelled"
    assert_sound(agent)


def test_an_agent_goes_on_after_a_cancel(agent: Agent) -> None:
    drone_and_cancel(agent)
    assert_usable(agent)
    assert latest_run(agent).status == "completed"


def test_a_cancelled_background_stream_ends_too(agent: Agent) -> None:
    chunks = drone_and_cancel(agent, background=True)
    assert [each.stop_reason for each in chunks if each.message_type == "stop_reason"] == ["cancelled"]
    assert_usable(agent)


def test_a_run_that_nobody_reads_is_cancelled_by_its_id(agent: Agent) -> None:
    run = agent.client.agents.messages.create_async(agent_id=agent.id, messages=user(DRONE))
    assert cancel(agent, run.id)[run.id] == "cancelled"
    assert cancel(agent, run.id)[run.id] == "cancelled"
    after = agent.client.runs.retrieve(run.id)
    assert (after.status, after.stop_reason) == ("cancelled", "cancelled")
    assert_usable(agent)


def test_nothing_to_cancel_is_a_conflict_that_is_not_retried(agent: Agent) -> None:
    with pytest.raises(APIError, match="No active runs to cancel") as refused:
        cancel(agent)
    assert refused.value.response.headers["x-should-retry"] == "false"


@pytest.fixture
def sleeper(client: Letta) -> Iterator[Agent]:
    """An agent with a tool that takes its time."""
    source = (
        'def nap(seconds: int) -> str:\n    """Sleeps.\n\n    Args:\n        seconds (int): How long.\n    """\n'
        '    import time\n    time.sleep(seconds)\n    return "slept"\n'
    )
    tool = client.tools.upsert(source_code=source)
    made = client.agents.create(name="sleeper", tool_ids=[tool.id], include_base_tools=False, model="openai/gpt-4o")
    yield Agent(client, made.id)
    client.agents.delete(agent_id=made.id)
    client.tools.delete(tool_id=tool.id)


def test_a_running_tool_is_stopped(sleeper: Agent) -> None:
    stream = sleeper.open(user('call nap {"seconds": 60}'))
    chunks = []
    for chunk in stream:
        chunks.append(chunk)
        if chunk.message_type == "tool_call_message":
            cancel(sleeper)
    assert [each.stop_reason for each in chunks if each.message_type == "stop_reason"] == ["cancelled"]
    assert_usable(sleeper)


def test_a_cancel_while_a_call_waits_denies_it(agent: Agent) -> None:
    call_id = agent.ask()
    run = latest_run(agent)
    assert (run.status, run.stop_reason) == ("completed", "requires_approval")
    assert cancel(agent)[run.id] == "cancelled"
    assert agent.client.runs.retrieve(run.id).status == "cancelled"
    state = agent.state(include=["agent.pending_approval"])
    assert (state.last_stop_reason, state.pending_approval) == ("cancelled", None)
    answer, result = agent.log()[-2:]
    assert (answer.message_type, answer.approvals[0].approve) == ("approval_response_message", False)
    assert (answer.approvals[0].tool_call_id, answer.approvals[0].reason) == (call_id, DENIED)
    assert (result.message_type, result.status) == ("tool_return_message", "error")
    assert DENIED in result.tool_return
    with pytest.raises(APIError, match="No tool call is currently awaiting approval"):
        agent.answer(approve(call_id))
    assert_usable(agent)


def test_a_cancel_while_parallel_calls_wait_denies_them_all(agent: Agent) -> None:
    three = " and ".join(f'call secret_code {{"text": "{text}"}}' for text in "abc")
    request = agent.send(user(three)).messages[-1]
    cancel(agent)
    result = agent.log()[-1]
    assert {each.tool_call_id for each in result.tool_returns} == set(calls_of(request))
    assert {each.status for each in result.tool_returns} == {"error"}
    assert_usable(agent)


def test_a_pending_approval_of_a_background_stream_is_in_the_context(agent: Agent) -> None:
    messages = agent.stream(user(ASK), stream_tokens=True, background=True)
    assert messages[-2].stop_reason == "requires_approval"
    [request] = [each for each in agent.log() if each.message_type == "approval_request_message"]
    assert agent.state().message_ids[-1] == request.id
    agent.answer(approve(request.tool_call.tool_call_id))
    assert_usable(agent)


def test_the_most_steps_end_a_run_as_completed(agent: Agent) -> None:
    response = agent.send(user('call roll_dice {"num_sides": 6} then call roll_dice {"num_sides": 6}'), max_steps=1)
    assert response.stop_reason.stop_reason == "max_steps"
    assert latest_run(agent).status == "completed"
    assert_usable(agent)


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        ("llm_timeout", "llm_timeout"),
        ("llm_rate_limit", "llm_rate_limit"),
        ("llm_authentication", "llm_authentication"),
        ("llm_error", "llm_error"),
    ],
)
def test_a_failure_is_told_in_the_stream_and_kept_with_the_run(agent: Agent, kind: str, shown: str) -> None:
    with pytest.raises(APIError, match=shown):
        list(agent.open(user(f"fail {kind}"), stream_tokens=True, background=True))
    run = latest_run(agent)
    assert (run.status, run.stop_reason) == ("failed", "llm_api_error")
    error = run.metadata["error"]
    assert error["error_type"] == shown
    assert error["message"]
    assert agent.state().last_stop_reason == "llm_api_error"
    assert_usable(agent)
