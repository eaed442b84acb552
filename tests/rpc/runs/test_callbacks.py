"""Whoever starts a run with a callback_url is told of each of its stops: signed, once, until they take it."""

import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from datetime import datetime, timedelta

import grpc
import pytest

from common.clock import SystemClock
from services.callbacks.relay import signing_secret
from tests.helpers.inprocess import Run, World, approve, invalid, on_both, refused
from tests.helpers.models import ProbeTool, call, fail, say
from tests.helpers.receiver import Receiver, Told, receiving
from tests.helpers.server import free_address
from tests.helpers.wait import eventually
from tests.rpc.runs.conftest import MakeWorld

ALLOWED = {"BRIDLE_CALLBACK_PRIVATE": "true", "BRIDLE_SECRET_KEY": "a key of this test"}


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    """Somebody to tell."""
    async with receiving() as found:
        yield found


def assert_signed(world: World, told: Told) -> None:
    key = base64.b64decode(signing_secret(world.node.seal).removeprefix("whsec_"))
    signed = f"{told.headers['webhook-id']}.{told.headers['webhook-timestamp']}.".encode() + told.body
    digest = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    assert told.headers["webhook-signature"] == f"v1,{digest}"


async def recorded(world: World, run_id: str, attempts: int) -> Run:
    """The run, once so many attempts are recorded on it."""

    async def look() -> Run:
        return await world.run(run_id)

    return await eventually(look, until=lambda run: run.callback.attempts == attempts)


async def done(world: World, run_id: str) -> Run:
    """The run, once its callback is over."""

    async def look() -> Run:
        return await world.run(run_id)

    return await eventually(look, until=lambda run: run.callback.done)


@on_both
async def test_a_completed_run_is_told_once_and_signed(make_world: MakeWorld, receiver: Receiver) -> None:
    world = await make_world(settings=ALLOWED)
    agent = await world.make_agent()
    agent.model.will(say("hello"))
    run_id = await agent.start("hi", callback_url=receiver.url)
    told = await receiver.next()
    assert_signed(world, told)
    body = json.loads(told.body)
    assert (body["run_id"], body["status"]) == (run_id, "completed")
    assert told.headers["content-type"] == "application/json"
    run = await done(world, run_id)
    assert (run.callback.url, run.callback.attempts, run.callback.status_code) == (receiver.url, 1, 200)
    assert receiver.told.empty()


async def test_a_stop_for_a_person_and_the_end_are_two_callbacks(make_world: MakeWorld, receiver: Receiver) -> None:
    probe = ProbeTool("probe")
    world = await make_world(probe, settings=ALLOWED)
    agent = await world.make_agent(["probe"], approval=["probe"])
    agent.model.will(call("probe", "c1"), say("done"))
    asked = await agent.ask(callback_url=receiver.url)
    first = await receiver.next()
    await world.answer(approve("c1"), approval_id=asked.id)
    second = await receiver.next()
    assert [json.loads(told.body)["status"] for told in (first, second)] == ["completed", "completed"]
    assert json.loads(first.body)["completed_at"] is None
    assert json.loads(second.body)["completed_at"]
    assert first.headers["webhook-id"] != second.headers["webhook-id"]


async def test_a_failed_and_a_cancelled_run_are_told_too(make_world: MakeWorld, receiver: Receiver) -> None:
    world = await make_world(settings=ALLOWED)
    agent = await world.make_agent(["wait"])
    agent.model.will(call("wait", "c1", seconds=60))
    run_id = await agent.start("wait", callback_url=receiver.url)
    await world.wait_for(run_id, Run.STATE_RUNNING)
    await world.cancel(run_id)
    assert json.loads((await receiver.next()).body)["status"] == "cancelled"
    failing = await world.make_agent()
    failing.model.will(fail())
    await failing.start("hi", callback_url=receiver.url)
    assert json.loads((await receiver.next()).body)["status"] == "failed"


class LaterClock(SystemClock):
    """The time of day, as far ahead as the test wants it."""

    ahead = timedelta()

    def now(self) -> datetime:
        """The time of day."""
        return super().now() + self.ahead


async def test_one_that_is_not_taken_is_sent_again_with_the_same_id(make_world: MakeWorld, receiver: Receiver) -> None:
    clock = LaterClock()
    receiver.answers = [500, 302, 429]
    world = await make_world(settings=ALLOWED, clock=clock)
    agent = await world.make_agent()
    agent.model.will(say("hello"))
    run_id = await agent.start("hi", callback_url=receiver.url)
    told = []
    for attempt in range(4):
        told.append(await receiver.next())
        assert_signed(world, told[-1])
        assert receiver.told.empty()
        await recorded(world, run_id, attempt + 1)
        clock.ahead += timedelta(hours=1)
    assert len({each.headers["webhook-id"] for each in told}) == 1
    assert len({each.body for each in told}) == 1
    run = await done(world, run_id)
    assert (run.callback.attempts, run.callback.status_code, run.callback.error) == (4, 200, "")


async def test_one_that_is_never_taken_is_given_up(make_world: MakeWorld) -> None:
    clock = LaterClock()
    world = await make_world(settings=ALLOWED, clock=clock)
    agent = await world.make_agent()
    run_id = await agent.start("hi", callback_url=f"http://{free_address()}/")
    for attempt in range(9):
        await recorded(world, run_id, attempt + 1)
        clock.ahead += timedelta(days=1)
    run = await done(world, run_id)
    assert (run.state, run.callback.status_code) == (Run.STATE_COMPLETED, 0)
    assert "ConnectError" in run.callback.error


async def test_one_that_is_gone_is_not_sent_again(make_world: MakeWorld, receiver: Receiver) -> None:
    receiver.answers = [410]
    world = await make_world(settings=ALLOWED)
    agent = await world.make_agent()
    agent.model.will(say("hello"))
    run = await done(world, await agent.start("hi", callback_url=receiver.url))
    assert (run.state, run.callback.attempts, run.callback.status_code) == (Run.STATE_COMPLETED, 1, 410)


async def test_what_was_not_taken_before_the_server_stopped_is_sent_by_the_next(
    make_world: MakeWorld, receiver: Receiver
) -> None:
    receiver.answers = [503]
    world = await make_world(settings=ALLOWED)
    agent = await world.make_agent()
    run_id = await agent.start("hi", callback_url=receiver.url)
    await receiver.next()
    await recorded(world, run_id, 1)
    await make_world.stop()
    clock = LaterClock()
    clock.ahead = timedelta(hours=1)
    await make_world(settings=ALLOWED, clock=clock)
    assert json.loads((await receiver.next()).body)["run_id"] == run_id


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/", "http://localhost/", "ftp://example.com/", "no address"])
async def test_addresses_that_may_not_be_called(make_world: MakeWorld, url: str) -> None:
    world = await make_world(settings={"BRIDLE_SECRET_KEY": "a key of this test"})
    agent = await world.make_agent()
    assert await invalid(agent.start("hi", callback_url=url)) == ["options.callback_url"]


@pytest.mark.parametrize("kind", ["postgres"], indirect=True)
async def test_a_server_that_cannot_sign_refuses(make_world: MakeWorld) -> None:
    world = await make_world()
    agent = await world.make_agent()
    await refused(
        agent.start("hi", callback_url="https://example.com/"),
        grpc.StatusCode.FAILED_PRECONDITION,
        "SECRET_KEY_MISSING",
    )
