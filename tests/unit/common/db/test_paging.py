"""Page tokens and page sizes."""

import base64
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.db.paging import SortKey, decode_token, encode_token, list_scope, page_size
from common.errors import InvalidArgument

SCOPE = list_scope("ListAgents", "org-1", {"tag": "a"})
KEYS = st.lists(
    st.one_of(st.text(), st.integers(-(2**63), 2**63 - 1), st.datetimes(timezones=st.just(UTC))), min_size=1, max_size=3
).map(tuple)


@given(KEYS)
def test_a_key_survives_the_round_trip(key: SortKey) -> None:
    token = encode_token(SCOPE, key)
    assert decode_token(SCOPE, token) == key
    assert token.replace("-", "").replace("_", "").isalnum()


def test_no_token_is_the_first_page() -> None:
    assert decode_token(SCOPE, "") is None


@given(st.text(min_size=1) | st.binary(min_size=1).map(lambda raw: base64.urlsafe_b64encode(raw).decode()))
def test_garbage_is_refused(token: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        decode_token(SCOPE, token)
    assert [each.field for each in caught.value.fields] == ["page_token"]


@given(KEYS, st.data())
def test_a_changed_token_is_refused(key: SortKey, data: st.DataObject) -> None:
    raw = bytearray(base64.urlsafe_b64decode(encode_token(SCOPE, key) + "=="))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(InvalidArgument):
        decode_token(SCOPE, base64.urlsafe_b64encode(raw).decode().rstrip("="))


@pytest.mark.parametrize(
    "other",
    [
        list_scope("ListRuns", "org-1", {"tag": "a"}),
        list_scope("ListAgents", "org-2", {"tag": "a"}),
        list_scope("ListAgents", "org-1", {"tag": "b"}),
    ],
)
def test_a_token_serves_only_the_list_it_came_from(other: bytes) -> None:
    token = encode_token(SCOPE, (datetime(2026, 1, 1, tzinfo=UTC), "agent-1"))
    with pytest.raises(InvalidArgument, match="other arguments"):
        decode_token(other, token)


@pytest.mark.parametrize(("requested", "used"), [(0, 50), (1, 1), (1000, 1000), (1001, 1000), (2**31 - 1, 1000)])
def test_page_size(requested: int, used: int) -> None:
    assert page_size(requested) == used


def test_a_negative_page_size_is_refused() -> None:
    with pytest.raises(InvalidArgument) as caught:
        page_size(-1)
    assert [each.field for each in caught.value.fields] == ["page_size"]
