"""What is kept about runs, steps and messages, and how it is found again."""

import grpc
from google.protobuf.struct_pb2 import Struct
from google.protobuf.timestamp_pb2 import Timestamp

from common.ids import Prefix, new_id
from common.pb.bridle.v1.message_pb2 import Image as WireImage
from common.pb.bridle.v1.message_pb2 import InputMessage, Part
from common.pb.bridle.v1.message_service_pb2 import GetMessageRequest, ListMessagesRequest
from common.pb.bridle.v1.run_pb2 import Step
from common.pb.bridle.v1.run_service_pb2 import (
    CreateRunRequest,
    DeleteRunRequest,
    GetRunRequest,
    GetStepRequest,
    ListRunsRequest,
    ListStepsRequest,
    RunOptions,
)
from common.pb.bridle.v1.stop_reason_pb2 import STOP_REASON_CANCELLED, STOP_REASON_END_TURN
from services.messages.model import Image, Reasoning, Role, Text
from tests.helpers.inprocess import Message, Run, World, invalid, not_found, on_both, refused, text_of, text_part, user
from tests.helpers.models import Gate, ProbeTool, call, say, think
from tests.rpc.runs.conftest import MakeWorld


async def found(world: World, **which: object) -> list[str]:
    response = await world.runs.ListRuns(ListRunsRequest(**which), timeout=10)  # type: ignore[arg-type]
    return [run.id for run in response.runs]


@on_both
async def test_a_run_says_what_it_took(make_world: MakeWorld) -> None:
    world = await make_world(ProbeTool("probe"))
    agent = await world.make_agent(["probe"])
    agent.model.will(call("probe", "c1"), say("done"))
    metadata = Struct()
    metadata.update({"ticket": 7.0})

    run = (await agent.send("go", background=True, metadata=metadata)).run

    assert (run.agent_id, run.conversation_id) == (agent.id, agent.conversation_id)
    assert (run.step_count, list(run.tools_used), run.background) == (2, ["probe"], True)
    assert (run.usage.input_tokens, run.usage.output_tokens, run.usage.estimated) == (20, 10, False)
    assert run.metadata == metadata
    times = [run.create_time, run.start_time, run.stop_time]
    assert [time.ToNanoseconds() for time in times] == sorted(time.ToNanoseconds() for time in times)
    assert run.duration.ToNanoseconds() == run.stop_time.ToNanoseconds() - run.start_time.ToNanoseconds()
    assert 0 < run.time_to_first_token.ToNanoseconds() < run.duration.ToNanoseconds()
    first, second = await world.steps(run.id)
    assert (first.number, second.number) == (1, 2)
    assert (first.status, list(first.tools_used), first.model) == (
        Step.STATUS_SUCCEEDED,
        ["probe"],
        agent.model.handle,
    )
    assert first.HasField("model_duration")
    assert first.HasField("tool_duration")
    assert not second.HasField("tool_duration")
    assert second.stop_reason == STOP_REASON_END_TURN
    assert first.usage.input_tokens == 10
    assert await world.runs.GetStep(GetStepRequest(step_id=first.id), timeout=10) == first
    by_agent = await world.runs.ListSteps(ListStepsRequest(agent_id=agent.id), timeout=10)
    assert list(by_agent.steps) == [second, first]


@on_both
async def test_runs_are_found_again(make_world: MakeWorld) -> None:
    world = await make_world()
    agent, other = await world.make_agent(), await world.make_agent()
    hold = Gate()
    done = (await agent.send("one", background=True)).run
    foreign = (await other.send("two")).run
    agent.model.will(say(hold))
    cancelled = await agent.start("three")
    await hold.reached()
    await world.cancel(cancelled)

    assert await found(world) == [cancelled, foreign.id, done.id]
    assert await found(world, order_by="create_time") == [done.id, foreign.id, cancelled]
    assert await found(world, agent_ids=[agent.id]) == [cancelled, done.id]
    assert await found(world, conversation_id=other.conversation_id) == [foreign.id]
    assert await found(world, states=[Run.STATE_COMPLETED]) == [foreign.id, done.id]
    assert await found(world, stop_reasons=[STOP_REASON_CANCELLED]) == [cancelled]
    assert await found(world, background=True) == [done.id]
    assert await found(world, background=False) == [cancelled, foreign.id]
    assert await found(world, created_after=foreign.create_time) == [cancelled, foreign.id]
    assert await found(world, created_before=foreign.create_time) == [done.id]
    assert await found(world, created_after=Timestamp(seconds=2**33)) == []


