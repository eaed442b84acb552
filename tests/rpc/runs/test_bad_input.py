"""Bad input is refused with the name of every wrong field, and changes nothing."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.struct_pb2 import Struct

from common.ids import Prefix, new_id
from common.pb.bridle.v1.approval_service_pb2 import (
    GetApprovalRequest,
    ListApprovalsRequest,
    SubmitApprovalRequest,
)
from common.pb.bridle.v1.message_pb2 import (
    Decision,
    Deny,
    Image,
    InputMessage,
    Message,
    Part,
    Text,
    ToolCall,
    ToolReturn,
)
from common.pb.bridle.v1.message_service_pb2 import (
    GetMessageRequest,
    ListMessagesRequest,
    SendMessageRequest,
    StreamMessageRequest,
)
from common.pb.bridle.v1.run_service_pb2 import (
    CancelRunRequest,
    CancelRunsRequest,
    CreateRunRequest,
    DeleteRunRequest,
    GetRunRequest,
    GetStepRequest,
    ListRunsRequest,
    ListStepsRequest,
    RunOptions,
    StreamRunRequest,
)
from common.pb.bridle.v1.tool_pb2 import ClientTool
from tests.helpers.inprocess import World, approve, invalid, running_world, text_part, user
from tests.rpc.runs.conftest import Factories

AGENT, RUN = new_id(Prefix.AGENT), new_id(Prefix.RUN)
APPROVAL = new_id(Prefix.APPROVAL)
# Values of an enum that nobody may send: typed loosely, as another language would.
ZERO: Any = [0]
UNKNOWN: Any = [99]
NOT_AN_OBJECT = Struct()
NOT_AN_OBJECT.update({"type": "string"})


@pytest.fixture(scope="module")
async def shared(factories: Factories) -> AsyncIterator[World]:
    """One server for all of these: none of them may change anything."""
    factory = await factories("sqlite")
    url = await factory.create()
    async with running_world(url) as world:
        yield world
    await factory.drop(url)


def create(**fields: Any) -> CreateRunRequest:
    return CreateRunRequest(**{"agent_id": AGENT, "messages": [user("hi")], **fields})


def says(*parts: Part, **fields: Any) -> CreateRunRequest:
    return create(messages=[InputMessage(parts=parts, **fields)])


def options(**fields: Any) -> CreateRunRequest:
    return create(options=RunOptions(**fields))


def answer(*decisions: Decision, **fields: Any) -> SubmitApprovalRequest:
    return SubmitApprovalRequest(**{"approval_id": APPROVAL, "decisions": decisions, **fields})


def big() -> Struct:
    struct = Struct()
    struct.update({"x": "y" * 17_000})
    return struct


def not_json() -> Struct:
    struct = Struct()
    struct.update({"x": float("nan")})
    return struct


def picture(**fields: Any) -> Part:
    return Part(image=Image(**fields))


RESULT = Decision(tool_call_id="c1", result=ToolReturn(tool_call_id="c2", outcome=ToolReturn.OUTCOME_DENIED))

CASES: list[tuple[str, Any, list[str]]] = [
    ("CreateRun", CreateRunRequest(), ["agent_id", "messages"]),
    ("CreateRun", create(agent_id=RUN), ["agent_id"]),
    ("CreateRun", create(agent_id=AGENT.upper()), ["agent_id"]),
    ("CreateRun", create(conversation_id="default"), ["conversation_id"]),
    ("CreateRun", create(messages=[user("hi")] * 101), ["messages"]),
    ("CreateRun", create(request_id="x" * 129), ["request_id"]),
    ("CreateRun", says(), ["messages[0].parts"]),
    ("CreateRun", says(Part()), ["messages[0].parts[0]"]),
    ("CreateRun", says(Part(tool_call=ToolCall(id="c1"))), ["messages[0].parts[0]"]),
    ("CreateRun", says(text_part("a"), Part(text=Text(text="\0"))), ["messages[0].parts[1].text"]),
    ("CreateRun", says(text_part("ü" * 600_000)), ["messages[0].parts[0].text"]),
    ("CreateRun", says(text_part("x" * (1024 * 1024 + 1))), ["messages[0].parts[0].text"]),
    ("CreateRun", says(text_part("a"), role=Message.ROLE_ASSISTANT), ["messages[0].role"]),
    ("CreateRun", says(text_part("a"), role=99), ["messages[0].role"]),
    ("CreateRun", says(text_part("a"), name="x" * 65), ["messages[0].name"]),
    ("CreateRun", says(text_part("a"), otid="x" * 129), ["messages[0].otid"]),
    ("CreateRun", says(picture()), ["messages[0].parts[0].image"]),
    ("CreateRun", says(picture(data=b"x", media_type="text/html")), ["messages[0].parts[0].image.media_type"]),
    ("CreateRun", says(picture(url="http://example.com")), ["messages[0].parts[0].image.url"]),
    ("CreateRun", options(max_steps=-1), ["options.max_steps"]),
    ("CreateRun", options(max_steps=1001), ["options.max_steps"]),
    ("CreateRun", options(on_busy=9), ["options.on_busy"]),
    ("CreateRun", options(on_pending_approval=9), ["options.on_pending_approval"]),
    ("CreateRun", options(model="nonsense"), ["options.model"]),
    ("CreateRun", options(system="x" * (256 * 1024 + 1)), ["options.system"]),
    ("CreateRun", options(metadata=big()), ["options.metadata"]),
    ("CreateRun", options(metadata=not_json()), ["options.metadata"]),
    ("CreateRun", options(client_tools=[ClientTool()]), ["options.client_tools[0].name"]),
    ("CreateRun", options(client_tools=[ClientTool(name="a b")]), ["options.client_tools[0].name"]),
    ("CreateRun", options(client_tools=[ClientTool(name="a")] * 2), ["options.client_tools[1]"]),
    (
        "CreateRun",
        options(client_tools=[ClientTool(name="a", parameters=NOT_AN_OBJECT)]),
        ["options.client_tools[0].parameters"],
    ),
    ("GetRun", GetRunRequest(), ["run_id"]),
    ("GetRun", GetRunRequest(run_id="run-1"), ["run_id"]),
    ("ListRuns", ListRunsRequest(agent_ids=[AGENT, "x"]), ["agent_ids[1]"]),
    ("ListRuns", ListRunsRequest(conversation_id="x"), ["conversation_id"]),
    ("ListRuns", ListRunsRequest(states=UNKNOWN), ["states[0]"]),
    ("ListRuns", ListRunsRequest(states=ZERO), ["states[0]"]),
    ("ListRuns", ListRunsRequest(stop_reasons=UNKNOWN), ["stop_reasons[0]"]),
    ("ListRuns", ListRunsRequest(order_by="name"), ["order_by"]),
    ("ListRuns", ListRunsRequest(page_size=-1), ["page_size"]),
    ("ListRuns", ListRunsRequest(page_token="x"), ["page_token"]),
    ("CancelRun", CancelRunRequest(), ["run_id"]),
    ("CancelRun", CancelRunRequest(run_id=RUN, reason="x" * 4097), ["reason"]),
    ("CancelRun", CancelRunRequest(run_id=RUN, wait=Duration(seconds=-1)), ["wait"]),
    ("CancelRun", CancelRunRequest(run_id=RUN, wait=Duration(seconds=3601)), ["wait"]),
    ("CancelRuns", CancelRunsRequest(), ["run_ids"]),
    ("CancelRuns", CancelRunsRequest(run_ids=[RUN], agent_id=AGENT), ["run_ids"]),
    ("CancelRuns", CancelRunsRequest(run_ids=[RUN, "x"]), ["run_ids[1]"]),
    ("CancelRuns", CancelRunsRequest(run_ids=[RUN] * 1001), ["run_ids"]),
    ("CancelRuns", CancelRunsRequest(agent_id="x", reason="x" * 4097), ["agent_id", "reason"]),
    ("StreamRun", StreamRunRequest(), ["run_id"]),
    ("StreamRun", StreamRunRequest(run_id=RUN, after_seq=-1), ["after_seq"]),
    ("DeleteRun", DeleteRunRequest(run_id="x"), ["run_id"]),
    ("ListSteps", ListStepsRequest(run_id="x", agent_id="y"), ["run_id", "agent_id"]),
    ("ListSteps", ListStepsRequest(agent_id=AGENT, page_size=-1), ["page_size"]),
    ("GetStep", GetStepRequest(step_id=RUN), ["step_id"]),
    ("SendMessage", SendMessageRequest(), ["run.agent_id", "run.messages"]),
    ("SendMessage", SendMessageRequest(run=options(max_steps=-1)), ["run.options.max_steps"]),
    ("StreamMessage", StreamMessageRequest(run=says()), ["run.messages[0].parts"]),
    ("ListMessages", ListMessagesRequest(agent_id="x"), ["agent_id"]),
    ("ListMessages", ListMessagesRequest(run_id="x"), ["run_id"]),
    ("ListMessages", ListMessagesRequest(conversation_id=""), ["conversation_id"]),
    ("ListMessages", ListMessagesRequest(after_message_id="x", order_by="x"), ["after_message_id", "order_by"]),
    ("ListMessages", ListMessagesRequest(before_message_id="x"), ["before_message_id"]),
    ("ListMessages", ListMessagesRequest(page_size=-1), ["page_size"]),
    ("ListMessages", ListMessagesRequest(page_token="x"), ["page_token"]),
    ("GetMessage", GetMessageRequest(), ["message_id"]),
    ("GetApproval", GetApprovalRequest(approval_id="x"), ["approval_id"]),
    ("ListApprovals", ListApprovalsRequest(agent_id="x", run_id="y"), ["agent_id", "run_id"]),
    ("ListApprovals", ListApprovalsRequest(states=[*ZERO, *UNKNOWN]), ["states[0]", "states[1]"]),
    ("ListApprovals", ListApprovalsRequest(page_size=-1), ["page_size"]),
    ("SubmitApproval", SubmitApprovalRequest(), ["approval_id", "decisions"]),
    ("SubmitApproval", SubmitApprovalRequest(run_id="x", decisions=[approve("c1")]), ["run_id"]),
    ("SubmitApproval", SubmitApprovalRequest(agent_id="x", decisions=[approve("c1")]), ["agent_id"]),
    ("SubmitApproval", answer(approve("")), ["decisions[0].tool_call_id"]),
    ("SubmitApproval", answer(approve("c1"), Decision(tool_call_id="c2")), ["decisions[1]"]),
    ("SubmitApproval", answer(Decision(tool_call_id="c1", deny=Deny(reason="x" * 4097))), ["decisions[0].deny.reason"]),
    ("SubmitApproval", answer(RESULT), ["decisions[0].result.tool_call_id", "decisions[0].result.outcome"]),
    ("SubmitApproval", answer(approve("c1"), follow_up=[InputMessage()]), ["follow_up[0].parts"]),
    ("SubmitApproval", answer(approve("c1"), client_tools=[ClientTool()]), ["client_tools[0].name"]),
    ("SubmitApproval", answer(approve("c1"), request_id="x" * 129), ["request_id"]),
]


@pytest.mark.parametrize(("method", "request_", "fields"), CASES, ids=[f"{m}-{','.join(f)}" for m, _, f in CASES])
async def test_it_is_refused_by_name(shared: World, method: str, request_: Any, fields: list[str]) -> None:
    stub = next(stub for stub in (shared.runs, shared.messages, shared.approvals) if hasattr(stub, method))
    assert await invalid(_outcome(getattr(stub, method)(request_, timeout=10))) == fields


async def _outcome(call: Any) -> None:
    if hasattr(call, "__aiter__"):
        async for _ in call:
            pass
    else:
        await call


async def test_nothing_came_of_all_that(shared: World) -> None:
    assert not (await shared.runs.ListRuns(ListRunsRequest(), timeout=10)).runs
    assert not (await shared.messages.ListMessages(ListMessagesRequest(), timeout=10)).messages
