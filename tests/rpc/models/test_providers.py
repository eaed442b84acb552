"""Providers of an organization: configured, changed, listed, removed; keys go in and never come out."""

from typing import Any

import grpc
import pytest
from sqlalchemy import select

from common.db.tables import providers
from common.ids import DEFAULT_ORGANIZATION
from services.models.errors import ModelError, ModelErrorType
from tests.helpers.fakellm import FakeLlm
from tests.helpers.providers import ask, collect
from tests.rpc.agents.rig import OTHER
from tests.rpc.models.rig import Provider, Rig, refused

KEY = "sk-very-secret-1"
CHAT = Provider.API_OPENAI_CHAT


async def call(rig: Rig, handle: str, org: str = DEFAULT_ORGANIZATION) -> ModelError | None:
    provider, name = await rig.models.resolve(org, handle)
    _, error = await collect(provider, ask(model=name))
    return error


async def test_a_key_is_kept_and_never_shown(rig: Rig, fake: FakeLlm) -> None:
    made = await rig.put(name="mine", api=CHAT, base_url=fake.openai_base_url, api_key=KEY)
    assert (made.name, made.api, made.base_url, made.has_api_key, made.api_key) == (
        "mine",
        CHAT,
        fake.openai_base_url,
        True,
        "",
    )
    assert made.create_time == made.update_time
    [listed] = (await rig.providers()).providers
    assert listed == made
    rows = await rig.db.read(lambda conn: conn.execute(select(providers)).all())
    assert KEY not in repr(rows)
    assert await call(rig, "mine/any-model") is None
    assert fake.requests[-1].headers["authorization"] == f"Bearer {KEY}"


async def test_a_change_counts_for_the_next_call_and_keeps_the_key(rig: Rig, fake: FakeLlm) -> None:
    made = await rig.put(name="mine", api=CHAT, base_url=fake.openai_base_url, api_key=KEY)
    provider, _ = await rig.models.resolve(DEFAULT_ORGANIZATION, "mine/x")
    again, _ = await rig.models.resolve(DEFAULT_ORGANIZATION, "mine/x")
    assert again is provider, "a client is made once, not for each call"
    changed = await rig.put(name="mine", api=Provider.API_OPENAI_RESPONSES, base_url=fake.openai_base_url)
    assert changed.has_api_key
    assert changed.create_time == made.create_time
    assert await call(rig, "mine/x") is None
    assert fake.requests[-1].path == "/v1/responses"
    assert fake.requests[-1].headers["authorization"] == f"Bearer {KEY}"
    await rig.put(name="mine", api=Provider.API_ANTHROPIC, base_url=fake.anthropic_base_url, api_key="another-key")
    assert await call(rig, "mine/x") is None
    assert fake.requests[-1].path == "/v1/messages"
    assert "another-key" in fake.requests[-1].headers.values() or "Bearer another-key" in (
        fake.requests[-1].headers.values()
    )


async def test_without_a_provider_agents_cannot_be_let_in(rig: Rig, fake: FakeLlm) -> None:
    await rig.put(name="mine", api=CHAT, base_url=fake.openai_base_url)
    assert await rig.models.knows(DEFAULT_ORGANIZATION, "mine/x")
    await rig.delete("mine")
    assert not await rig.models.knows(DEFAULT_ORGANIZATION, "mine/x")
    with pytest.raises(ModelError, match="No model provider 'mine' is configured") as raised:
        await rig.models.resolve(DEFAULT_ORGANIZATION, "mine/x")
    assert raised.value.kind is ModelErrorType.AUTHENTICATION
    assert await refused(rig.delete("mine")) == (grpc.StatusCode.NOT_FOUND, "provider 'mine' was not found.")


async def test_an_organization_s_own_wins(rig: Rig, fake: FakeLlm) -> None:
    assert await call(rig, "openai/x") is None
    assert fake.requests[-1].headers["authorization"] == "Bearer none"
    await rig.put(name="openai", api=CHAT, base_url=fake.openai_base_url, api_key=KEY)
    assert await call(rig, "openai/x") is None
    assert fake.requests[-1].headers["authorization"] == f"Bearer {KEY}"
    assert await call(rig, "openai/x", OTHER) is None
    assert fake.requests[-1].headers["authorization"] == "Bearer none", "another organization's is not affected"
    await rig.delete("openai")
    assert await call(rig, "openai/x") is None
    assert fake.requests[-1].headers["authorization"] == "Bearer none", "the server's own is there again"


async def test_organizations_see_only_their_own(rig: Rig, fake: FakeLlm) -> None:
    await rig.put(name="mine", api=CHAT, base_url=fake.openai_base_url)
    assert not (await rig.providers(OTHER)).providers
    assert not await rig.models.knows(OTHER, "mine/x")
    assert not [handle for handle in await rig.handles(OTHER) if handle.startswith("mine/")]
    code, _ = await refused(rig.delete("mine", OTHER))
    assert code is grpc.StatusCode.NOT_FOUND
    assert (await rig.providers()).providers


async def test_pages(rig: Rig, fake: FakeLlm) -> None:
    for name in ("b", "a", "c"):
        await rig.put(name=name, api=CHAT, base_url=fake.openai_base_url)
    first = await rig.providers(page_size=2)
    assert [each.name for each in first.providers] == ["a", "b"]
    rest = await rig.providers(page_size=2, page_token=first.next_page_token)
    assert [each.name for each in rest.providers] == ["c"]
    assert not rest.next_page_token
    code, _ = await refused(rig.providers(page_size=-1))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    code, _ = await refused(rig.providers(OTHER, page_token=first.next_page_token))
    assert code is grpc.StatusCode.INVALID_ARGUMENT


GOOD: dict[str, Any] = {"name": "mine", "api": CHAT, "base_url": "http://127.0.0.1:1/v1"}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"name": ""}, "provider.name"),
        ({"name": "My"}, "provider.name"),
        ({"name": "a/b"}, "provider.name"),
        ({"name": "a" * 33}, "provider.name"),
        ({"name": "demo"}, "provider.name"),
        ({"api": 0}, "provider.api"),
        ({"api": 99}, "provider.api"),
        ({"base_url": "ftp://host"}, "provider.base_url"),
        ({"base_url": "host:80"}, "provider.base_url"),
        ({"base_url": "http://"}, "provider.base_url"),
        ({"base_url": "http://host:99999"}, "provider.base_url"),
        ({"base_url": "http://me:secret@host"}, "provider.base_url"),
        ({"base_url": "http://host/v1?key=1"}, "provider.base_url"),
        ({"base_url": "http://ho st"}, "provider.base_url"),
        ({"base_url": "http://host/" + "a" * 2_000}, "provider.base_url"),
        ({"base_url": ""}, "provider.api_key"),
        ({"api_key": "a\nb"}, "provider.api_key"),
        ({"api_key": "a" * 8_001}, "provider.api_key"),
    ],
)
async def test_what_is_wrong_is_named_and_changes_nothing(rig: Rig, change: dict[str, Any], field: str) -> None:
    code, details = await refused(rig.put(**{**GOOD, **change}))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert f"{field} " in details
    assert not (await rig.providers()).providers


async def test_a_bad_name_cannot_be_deleted(rig: Rig) -> None:
    for name in ("", "My"):
        code, details = await refused(rig.delete(name))
        assert (code, "name " in details) == (grpc.StatusCode.INVALID_ARGUMENT, True)