async def test_runs_come_in_pages(world: World) -> None:
    agent = await world.make_agent()
    ids = [(await agent.send("hi")).run.id for _ in range(5)]

    page = await world.runs.ListRuns(ListRunsRequest(page_size=2), timeout=10)
    seen = [run.id for run in page.runs]
    while page.next_page_token:
        page = await world.runs.ListRuns(ListRunsRequest(page_size=2, page_token=page.next_page_token), timeout=10)
        seen += [run.id for run in page.runs]

    assert seen == ids[::-1]


async def test_a_stopped_run_can_be_deleted_and_its_messages_stay(make_world: MakeWorld) -> None:
    world = await make_world()
    agent = await world.make_agent()
    run = (await agent.send("hi")).run
    (step,) = await world.steps(run.id)

    await world.runs.DeleteRun(DeleteRunRequest(run_id=run.id), timeout=10)

    assert await not_found(world.run(run.id)) == ("run", run.id)
    assert await not_found(world.events(run.id)) == ("run", run.id)
    assert await not_found(world.runs.GetStep(GetStepRequest(step_id=step.id))) == ("step", step.id)
    assert [text_of(message) for message in await agent.log()] == ["hi", "ok"]
    assert (await agent.send("again")).run.state == Run.STATE_COMPLETED


async def test_a_live_run_cannot_be_deleted(world: World) -> None:
    agent = await world.make_agent()
    hold = Gate()
    agent.model.will(say(hold))
    run_id = await agent.start("hi")
    await hold.reached()

    deleting = world.runs.DeleteRun(DeleteRunRequest(run_id=run_id), timeout=10)

    metadata = await refused(deleting, grpc.StatusCode.FAILED_PRECONDITION, "ILLEGAL_TRANSITION")
    assert metadata["state"] == "running"
    assert (await world.run(run_id)).state == Run.STATE_RUNNING


async def test_what_does_not_exist_is_not_found(world: World) -> None:
    run, step = new_id(Prefix.RUN), new_id(Prefix.STEP)
    message, agent = new_id(Prefix.MESSAGE), new_id(Prefix.AGENT)
    conversation = new_id(Prefix.CONVERSATION)
    known = await world.make_agent()

    assert await not_found(world.runs.GetRun(GetRunRequest(run_id=run))) == ("run", run)
    assert await not_found(world.cancel(run)) == ("run", run)
    assert await not_found(world.runs.DeleteRun(DeleteRunRequest(run_id=run))) == ("run", run)
    assert await not_found(world.steps(run)) == ("run", run)
    assert await not_found(world.runs.GetStep(GetStepRequest(step_id=step))) == ("step", step)
    assert await not_found(world.log(run_id=run)) == ("run", run)
    assert await not_found(world.log(agent_id=agent)) == ("agent", agent)
    assert await not_found(world.log(conversation_id=conversation)) == ("conversation", conversation)
    assert await not_found(world.messages.GetMessage(GetMessageRequest(message_id=message))) == ("message", message)
    assert await not_found(known.log(after_message_id=message)) == ("message", message)
    for request, missing in (
        (CreateRunRequest(agent_id=agent, messages=[user("hi")]), ("agent", agent)),
        (
            CreateRunRequest(agent_id=known.id, conversation_id=conversation, messages=[user("hi")]),
            ("conversation", conversation),
        ),
        (
            CreateRunRequest(agent_id=known.id, messages=[user("hi")], options=RunOptions(model="script/none")),
            ("model", "script/none"),
        ),
    ):
        assert await not_found(world.runs.CreateRun(request)) == missing


