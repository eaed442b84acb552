"""common/ids.py"""

import random

import pytest

from common.errors import InvalidArgument
from common.ids import DEFAULT_ORGANIZATION, Prefix, derive_id, is_id, new_id, require_id, seeded_ids

GOOD = "7f2c0d1e-3b4a-4c5d-8e9f-0a1b2c3d4e5f"
NOT_V4 = "7f2c0d1e-3b4a-1c5d-8e9f-0a1b2c3d4e5f"


@pytest.mark.parametrize("prefix", list(Prefix))
def test_new_ids_are_ids_of_their_kind_only(prefix: Prefix) -> None:
    made = new_id(prefix)
    assert is_id(prefix, made)
    assert made != new_id(prefix)
    assert not any(is_id(other, made) for other in Prefix if other is not prefix)


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        f"run-{GOOD}",
        f"agent-{GOOD.upper()}",
        f"agent-{NOT_V4}",
        f"agent-{GOOD}\n",
        f" agent-{GOOD}",
        f"agent-{GOOD}0",
        "agent-",
        "agent",
        "agent-1'; DROP TABLE agents",
    ],
)
def test_malformed_ids_are_refused_and_the_field_is_named(text: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        require_id("agent_id", Prefix.AGENT, text)
    assert [each.field for each in caught.value.fields] == ["agent_id"]


def test_a_missing_id_is_required() -> None:
    with pytest.raises(InvalidArgument, match="agent_id is required"):
        require_id("agent_id", Prefix.AGENT, "")


def test_a_good_id_is_returned() -> None:
    assert require_id("agent_id", Prefix.AGENT, f"agent-{GOOD}") == f"agent-{GOOD}"


def test_message_ids_need_not_be_version_4() -> None:
    assert is_id(Prefix.MESSAGE, f"message-{NOT_V4}")


def test_the_default_organization_is_an_id() -> None:
    assert is_id(Prefix.ORGANIZATION, DEFAULT_ORGANIZATION)


def test_seeded_ids_repeat() -> None:
    first, second = seeded_ids(random.Random(7)), seeded_ids(random.Random(7))
    made = [first(Prefix.RUN) for _ in range(50)]
    assert made == [second(Prefix.RUN) for _ in range(50)]
    assert len(set(made)) == 50
    assert all(is_id(Prefix.RUN, each) for each in made)


def test_derived_ids_depend_on_every_part_and_nothing_else() -> None:
    made = derive_id(Prefix.STEP, "run-1", 2)
    assert made == derive_id(Prefix.STEP, "run-1", 2)
    assert is_id(Prefix.STEP, made)
    assert (
        len({made, derive_id(Prefix.STEP, "run-1", 3), derive_id(Prefix.STEP, "run-12"), derive_id(Prefix.STEP)}) == 4
    )
