"""A person between the model and its tools: the twins of the human-in-the-loop tests (seed 002)."""

import json
import threading
import uuid
from typing import Any

import pytest
from helpers import (
    ASK,
    ASK_THEN_BREAK,
    ASK_THEN_DRONE,
    CODE,
    TELL,
    THANKS,
    Agent,
    approval,
    approve,
    deny,
    kinds,
    merged,
    of,
    returned,
    user,
)
from letta_client import APIError

ENDED = ["stop_reason", "usage_statistics"]
OTHER_ID = str(uuid.uuid4())

# The three ways to answer, which most of the tests have in common.
ANSWERS = {
    "approve": approve,
    "deny": lambda call_id: deny(call_id, TELL),
    "client_side": returned,
}
by_every_answer = pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)


# --- what is refused ------------------------------------------------------------------------------------------------


def test_an_approval_of_nothing_is_refused(agent: Agent) -> None:
    with pytest.raises(APIError, match="No tool call is currently awaiting approval"):
        agent.answer(approve(OTHER_ID))


def test_a_message_while_a_call_waits_is_refused(agent: Agent) -> None:
    call_id = agent.ask()
    with pytest.raises(APIError, match="Please approve or deny the pending request before continuing"):
        agent.send(user("hi"))
    agent.answer(approve(call_id))


def test_an_approval_of_another_call_is_refused(agent: Agent) -> None:
    call_id = agent.ask()
    with pytest.raises(APIError, match="Invalid tool call IDs"):
        agent.answer(approve(OTHER_ID))
    agent.answer(approve(call_id))


# --- what is asked --------------------------------------------------------------------------------------------------


def test_a_guarded_call_asks(agent: Agent) -> None:
    last = agent.send(user(ASK)).messages[-1]
    assert last.message_type == "approval_request_message"
    assert last.tool_call.name == "secret_code"
    assert [call.name for call in last.tool_calls] == ["secret_code"]
    assert "request_heartbeat" not in json.loads(last.tool_call.arguments)
    agent.context()
    pending = agent.state(include=["agent.pending_approval"]).pending_approval
    assert of(of(pending, "tool_call"), "name") == "secret_code"
    [waiting] = of(pending, "tool_calls")
    assert (of(waiting, "name"), of(waiting, "tool_call_id")) == ("secret_code", last.tool_call.tool_call_id)
    agent.answer(approve(last.tool_call.tool_call_id))
    assert agent.state(include=["agent.pending_approval"]).pending_approval is None


def test_a_guarded_call_asks_in_a_stream(agent: Agent) -> None:
    messages = agent.stream(user(ASK), stream_tokens=True)
    assert kinds(messages)[-3:] == ["approval_request_message", *ENDED]
    assert messages[-3].tool_call.name == "secret_code"
    agent.context()
    agent.answer(approve(messages[-3].tool_call.tool_call_id))


def test_a_tool_that_needs_no_approval_any_more_just_runs(agent: Agent) -> None:
    agent.stream([approval(approve(agent.ask()))], stream_tokens=True)
    agent.client.agents.tools.update_approval(agent_id=agent.id, tool_name="secret_code", body_requires_approval=False)
    messages = agent.stream(user(ASK), stream_tokens=True)
    assert kinds(messages) == [
        "reasoning_message",
        "tool_call_message",
        "tool_return_message",
        "reasoning_message",
        "assistant_message",
        *ENDED,
    ]


# --- what comes of an answer ----------------------------------------------------------------------------------------


def test_an_approved_call_runs(agent: Agent) -> None:
    call_id = agent.ask()
    messages = agent.stream([approval(approve(call_id))], stream_tokens=True)
    assert messages[0].message_type == "tool_return_message"
    assert (messages[0].tool_call_id, messages[0].status) == (call_id, "success")
    assert kinds(messages)[-2:] == ENDED


def test_a_denied_call_does_not_run_and_the_model_hears_why(agent: Agent) -> None:
    # The fake model repeats what it is told of its call, unless the text has a turn for that.
    call_id = agent.ask('think about the code and call secret_code {"text": "hello world"}')
    messages = agent.stream([approval(deny(call_id, TELL))])
    assert kinds(messages) == ["tool_return_message", "assistant_message", *ENDED]
    assert messages[0].status == "error"
    assert CODE in messages[1].content


def test_a_call_that_ran_at_the_client_is_told_to_the_model(agent: Agent) -> None:
    call_id = agent.ask('think about the code and call secret_code {"text": "hello world"}')
    messages = agent.stream([approval(returned(call_id))])
    assert kinds(messages) == ["tool_return_message", "assistant_message", *ENDED]
    assert messages[0].tool_return == CODE
    assert CODE in messages[1].content


def answered_log(agent: Agent, entry: Any) -> tuple[str, list[Any]]:
    """Ask, look at the list from a cursor, answer, and look again: the call's id and what came after the question."""
    cursor = agent.latest()
    response = agent.send(user(ASK))
    call_id = response.messages[-1].tool_call.tool_call_id
    asked = agent.log(after=cursor)
    assert (asked[0].message_type, asked[-1].message_type) == ("user_message", "approval_request_message")
    assert asked[-1].tool_call.tool_call_id == call_id
    assert "request_heartbeat" not in json.loads(asked[-1].tool_call.arguments)
    agent.answer(entry(call_id))
    return call_id, agent.log(after=response.messages[0].id)


def test_an_approval_is_found_by_cursor(agent: Agent) -> None:
    call_id, (answer, result, *_) = answered_log(agent, approve)
    assert answer.message_type == "approval_response_message"
    assert (answer.approval_request_id, answer.approve) == (call_id, True)
    assert (answer.approvals[0].approve, answer.approvals[0].tool_call_id) == (True, call_id)
    assert (result.message_type, result.status) == ("tool_return_message", "success")


