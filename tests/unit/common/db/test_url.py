"""Which database URLs are taken, and how."""

from pathlib import Path

import pytest

from common.db.url import DatabaseUrlError, parse, shown, sqlite_path, sqlite_url


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+asyncpg"])
def test_every_spelling_of_postgres_uses_our_driver(scheme: str) -> None:
    assert parse(f"{scheme}://u:p@host:5433/name").drivername == "postgresql+asyncpg"


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///data/b.db", Path("data/b.db")),
        ("sqlite:////var/b.db", Path("/var/b.db")),
        ("sqlite://", None),
        ("sqlite:///:memory:", None),
    ],
)
def test_the_file_of_a_sqlite_url(url: str, path: Path | None) -> None:
    assert sqlite_path(parse(url)) == path


@pytest.mark.parametrize("name", ["a b.db", "100%.db", "what?.db", "no#1.db", "ü.db"])
def test_any_path_survives_as_a_url(name: str) -> None:
    assert sqlite_path(parse(sqlite_url(Path("/data") / name))) == Path("/data") / name


@pytest.mark.parametrize("url", ["", "bridle.db", "mysql://u:hunter2@host/x", "postgresql+psycopg2://u:hunter2@host/x"])
def test_anything_else_is_refused_in_one_line_without_the_password(url: str) -> None:
    with pytest.raises(DatabaseUrlError) as caught:
        parse(url)
    assert "\n" not in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_the_usual_name_of_the_tls_option_is_taken() -> None:
    assert parse("postgresql://h/n?sslmode=require").query == {"ssl": "require"}


def test_an_unknown_option_is_named() -> None:
    with pytest.raises(DatabaseUrlError, match="unknown option: poolsize"):
        parse("postgresql://h/n?poolsize=3&host=x")


def test_people_see_neither_password_nor_options() -> None:
    assert shown(parse("postgresql://u:hunter2@h/n?sslmode=require")) == "postgresql+asyncpg://u:***@h/n"
