"""common/seal.py: what is sealed opens with the same key, in the same place, and nowhere else."""

import stat
from pathlib import Path

import pytest

from common.errors import SecretKeyMissing, SecretKeyWrong
from common.seal import KeySeal, seal_for
from common.startup import StartupError


def test_what_is_sealed_opens_and_is_not_readable() -> None:
    seal = KeySeal("a key")
    sealed = seal.seal("swordfish", "agent-1/PASSWORD")
    assert b"swordfish" not in sealed
    assert seal.open(sealed, "agent-1/PASSWORD") == "swordfish"
    assert seal.seal("swordfish", "agent-1/PASSWORD") != sealed


@pytest.mark.parametrize("sealed", [b"", b"\x01short", b"\x01" + bytes(64)])
def test_what_was_never_sealed_does_not_open(sealed: bytes) -> None:
    with pytest.raises(SecretKeyWrong):
        KeySeal("a key").open(sealed, "agent-1/PASSWORD")


def test_another_key_or_another_place_does_not_open() -> None:
    sealed = KeySeal("a key").seal("swordfish", "agent-1/PASSWORD")
    with pytest.raises(SecretKeyWrong, match="agent-1/PASSWORD"):
        KeySeal("another").open(sealed, "agent-1/PASSWORD")
    with pytest.raises(SecretKeyWrong):
        KeySeal("a key").open(sealed, "agent-2/PASSWORD")


def test_the_kept_key_is_private_and_stays_the_same(tmp_path: Path) -> None:
    sealed = seal_for("", tmp_path / "data").seal("swordfish", "x")
    assert seal_for("", tmp_path / "data").open(sealed, "x") == "swordfish"
    assert stat.S_IMODE((tmp_path / "data" / "secret.key").stat().st_mode) == 0o600


def test_a_key_that_is_set_is_used_and_nothing_is_kept(tmp_path: Path) -> None:
    assert KeySeal("set").open(seal_for("set", tmp_path).seal("swordfish", "x"), "x") == "swordfish"
    assert not list(tmp_path.iterdir())


def test_without_a_key_nothing_is_sealed_or_opened() -> None:
    with pytest.raises(SecretKeyMissing, match="BRIDLE_SECRET_KEY"):
        seal_for("", None).seal("swordfish", "x")
    with pytest.raises(SecretKeyMissing):
        seal_for("", None).open(b"", "x")
    with pytest.raises(SecretKeyMissing):
        seal_for("", None).derive("x")


def test_a_derived_key_is_the_same_for_the_same_purpose_only() -> None:
    seal = KeySeal("a key")
    assert seal.derive("callbacks") == KeySeal("a key").derive("callbacks") != seal.derive("other")
    assert seal.derive("callbacks") != KeySeal("another").derive("callbacks")


def test_an_emptied_key_file_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "secret.key").touch()
    with pytest.raises(StartupError, match=r"secret\.key is empty"):
        seal_for("", tmp_path)