def test_a_denial_is_found_by_cursor(agent: Agent) -> None:
    call_id, (answer, result, *_) = answered_log(agent, lambda call_id: deny(call_id, TELL))
    assert answer.message_type == "approval_response_message"
    [entry] = answer.approvals
    assert (entry.approve, entry.tool_call_id, entry.reason) == (False, call_id, TELL)
    assert (result.message_type, result.status) == ("tool_return_message", "error")


def test_a_return_of_the_client_is_found_by_cursor(agent: Agent) -> None:
    call_id, (answer, result, *_) = answered_log(agent, returned)
    assert answer.message_type == "approval_response_message"
    [entry] = answer.approvals
    assert (entry.type, entry.tool_call_id, entry.tool_return, entry.status) == ("tool", call_id, CODE, "success")
    assert (result.message_type, result.status) == ("tool_return_message", "success")
    assert (result.tool_call_id, result.tool_return) == (call_id, CODE)


@by_every_answer
def test_the_context_is_there_after_an_answer(agent: Agent, answer: Any) -> None:
    agent.stream([approval(answer(agent.ask()))], stream_tokens=True)
    assert agent.context()["num_messages"] > 0


@by_every_answer
def test_the_talk_goes_on_after_an_answer(agent: Agent, answer: Any) -> None:
    agent.answer(answer(agent.ask()))
    messages = agent.stream(user(THANKS), stream_tokens=True)
    assert kinds(messages) == ["reasoning_message", "assistant_message", *ENDED]


@by_every_answer
def test_a_model_that_fails_after_the_answer_leaves_a_working_agent(agent: Agent, answer: Any) -> None:
    call_id = agent.ask(ASK_THEN_BREAK)
    stream = agent.open([approval(answer(call_id))], stream_tokens=True)
    with pytest.raises(APIError, match="llm_error"):
        merged(stream)
    messages = agent.stream(user(THANKS))
    assert kinds(messages) == ["reasoning_message", "assistant_message", *ENDED]


@by_every_answer
def test_a_message_can_come_with_the_answer(agent: Agent, answer: Any) -> None:
    call_id = agent.ask()
    agent.send([approval(answer(call_id)), {"type": "message", "role": "user", "content": "say only digits"}])
    messages = agent.stream(user(THANKS), stream_tokens=True)
    assert kinds(messages) == ["reasoning_message", "assistant_message", *ENDED]


def test_parallel_calls_are_answered_each_in_its_own_way(agent: Agent) -> None:
    cursor = agent.latest()
    texts = ("hello world", "hello letta", "hello test")
    secrets = " and ".join(f'call secret_code {{"text": "{text}"}}' for text in texts)
    asked = agent.send(
        user(f'think of all and say at once and {secrets} and call roll_dice {{"num_sides": 16}}')
    ).messages
    dice, request = asked[-2:]
    assert (dice.message_type, request.message_type) == ("tool_call_message", "approval_request_message")
    [rolled] = dice.tool_calls
    assert (rolled.name, json.loads(rolled.arguments)) == ("roll_dice", {"num_sides": 16})
    assert request.tool_call.name == "secret_code"
    assert [json.loads(call.arguments)["text"] for call in request.tool_calls] == list(texts)
    approved, denied, ran_here = (call.tool_call_id for call in request.tool_calls)
    agent.context()

    answered = agent.answer(approve(approved), deny(denied), returned(ran_here)).messages
    assert answered[0].message_type == "tool_return_message"
    assert {each.tool_call_id: each.status for each in answered[0].tool_returns} == {
        approved: "success",
        denied: "error",
        ran_here: "success",
        rolled.tool_call_id: "success",
    }
    assert next(each for each in answered[0].tool_returns if each.tool_call_id == ran_here).tool_return == CODE
    agent.context()

    assert kinds(agent.log(after=cursor))[:7] == [
        "user_message",
        "reasoning_message",
        "assistant_message",
        "tool_call_message",
        "approval_request_message",
        "approval_response_message",
        "tool_return_message",
    ]
    assert kinds(agent.stream(user(THANKS), stream_tokens=True)) == ["reasoning_message", "assistant_message", *ENDED]


def test_the_agent_remembers_why_it_last_stopped(agent: Agent) -> None:
    first = agent.state().last_stop_reason
    call_id = agent.ask()
    assert agent.state().last_stop_reason == "requires_approval"
    agent.answer(approve(call_id))
    after = agent.state().last_stop_reason
    assert after is not None
    assert after != first
    agent.send(user(THANKS))
    assert agent.state().last_stop_reason == "end_turn"


def test_a_cancel_wins_over_an_approval(agent: Agent) -> None:
    call_id = agent.ask(ASK_THEN_DRONE)
    began = threading.Event()

    def cancel() -> None:
        began.wait(10)
        agent.client.agents.messages.cancel(agent_id=agent.id)

    canceller = threading.Thread(target=cancel)
    canceller.start()
    chunks = []
    for chunk in agent.open([approval(approve(call_id))], stream_tokens=True):
        chunks.append(chunk)
        if chunk.message_type == "assistant_message":
            began.set()
    canceller.join()
    messages = merged(chunks)
    assert messages[0].message_type == "tool_return_message"
    assert [each.stop_reason for each in messages if each.message_type == "stop_reason"] == ["cancelled"]
    assert agent.client.runs.list(agent_ids=[agent.id]).items[0].status == "cancelled"
