"""Secrets of an agent: stored sealed, listed by key, never returned."""

import logging

import grpc
import grpc.aio
import pytest
from sqlalchemy import Connection, Table, select

from common.db.tables import agent_secrets, agents
from common.errors import SecretKeyMissing, SecretKeyWrong
from common.pb.bridle.v1 import agent_service_pb2 as api
from common.seal import KeySeal, NoSeal
from services.agents import secrets
from tests.rpc.agents.rig import Agent, Rig

SEAL = KeySeal("test")
VALUE = "hunter2-hunter2"


def all_rows(conn: Connection, table: Table) -> list[tuple[object, ...]]:
    return [tuple(row) for row in conn.execute(select(table))]


async def stored(rig: Rig, agent_id: str) -> dict[str, str]:
    return await rig.db.read(secrets.load, SEAL, agent_id)


async def test_only_the_keys_come_back(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    made = await rig.create(secrets={"TOKEN": VALUE, "A": "ü"}, secret_keys=["MADE_UP"])
    assert list(made.secret_keys) == ["A", "TOKEN"]
    for agent in (made, await rig.get(made.id)):
        assert VALUE not in str(agent)
        assert not agent.secrets
    assert await stored(rig, made.id) == {"TOKEN": VALUE, "A": "ü"}
    assert VALUE not in caplog.text


async def test_the_database_holds_no_value(rig: Rig) -> None:
    made = await rig.create(secrets={"TOKEN": VALUE})
    rows = [row for table in (agent_secrets, agents) for row in await rig.db.read(all_rows, table)]
    assert VALUE not in repr(rows)
    assert VALUE.encode() not in b"".join(value for row in rows for value in row if isinstance(value, bytes))
    with pytest.raises(SecretKeyWrong):
        await rig.db.read(secrets.load, KeySeal("another"), made.id)
    with pytest.raises(SecretKeyMissing):
        await rig.db.read(secrets.load, NoSeal(), made.id)


async def test_an_update_replaces_all_or_leaves_all(rig: Rig) -> None:
    made = await rig.create(secrets={"A": "1", "B": "2"})
    renamed = await rig.update(Agent(id=made.id, name="Other"))
    assert list(renamed.secret_keys) == ["A", "B"]
    everything = await rig.update(Agent(id=made.id, name="Star"), "*")
    assert list(everything.secret_keys) == ["A", "B"]
    assert await stored(rig, made.id) == {"A": "1", "B": "2"}

    changed = await rig.update(Agent(id=made.id, secrets={"B": "3", "C": "4"}))
    assert (changed.name, list(changed.secret_keys)) == ("Star", ["B", "C"])
    assert changed.etag != everything.etag
    assert await stored(rig, made.id) == {"B": "3", "C": "4"}

    same_keys = await rig.update(Agent(id=made.id, secrets={"B": "5", "C": "4"}), "secrets")
    assert same_keys.etag != changed.etag
    assert await stored(rig, made.id) == {"B": "5", "C": "4"}

    emptied = await rig.update(Agent(id=made.id), "secrets")
    assert not emptied.secret_keys
    assert await stored(rig, made.id) == {}


async def test_what_is_wrong_with_one_is_said_without_its_value(rig: Rig) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await rig.create(secrets={"BAD-KEY": VALUE})
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    details = raised.value.details() or ""
    assert "agent.secrets[BAD-KEY]" in details
    assert VALUE not in details


async def test_a_secret_opens_only_in_its_place(rig: Rig) -> None:
    one, other = await rig.create(secrets={"A": "1"}), await rig.create(secrets={"A": "2"})
    sealed = select(agent_secrets.c.sealed).where(agent_secrets.c.agent_id == one.id).scalar_subquery()
    copied = agent_secrets.update().where(agent_secrets.c.agent_id == other.id).values(sealed=sealed)
    await rig.db.write(lambda conn: conn.execute(copied).rowcount)
    with pytest.raises(SecretKeyWrong):
        await stored(rig, other.id)


async def test_they_go_with_the_agent(rig: Rig) -> None:
    made = await rig.create(secrets={"A": "1"})
    await rig.stub.DeleteAgent(api.DeleteAgentRequest(agent_id=made.id))
    assert await stored(rig, made.id) == {}
