"""What a client says to an agent becomes a run, or the answer that a waiting run goes on with."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

import grpc.aio
from msgspec import Struct

from common.errors import NoPendingApproval
from common.pb.bridle.v1 import (
    agent_service_pb2,
    approval_service_pb2,
    run_pb2,
    run_service_pb2,
    tool_rule_pb2,
)
from gateway import errors
from gateway.http.problems import bad_request
from gateway.messages import inputs
from gateway.messages.live import View
from gateway.runs.follow import WAITING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gateway.http.endpoint import Exchange
    from gateway.messages.inputs import MessageIn, SendBody

# Under this key of a run's metadata is what a later reader must know of how it was asked for.
KEPT: Final = "gateway"
RUN_TYPE: Final = "run_type"


class Where(Struct, frozen=True):
    """Whom a request speaks to, and how."""

    agent_id: str
    # Empty: the agent's default conversation.
    conversation_id: str = ""
    run_type: str = "send_message"
    background: bool = False
    # Conversation routes refuse a second message while a run is live; agent routes queue it.
    reject_if_busy: bool = False
    # A repeat with the same otids finds the first run.
    repeatable: bool = False


class Begun(Struct, frozen=True):
    """A run and where to read it from."""

    run: run_pb2.Run
    after_seq: int
    # The run as it was when this request joined it; None if the request started it.
    before: run_pb2.Run | None = None
    # Nothing is to come: the answer was given before, and the run waits for another one.
    idle: bool = False


async def begin(exchange: Exchange[SendBody, Any], where: Where) -> Begun:
    """Start a run, or answer the open approval."""
    said = exchange.body.said
    if said[0].kind != "message":
        return await _answer(exchange, where, said)
    return await _start(exchange, where, said)


async def _start(exchange: Exchange[SendBody, Any], where: Where, said: Sequence[MessageIn]) -> Begun:
    body = exchange.body
    options = run_service_pb2.RunOptions(
        max_steps=body.max_steps or 0,
        client_tools=inputs.client_tools(body.client_tools),
        background=where.background,
        model=body.override_model or "",
        system=body.override_system or body.system or "",
        callback_url=body.callback_url or "",
        on_busy=run_service_pb2.RunOptions.ON_BUSY_REJECT if where.reject_if_busy else 0,  # type: ignore[arg-type]
    )
    options.metadata.update({RUN_TYPE: where.run_type, KEPT: _kept(body)})
    request = run_service_pb2.CreateRunRequest(
        agent_id=where.agent_id,
        conversation_id=where.conversation_id,
        messages=inputs.inputs(said),
        options=options,
        request_id=_request_id(where, body),
    )
    created = await exchange.caller(exchange.backend.runs.CreateRun, request)
    return Begun(created.run, created.after_seq)


async def _answer(exchange: Exchange[SendBody, Any], where: Where, said: Sequence[MessageIn]) -> Begun:
    # Other kinds of messages after the first are ignored, as the wire has it.
    more = [each for each in said[1:] if each.kind == "message"]
    request = approval_service_pb2.SubmitApprovalRequest(
        decisions=inputs.decisions(said[0]),
        follow_up=inputs.inputs(more, first=1),
        client_tools=inputs.client_tools(exchange.body.client_tools),
    )
    if where.conversation_id:
        request.run_id = await _waiting_run(exchange, where)
    else:
        request.agent_id = where.agent_id
    try:
        answered = await exchange.caller(exchange.backend.approvals.SubmitApproval, request)
    except grpc.aio.AioRpcError as error:
        if more and errors.read(error).reason == "APPROVAL_ALREADY_DECIDED":
            # The answer came before and was taken; what is said with it now is new.
            return await _start(exchange, where, more)
        raise
    run = answered.run
    idle = run.state == WAITING and run.approval_id != answered.approval.id
    return Begun(run, answered.after_seq, before=run, idle=idle)


async def _waiting_run(exchange: Exchange[Any, Any], where: Where) -> str:
    """The run of a conversation that waits; else its newest, so that a repeated answer is recognised."""
    for states in ((WAITING,), ()):
        request = run_service_pb2.ListRunsRequest(
            agent_ids=[where.agent_id], conversation_id=where.conversation_id, states=states, page_size=1
        )
        found = await exchange.caller(exchange.backend.runs.ListRuns, request)
        if found.runs:
            return str(found.runs[0].id)
    raise bad_request(NoPendingApproval().message)


def _kept(body: SendBody) -> dict[str, Any]:
    """How the answer was wanted, without what is as usual."""
    kept: dict[str, Any] = {}
    if body.stream_tokens:
        kept["stream_tokens"] = True
    if body.include_return_message_types is not None:
        kept["include_return_message_types"] = list(body.include_return_message_types)
    if body.client_tools:
        kept["client_tools"] = [tool.name for tool in body.client_tools]
    if not body.use_assistant_message:
        kept["use_assistant_message"] = False
    return kept


def _request_id(where: Where, body: SendBody) -> str:
    otids = body.otids if where.repeatable else None
    if not otids:
        return ""
    text = "\n".join((where.agent_id, where.conversation_id, *otids))
    return f"otid-{hashlib.sha256(text.encode()).hexdigest()}"


def kept(run: run_pb2.Run) -> Mapping[str, Any]:
    """What `begin` kept with a run."""
    found = run.metadata.fields.get(KEPT)
    return dict(found.struct_value) if found is not None else {}


async def view(exchange: Exchange[SendBody, Any], where: Where) -> View:
    """How the client of this request wants to see the run."""
    body = exchange.body
    types = body.include_return_message_types
    names = [tool.name for tool in body.client_tools or ()]
    return View(
        tokens=body.stream_tokens,
        pings=body.include_pings,
        numbered=where.background,
        types=frozenset(types) if types is not None else None,
        summaries=body.include_compaction_messages,
        guarded=await guarded(exchange, where.agent_id, names) if body.stream_tokens else frozenset(),
    )


async def guarded(exchange: Exchange[Any, Any], agent_id: str, client_tools: Sequence[str]) -> frozenset[str]:
    """The tools whose calls wait for an answer."""
    agent = await exchange.caller(
        exchange.backend.agents.GetAgent, agent_service_pb2.GetAgentRequest(agent_id=agent_id)
    )
    rules: Sequence[tool_rule_pb2.ToolRule] = agent.tool_rules
    return frozenset(client_tools) | {rule.tool_name for rule in rules if rule.HasField("requires_approval")}
