"""What the server says there is, once everything has come to rest."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from common.pb.bridle.v1.agent_pb2 import Agent
from common.pb.bridle.v1.approval_pb2 import Approval
from common.pb.bridle.v1.approval_service_pb2 import ListApprovalsRequest
from common.pb.bridle.v1.message_pb2 import Message
from common.pb.bridle.v1.message_service_pb2 import ListMessagesRequest
from common.pb.bridle.v1.run_event_pb2 import RunEvent
from common.pb.bridle.v1.run_pb2 import Run, Step
from common.pb.bridle.v1.run_service_pb2 import ListRunsRequest, ListStepsRequest, StreamRunRequest
from tests.chaos.caller import Caller

_STATES = [value for value in Approval.State.values() if value]


@dataclass
class Truth:
    """Runs and what belongs to them."""

    runs: dict[str, Run] = field(default_factory=dict)
    approvals: dict[str, Approval] = field(default_factory=dict)
    # By agent, in the order of the conversation.
    messages: dict[str, list[Message]] = field(default_factory=dict)
    # By run.
    steps: dict[str, list[Step]] = field(default_factory=dict)
    events: dict[str, list[RunEvent]] = field(default_factory=dict)


async def gather(caller: Caller, agents: Sequence[Agent]) -> Truth:
    """Read all of it."""
    truth = Truth()
    for agent in agents:
        runs = ListRunsRequest(agent_ids=[agent.id], order_by="create_time")
        async for run in caller.pages(caller.runs.ListRuns, runs, "runs"):
            truth.runs[run.id] = run
        approvals = ListApprovalsRequest(agent_id=agent.id, states=_STATES)
        async for approval in caller.pages(caller.approvals.ListApprovals, approvals, "approvals"):
            truth.approvals[approval.id] = approval
        messages = ListMessagesRequest(agent_id=agent.id, order_by="create_time")
        listed = caller.pages(caller.messages.ListMessages, messages, "messages")
        truth.messages[agent.id] = [message async for message in listed]
    for run_id in truth.runs:
        steps = caller.pages(caller.runs.ListSteps, ListStepsRequest(run_id=run_id), "steps")
        truth.steps[run_id] = [step async for step in steps]
        replay = caller.runs.StreamRun(StreamRunRequest(run_id=run_id), timeout=10)
        truth.events[run_id] = [response.event async for response in replay if response.HasField("event")]
    return truth
