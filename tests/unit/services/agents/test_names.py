"""Names that are made up are good names."""

from common.ids import Prefix, new_id
from services.agents.names import made_up_name


def test_a_name_follows_from_the_id_and_varies_with_it() -> None:
    ids = [new_id(Prefix.AGENT) for _ in range(200)]
    names = {made_up_name(each) for each in ids}
    assert names == {made_up_name(each) for each in ids}
    assert len(names) > 100
    assert all(name.replace("-", "", 1).isalpha() and name.islower() for name in names)
