"""A real server in its own process, and a client of it."""

import asyncio
import time
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio

from common.pb.bridle.v1 import (
    agent_pb2,
    agent_service_pb2,
    approval_service_pb2,
    message_pb2,
    message_service_pb2,
    run_pb2,
    run_service_pb2,
)
from common.pb.bridle.v1.agent_service_pb2_grpc import AgentServiceStub
from common.pb.bridle.v1.approval_service_pb2_grpc import ApprovalServiceStub
from common.pb.bridle.v1.message_service_pb2_grpc import MessageServiceStub
from common.pb.bridle.v1.run_service_pb2_grpc import RunServiceStub
from common.pb.bridle.v1.tool_rule_pb2 import ToolRule
from tests.bench.process import cpu_seconds, resident_mb
from tests.helpers.server import ServerProcess, running_server

DEADLINE = 120.0
WAIT_NEEDS_APPROVAL = ToolRule(tool_name="wait", requires_approval=ToolRule.RequiresApproval())


class Unexpected(Exception):
    """A call was answered, but not with what the scenario asked for: its figures would mean nothing."""


class Client:
    """The calls that scenarios make. A failing one fails the whole bench."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.agents: Any = AgentServiceStub(channel)
        self._approvals: Any = ApprovalServiceStub(channel)
        self._messages: Any = MessageServiceStub(channel)
        self._runs: Any = RunServiceStub(channel)

    async def create_agent(self, model: str = "demo/echo", *, approval: bool = False) -> str:
        """The id of a new agent that may use the tool `wait`."""
        agent = agent_pb2.Agent(name="bench", model=model, tool_rules=[WAIT_NEEDS_APPROVAL] if approval else [])
        request = agent_service_pb2.CreateAgentRequest(agent=agent, tool_names=["wait"])
        created = await self.agents.CreateAgent(request, timeout=DEADLINE)
        return str(created.id)

    async def get_agent(self, agent_id: str) -> None:
        """The yardstick: one read, as small as a useful call can be."""
        await self.agents.GetAgent(agent_service_pb2.GetAgentRequest(agent_id=agent_id), timeout=DEADLINE)

    async def send(self, agent_id: str, text: str, ends_in: int = run_pb2.Run.STATE_COMPLETED) -> str:
        """Say something and wait; the id of the run."""
        request = message_service_pb2.SendMessageRequest(run=_said(agent_id, text))
        answer = await self._messages.SendMessage(request, timeout=DEADLINE)
        if answer.run.state != ends_in or not answer.messages:
            raise Unexpected(f"the run is in state {answer.run.state}, not {ends_in}: {answer.run.error}")
        return str(answer.run.id)

    def stream(self, agent_id: str, text: str, timeout: float | None = DEADLINE) -> Any:
        """Say something and see every event; the open call."""
        request = message_service_pb2.StreamMessageRequest(run=_said(agent_id, text))
        return self._messages.StreamMessage(request, timeout=timeout)

    async def create_run(self, agent_id: str, text: str) -> run_pb2.Run:
        """Say something and do not wait."""
        created = await self._runs.CreateRun(_said(agent_id, text), timeout=DEADLINE)
        run: run_pb2.Run = created.run
        return run

    async def get_run(self, run_id: str) -> None:
        """One run as it is now."""
        await self._runs.GetRun(run_service_pb2.GetRunRequest(run_id=run_id), timeout=DEADLINE)

    def follow(self, run_id: str) -> Any:
        """All events of a run until it stops; the open call."""
        return self._runs.StreamRun(run_service_pb2.StreamRunRequest(run_id=run_id), timeout=DEADLINE)

    async def cancel(self, run_id: str) -> None:
        """Stop a run, without waiting for its end."""
        await self._runs.CancelRun(run_service_pb2.CancelRunRequest(run_id=run_id), timeout=DEADLINE)

    async def cancel_all(self, agent_id: str) -> None:
        """Stop whatever an agent is doing, and wait for the end."""
        request = run_service_pb2.CancelRunsRequest(agent_id=agent_id)
        request.wait.FromSeconds(10)
        await self._runs.CancelRuns(request, timeout=DEADLINE)

    async def open_call(self, run_id: str) -> str:
        """The id of the one tool call that a run waits to be allowed."""
        request = approval_service_pb2.ListApprovalsRequest(run_id=run_id)
        found = await self._approvals.ListApprovals(request, timeout=DEADLINE)
        return str(found.approvals[0].calls[0].call.id)

    async def approve(self, run_id: str, call_id: str) -> int:
        """Allow it; where to follow the run from."""
        decision = message_pb2.Decision(tool_call_id=call_id, approve=message_pb2.Approve())
        request = approval_service_pb2.SubmitApprovalRequest(run_id=run_id, decisions=[decision])
        answer = await self._approvals.SubmitApproval(request, timeout=DEADLINE)
        return int(answer.after_seq)

    async def until_stopped(self, run_id: str, after_seq: int) -> run_pb2.Run:
        """Follow a run to its end."""
        request = run_service_pb2.StreamRunRequest(run_id=run_id, after_seq=after_seq)
        async for response in self._runs.StreamRun(request, timeout=DEADLINE):
            if response.event.HasField("run_stopped"):
                run: run_pb2.Run = response.event.run_stopped.run
                return run
        raise Unexpected(f"the stream of {run_id} ended before the run did")


class Rig:
    """A server of our own, its client, and what it costs."""

    def __init__(self, server: ServerProcess, client: Client) -> None:
        self.server = server
        self.client = client

    def cpu(self) -> float:
        """CPU seconds that the server has used."""
        return cpu_seconds(self.server.process.pid)

    def resident_mb(self) -> float:
        """Memory that the server holds."""
        return resident_mb(self.server.process.pid)

    async def metric(self, name: str) -> float:
        """One unlabelled metric of the server."""
        page = await asyncio.to_thread(_fetch, f"http://{self.server.http_address}/metrics")
        for line in page.splitlines():
            if line.startswith(f"{name} "):
                return float(line.rpartition(" ")[2])
        raise Unexpected(f"there is no metric {name}")


@asynccontextmanager
async def rig(**variables: str) -> AsyncIterator[Rig]:
    """A fresh server for one scenario, with these variables; a warning that it logs fails the bench."""
    async with running_server(BRIDLE_LOG_LEVEL="warning", **variables) as server:
        try:
            async with grpc.aio.insecure_channel(server.grpc_address) as channel:
                made = Rig(server, Client(channel))
                await _warm(made.client)
                yield made
        except Exception as error:
            error.add_note(f"the server's log:\n{server.logs()}")
            raise
        if server.logs().strip():
            raise Unexpected(f"the server complained:\n{server.logs()}")


async def timed(call: Callable[[], Awaitable[Any]]) -> float:
    """How many seconds a call takes."""
    began = time.perf_counter()
    await call()
    return time.perf_counter() - began


async def spread_over(workers: int, jobs: int, job: Callable[[int, int], Awaitable[Any]]) -> None:
    """Do `jobs` jobs in each of some concurrent workers; a job is given the worker's number and its own."""

    async def work(worker: int) -> None:
        for number in range(jobs):
            await job(worker, number)

    async with asyncio.TaskGroup() as group:
        for worker in range(workers):
            group.create_task(work(worker))


async def _warm(client: Client) -> None:
    """What every process does once (caches of statements, of methods) belongs to no figure."""
    agent_id = await client.create_agent()
    for _ in range(20):
        await client.get_agent(agent_id)
        await client.send(agent_id, "hello")


def _said(agent_id: str, text: str) -> run_service_pb2.CreateRunRequest:
    message = message_pb2.InputMessage(parts=[message_pb2.Part(text=message_pb2.Text(text=text))])
    return run_service_pb2.CreateRunRequest(agent_id=agent_id, messages=[message])


def _fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - our own server
        return str(answer.read().decode())
