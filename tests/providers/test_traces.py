"""Traces of real calls: what went to the provider and what came back, whichever way the call ended."""

from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import msgspec
import pytest

from common.pb.bridle.v1 import message_pb2, run_service_pb2
from common.pb.bridle.v1.run_pb2 import Run
from services.fakellm.scripts import Answer, Api, Call, Failure, Fault, FaultKind, Say, say
from tests.helpers.fakellm import FakeLlm
from tests.helpers.inprocess import AgentClient, World
from tests.providers.serving import KEY, agent_on, cancelled_while_streaming, every_api

ON = {"BRIDLE_TRACE": "on"}


async def traces(world: World, run_id: str) -> list[tuple[Any, Any]]:
    """Requests and responses of a run's steps."""
    found = []
    for step in await world.steps(run_id):
        trace = await world.runs.GetStepTrace(run_service_pb2.GetStepTraceRequest(step_id=step.id), timeout=10)
        found.append((msgspec.json.decode(trace.request), msgspec.json.decode(trace.response)))
    return found


async def finished(agent: AgentClient, text: str = "hello") -> Run:
    return await agent.world.wait_for(await agent.start(text))


@every_api
async def test_a_trace_for_every_step(api: Api, fake: FakeLlm, tmp_path: Path) -> None:
    fake.will(Answer((Call("roll_dice", {"sides": 6}),)), Answer((Say("You are done"),)))
    async with agent_on(api, fake, tmp_path, ON) as agent:
        run = await finished(agent)
        (asked, called), (again, told) = await traces(agent.world, run.id)
    assert asked == fake.requests[0].body
    assert again == fake.requests[1].body
    assert (called["outcome"], called["attempts"]) == ("ok", 1)
    assert called["turn"][0]["name"] == "roll_dice"
    assert told["turn"] == [{"type": "text", "text": "You are done"}]
    assert told["usage"]["output_tokens"] > 0
    assert len(told["events"]) > 3
    assert KEY not in msgspec.json.encode([asked, called, again, told]).decode()


@every_api
async def test_failed_and_cancelled_calls_have_one_too(api: Api, fake: FakeLlm, tmp_path: Path) -> None:
    fake.will(
        Failure(401, message=f"I do not like {KEY}."),
        say(tokens=50, fault=Fault(FaultKind.CUT, after=20)),
        say(tokens=10_000, token_delay=0.02),
    )
    async with agent_on(api, fake, tmp_path, ON) as agent:
        [(_, refused)] = await traces(agent.world, (await finished(agent)).id)
        [(_, broken)] = await traces(agent.world, (await finished(agent)).id)
        [(asked, cut)] = await traces(agent.world, (await cancelled_while_streaming(agent)).id)
    assert refused["outcome"] == "llm_authentication"
    assert "I do not like ***." in str(refused["events"])
    assert KEY not in str(refused)
    assert (broken["outcome"], broken["turn"][0]["type"]) == ("llm_error", "text")
    assert len(broken["events"]) > 5
    assert asked == fake.requests[-1].body
    assert (cut["outcome"], cut["usage"]["estimated"], cut["turn"][0]["type"]) == ("cancelled", True, "text")
    assert cut["events"]


@every_api
async def test_secrets_and_pictures_are_not_in_it(api: Api, fake: FakeLlm, tmp_path: Path) -> None:
    fake.will(Answer((Say(pieces=("It is ", "hun", "ter", "2!", " ok")),)))
    async with agent_on(api, fake, tmp_path, ON, secrets={"PASSWORD": "hunter2!"}) as agent:
        request = agent.request("my password is hunter2!")
        picture = message_pb2.Image(data=b"\x89PNG" * 1_000, media_type="image/png")
        request.messages[0].parts.append(message_pb2.Part(image=picture))
        run = (await agent.world.runs.CreateRun(request, timeout=10)).run
        run = await agent.world.wait_for(run.id)
        [(asked, told)] = await traces(agent.world, run.id)
    assert run.state == Run.STATE_COMPLETED
    assert "my password is ***" in str(asked)
    assert "[image/png: 4,000 bytes]" in str(asked)
    assert told["turn"] == [{"type": "text", "text": "It is *** ok"}]
    assert "hunter2" not in str((asked, told))
    assert told["events"] == "[cut: a secret was spread over them]"
    assert b"hunter2!" in fake.requests[0].raw_body, "the provider was sent it"


async def test_they_are_bounded(fake: FakeLlm, tmp_path: Path) -> None:
    settings = {**ON, "BRIDLE_TRACE_BYTES": "2KiB"}
    async with agent_on(Api.CHAT, fake, tmp_path, settings, system="x" * 100_000) as agent:
        fake.will(say(tokens=500))
        run = await finished(agent)
        [step] = await agent.world.steps(run.id)
        trace = await agent.world.runs.GetStepTrace(run_service_pb2.GetStepTraceRequest(step_id=step.id))
    assert len(trace.request) <= 2_048
    assert len(trace.response) <= 2_048
    assert "[cut: " in trace.request
    assert "[cut: " in trace.response
    assert msgspec.json.decode(trace.request)["model"] == "gpt-4o-mini"


async def test_none_is_kept_unless_it_is_wanted(fake: FakeLlm, tmp_path: Path) -> None:
    async with agent_on(Api.CHAT, fake, tmp_path) as agent:
        run = await finished(agent)
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await traces(agent.world, run.id)
    assert raised.value.code() is grpc.StatusCode.NOT_FOUND
    assert (raised.value.details() or "").startswith("trace ")
