"""The guards of the run store hold on SQLite and on Postgres."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, func, select, update

from common.db.engine import Database
from common.db.tables import conversations, messages, nodes, run_events, runs, signals
from common.errors import ConversationBusy, NotFound, RequestIdReused
from common.ids import Prefix, new_id
from services.agents import store as agents_store
from services.agents.model import Agent, AgentSpec
from services.messages.model import Body, InputMessage, NewMessage, Role, Text
from services.messages.store import context
from services.runs.model import (
    CancelSignal,
    OnBusy,
    RunOptions,
    RunOutcome,
    RunRequest,
    RunState,
    SteerSignal,
    StopReason,
)
from services.runs.protocol import AddMessage, Begin, Stop
from services.runs.store.checkpoint import AlreadyDone, Checkpoint, Fenced, SignalsWaiting, checkpoint, flush
from services.runs.store.claim import Claim, beat, cancel_and_claim, claim, release, release_orphans, runnable
from services.runs.store.create import Created, NewRun, create_run
from services.runs.store.queries import get_run, read_events
from services.runs.store.signals import add_signal, request_cancel, runs_with_news
from services.tools.catalog import Catalog

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
ORG = "org-1"
NO_TOOLS = Catalog(())
HELLO = InputMessage((Text("hello"),))


async def make_agent(db: Database) -> Agent:
    agent = Agent(
        id=new_id(Prefix.AGENT),
        organization_id=ORG,
        name="Ada",
        spec=AgentSpec(),
        tags=(),
        default_conversation_id=new_id(Prefix.CONVERSATION),
        version=1,
        created_at=NOW,
        updated_at=NOW,
    )
    await db.write(agents_store.insert, agent)
    return agent


def new_run(agent: Agent, *, policy: OnBusy = OnBusy.ENQUEUE, conversation: str = "", **fields: Any) -> NewRun:
    return NewRun(
        id=new_id(Prefix.RUN),
        organization_id=ORG,
        agent_id=agent.id,
        conversation_id=conversation,
        request=RunRequest((HELLO,), RunOptions(on_busy=policy)),
        **fields,
    )


async def add_run(db: Database, agent: Agent, *, later: int = 0, **fields: Any) -> str:
    created: Created = await db.write(create_run, new_run(agent, **fields), NOW + timedelta(seconds=later))
    return created.run.id


async def take(db: Database, run_id: str, node: str = "node-1", **how: Any) -> Claim | None:
    return await db.write(claim, run_id, node, NOW, NO_TOOLS, **how)


async def own(db: Database, agent: Agent, node: str = "node-1") -> Claim:
    taken = await take(db, await add_run(db, agent), node)
    assert taken is not None
    return taken


def step(owned: Claim, no: int = 0, *, state: RunState = RunState.RUNNING, consumed: int = 0) -> Checkpoint:
    """The `no`-th checkpoint of an owner: a message, and the end if it is one."""
    message = NewMessage(new_id(Prefix.MESSAGE), Role.USER, Body((Text(f"message {no}"),)))
    end = (Stop(StopReason.END_TURN),) if state.final else ()
    return Checkpoint(
        run=owned.run,
        epoch=owned.epoch,
        no=no,
        records=(Begin(), AddMessage(message), *end),
        live=(),
        first_seq=1 + 10 * no,
        reserved_seq=1000,
        state=state,
        stop_reason=StopReason.END_TURN if state.final else None,
        snapshot=owned.state,
        outcome=RunOutcome(),
        consumed_signal_no=consumed,
        keep_owner="node-1",
        approval_ttl=None,
        now=NOW,
    )


async def count(db: Database, table: Any) -> int:
    return int(await db.read(lambda conn: conn.execute(select(func.count()).select_from(table)).scalar_one()))


async def test_of_many_that_want_a_run_one_gets_it(db: Database) -> None:
    run_id = await add_run(db, await make_agent(db))
    claims = await asyncio.gather(*(take(db, run_id, f"node-{number}") for number in range(16)))
    assert len([each for each in claims if each is not None]) == 1


async def test_a_late_writer_is_refused_and_leaves_nothing(db: Database) -> None:
    agent = await make_agent(db)
    old = await own(db, agent)
    await db.write(release, old.run.id, old.epoch)
    new = await take(db, old.run.id, "node-2")
    assert new is not None
    assert new.epoch > old.epoch
    await db.write(checkpoint, step(new))
    with pytest.raises(Fenced):
        await db.write(checkpoint, step(old))
    with pytest.raises(Fenced):
        await db.write(flush, old.run.id, old.epoch, 0, await db.read(read_events, old.run.id, 0), 9, NOW)
    assert await count(db, messages) == 1
    assert await count(db, run_events) == 1
    # Nor has it used up a position of the log.
    await db.write(checkpoint, step(new, 1))
    assert [each.body.parts for each in await db.read(context, agent.default_conversation_id)] == [
        (Text("message 0"),),
        (Text("message 1"),),
    ]


async def test_a_checkpoint_that_was_done_but_reported_lost_is_done_once(db: Database) -> None:
    owned = await own(db, await make_agent(db))
    written = step(owned)
    await db.write(checkpoint, written)
    with pytest.raises(AlreadyDone):
        await db.write(checkpoint, written)
    assert await count(db, messages) == 1


async def test_a_run_may_not_end_while_something_was_said_to_it(db: Database) -> None:
    owned = await own(db, await make_agent(db))
    await db.write(add_signal, owned.run.id, SteerSignal((HELLO,)), NOW)
    with pytest.raises(SignalsWaiting):
        await db.write(checkpoint, step(owned, state=RunState.COMPLETED))
    await db.write(checkpoint, step(owned, consumed=0))
    await db.write(checkpoint, step(owned, 1, state=RunState.COMPLETED, consumed=1))
    assert (await db.read(get_run, ORG, owned.run.id)).state is RunState.COMPLETED


async def test_a_run_that_has_ended_hears_nothing_and_never_changes(db: Database) -> None:
    owned = await own(db, await make_agent(db))
    await db.write(checkpoint, step(owned, state=RunState.COMPLETED))
    assert await db.write(add_signal, owned.run.id, SteerSignal((HELLO,)), NOW) is None
    run, added = await db.write(request_cancel, ORG, owned.run.id, CancelSignal(NOW), NOW)
    assert (run.state, added) == (RunState.COMPLETED, None)
    with pytest.raises((Fenced, AlreadyDone)):
        await db.write(checkpoint, step(owned, 1, state=RunState.FAILED))
    assert await count(db, signals) == 0


async def test_an_end_and_a_cancel_that_meet_have_one_winner(db: Database) -> None:
    agent = await make_agent(db)
    for _ in range(20):
        owned = await own(db, agent)
        ended, cancelled = await asyncio.gather(
            db.write(checkpoint, step(owned, state=RunState.COMPLETED)),
            db.write(request_cancel, ORG, owned.run.id, CancelSignal(NOW), NOW),
            return_exceptions=True,
        )
        assert not isinstance(cancelled, BaseException)
        run, added = cancelled
        # Either the cancel came first, and the run must hear it, or it came too late and changed nothing.
        assert isinstance(ended, SignalsWaiting) == (added is not None)
        if added is not None:
            await db.write(checkpoint, step(owned, state=RunState.CANCELLED, consumed=added.no))
        final = (await db.read(get_run, ORG, run.id)).state
        assert final is (RunState.COMPLETED if added is None else RunState.CANCELLED)


async def test_two_cancels_are_one(db: Database) -> None:
    owned = await own(db, await make_agent(db))
    found = await asyncio.gather(
        *(db.write(request_cancel, ORG, owned.run.id, CancelSignal(NOW), NOW) for _ in range(8))
    )
    assert len([added for _, added in found if added is not None]) == 1
    assert await count(db, signals) == 1


async def test_runs_of_one_conversation_are_taken_in_order(db: Database) -> None:
    agent = await make_agent(db)
    first, second = await add_run(db, agent), await add_run(db, agent, later=1)
    assert await db.read(runnable, 10) == [first]
    assert await take(db, second) is None
    owned = await take(db, first)
    assert owned is not None
    assert await db.read(runnable, 10) == []
    await db.write(checkpoint, step(owned, state=RunState.COMPLETED))
    assert await db.read(runnable, 10) == [second]


async def test_a_queued_run_can_be_cancelled_out_of_turn_and_never_starts(db: Database) -> None:
    agent = await make_agent(db)
    await own(db, agent)
    second = await add_run(db, agent)
    await db.write(request_cancel, ORG, second, CancelSignal(NOW), NOW)
    taken = await take(db, second, signalled=True)
    assert taken is not None
    assert taken.run.state is RunState.QUEUED
    assert taken.run.started_at is None
    assert [each.no for each in taken.signals] == [1]


async def test_places_are_shared_fairly_between_agents(db: Database) -> None:
    flood, other = [await make_agent(db) for _ in range(2)]
    # Runs of one conversation wait for each other anyway: the flood comes in many conversations.
    crowd = [await make_agent(db) for _ in range(5)]
    await db.write(_give_to, [agent.default_conversation_id for agent in crowd], flood.id)
    theirs = [
        await add_run(db, flood, conversation=agent.default_conversation_id, later=number)
        for number, agent in enumerate(crowd)
    ]
    mine = await add_run(db, other, later=100)
    assert await db.read(runnable, 3) == [theirs[0], mine, theirs[1]]


def _give_to(conn: Connection, conversation_ids: list[str], agent_id: str) -> None:
    conn.execute(update(conversations).where(conversations.c.id.in_(conversation_ids)).values(agent_id=agent_id))


async def test_runs_of_a_node_that_died_are_queued_again_under_a_new_epoch(db: Database) -> None:
    agent = await make_agent(db)
    await db.write(beat, "node-1", "", NOW)
    owned = await own(db, agent)
    assert await db.write(release_orphans, NOW - timedelta(seconds=5)) == []
    assert await db.write(release_orphans, NOW + timedelta(seconds=5)) == [owned.run.id]
    assert await db.read(runnable, 10) == [owned.run.id]
    with pytest.raises(Fenced):
        await db.write(checkpoint, step(owned))
    assert await count(db, nodes) == 1


async def test_news_are_for_the_owner_or_for_whoever_is_free(db: Database) -> None:
    owned = await own(db, await make_agent(db))
    await db.write(request_cancel, ORG, owned.run.id, CancelSignal(NOW), NOW)
    assert await db.read(runs_with_news, "node-1") == [owned.run.id]
    assert await db.read(runs_with_news, "node-2") == []


async def test_of_many_that_reject_company_one_starts(db: Database) -> None:
    agent = await make_agent(db)
    made = await asyncio.gather(
        *(db.write(create_run, new_run(agent, policy=OnBusy.REJECT), NOW) for _ in range(12)), return_exceptions=True
    )
    assert len([each for each in made if isinstance(each, Created)]) == 1
    assert len([each for each in made if isinstance(each, ConversationBusy)]) == 11


async def test_an_interruption_takes_the_place_of_one_that_still_waits(db: Database) -> None:
    agent = await make_agent(db)
    current = await own(db, agent)
    waits = await add_run(db, agent)
    first = await db.write(create_run, new_run(agent, policy=OnBusy.INTERRUPT), NOW)
    second = await db.write(create_run, new_run(agent, policy=OnBusy.INTERRUPT), NOW)
    assert (first.wake, second.wake) == ((current.run.id,), (first.run.id,))
    for run_id in (current.run.id, first.run.id):
        assert (await db.read(get_run, ORG, run_id)).cancel_requested_at is not None
    for run_id in (waits, second.run.id):
        assert (await db.read(get_run, ORG, run_id)).cancel_requested_at is None
    replaced = await take(db, first.run.id, signalled=True)
    assert replaced is not None
    assert replaced.run.state is RunState.QUEUED, "it never starts"


async def test_a_cancel_takes_up_what_nobody_owns(db: Database) -> None:
    agent = await make_agent(db)
    owned, queued = await own(db, agent), await add_run(db, agent)

    async def cancel(run_id: str) -> Claim | None:
        _, taken = await db.write(cancel_and_claim, ORG, run_id, CancelSignal(NOW), "node-2", NOW, NO_TOOLS)
        return taken

    assert await cancel(owned.run.id) is None
    assert await db.read(runs_with_news, "node-1") == [owned.run.id]
    taken = await cancel(queued)
    assert taken is not None
    assert [each.signal for each in taken.signals] == [CancelSignal(NOW)]
    assert await cancel(queued) is None
    with pytest.raises(NotFound):
        await cancel(new_id(Prefix.RUN))


async def test_the_same_request_twice_is_one_run(db: Database) -> None:
    agent = await make_agent(db)
    twins = [new_run(agent, request_id="r1", fingerprint="same") for _ in range(8)]
    made = await asyncio.gather(*(db.write(create_run, each, NOW) for each in twins))
    assert len({each.run.id for each in made}) == 1
    assert await count(db, runs) == 1
    with pytest.raises(RequestIdReused):
        await db.write(create_run, new_run(agent, request_id="r1", fingerprint="other"), NOW)


async def test_runs_of_another_organization_are_not_there(db: Database) -> None:
    run_id = await add_run(db, await make_agent(db))
    with pytest.raises(NotFound):
        await db.read(get_run, "org-2", run_id)
    with pytest.raises(NotFound):
        await db.write(request_cancel, "org-2", run_id, CancelSignal(NOW), NOW)