async def test_what_was_said_reaches_the_model_whole(make_world: MakeWorld) -> None:
    world = await make_world()
    agent = await world.make_agent(system="Be kind.")
    said = [
        InputMessage(role=Message.ROLE_SYSTEM, parts=[text_part("Be brief.")]),
        InputMessage(
            parts=[text_part("What is this?"), Part(image=WireImage(url="https://example.com/cat.png"))],
            name="ann",
            otid="mine-1",
        ),
    ]
    agent.model.will(say("A cat."))

    await world.runs.CreateRun(CreateRunRequest(agent_id=agent.id, messages=said), timeout=10)
    await agent.send("thanks", system="Be rude.")

    first, second = (made.request for made in agent.model.calls)
    assert (first.system, second.system) == ("Be kind.", "Be rude.")
    assert [(message.role, message.parts) for message in second.messages] == [
        (Role.SYSTEM, (Text("Be brief."),)),
        (Role.USER, (Text("What is this?"), Image(url="https://example.com/cat.png"))),
        (Role.ASSISTANT, (Text("A cat."),)),
        (Role.USER, (Text("thanks"),)),
    ]
    stored = (await agent.log())[1]
    assert (stored.name, stored.otid, list(stored.parts)) == ("ann", "mine-1", list(said[1].parts))


async def test_reasoning_is_kept_for_the_provider(world: World) -> None:
    agent = await world.make_agent()
    agent.model.will((think("hm"), *say("yes")))

    events = [response.event async for response in agent.stream("sure?") if response.HasField("event")]
    await agent.send("why?")

    assert [event.reasoning_delta.text for event in events if event.HasField("reasoning_delta")] == ["hm"]
    assert agent.model.calls[1].request.messages[1].parts == (Reasoning("hm"), Text("yes"))


async def test_another_model_for_one_run(world: World) -> None:
    agent, guest = await world.make_agent(), world.models.make()
    guest.will(say("I am the guest"))

    sent = await agent.send("who are you?", model=guest.handle)

    assert text_of(sent.messages[-1]) == "I am the guest"
    assert (await world.steps(sent.run.id))[0].model == guest.handle
    assert text_of((await agent.send("and now?")).messages[-1]) == "ok"


@on_both
async def test_a_message_of_another_conversation_is_no_cursor(make_world: MakeWorld) -> None:
    world = await make_world()
    agent, other = await world.make_agent(), await world.make_agent()
    run = (await agent.send("one")).run
    await other.send("two")
    mine, foreign = await agent.log(), await other.log()

    assert await invalid(agent.log(after_message_id=foreign[0].id)) == ["after_message_id"]
    assert await invalid(world.log(run_id=run.id, before_message_id=foreign[0].id)) == ["before_message_id"]
    # Across conversations the order is that of time.
    assert await world.log(after_message_id=mine[1].id) == foreign
    assert {message.id for message in await world.log(before_message_id=foreign[0].id)} >= {mine[0].id}


@on_both
async def test_messages_are_listed_by_position(make_world: MakeWorld) -> None:
    world = await make_world()
    agent = await world.make_agent()
    runs = [(await agent.send(f"message {number}")).run for number in range(3)]
    log = await agent.log()

    assert [message.seq for message in log] == sorted(message.seq for message in log)
    assert await world.log(conversation_id=agent.conversation_id) == log
    assert await world.log(run_id=runs[1].id) == log[2:4]
    assert await agent.log(order_by="create_time desc") == log[::-1]
    assert await agent.log(after_message_id=log[1].id, before_message_id=log[4].id) == log[2:4]
    page = await world.messages.ListMessages(ListMessagesRequest(agent_id=agent.id, page_size=4), timeout=10)
    assert list(page.messages) == log[:4]
    request = ListMessagesRequest(agent_id=agent.id, page_size=4, page_token=page.next_page_token)
    assert list((await world.messages.ListMessages(request, timeout=10)).messages) == log[4:]
    assert await world.messages.GetMessage(GetMessageRequest(message_id=log[2].id), timeout=10) == log[2]
