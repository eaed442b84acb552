"""The `bridle` command without a server: help, usage errors, start-up errors, migrations."""

from pathlib import Path

import pytest

from common.settings import Settings
from services.cli import main


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of one command."""
    with pytest.raises(SystemExit) as ended:
        main(argv)
    captured = capsys.readouterr()
    code = ended.value.code
    assert isinstance(code, int)
    return code, captured.out, captured.err


@pytest.mark.parametrize("command", ["serve", "migrate", "version", "chat"])
def test_help_of_every_command(capsys: pytest.CaptureFixture[str], command: str) -> None:
    code, out, _ = run(capsys, command, "--help")
    assert code == 0
    assert f"Usage: bridle {command}" in out
    assert "\x1b" not in out


@pytest.mark.parametrize("command", ["serve", "migrate", "chat"])
def test_help_shows_examples(capsys: pytest.CaptureFixture[str], command: str) -> None:
    _, out, _ = run(capsys, command, "--help")
    assert f"    bridle {command}" in out


def test_help_of_serve_names_the_variables_and_their_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "serve", "--help")
    for name in ("grpc_address", "http_address", "data_dir", "database_url", "roles", "log_level"):
        assert f"--{name.replace('_', '-')}" in out
        assert Settings.spec(name).env in out
    assert "127.0.0.1:50051" in out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "version")
    assert code == 0
    assert out.startswith("bridle ")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["cook"], "No such command"),
        (["serve", "--port", "1"], "No such option"),
        (["serve", "--grpc-address", "nowhere"], "'--grpc-address': expected host:port"),
        (["serve", "--roles", "cooks"], "'--roles': expected some of"),
        (["chat", "--agent", "agent-1", "--model", "demo/echo"], "are for a new agent"),
        (["chat", "  "], "there is nothing in it"),
    ],
)
def test_wrong_usage_exits_with_2(capsys: pytest.CaptureFixture[str], argv: list[str], said: str) -> None:
    code, _, err = run(capsys, *argv)
    assert code == 2
    assert said in err


def test_a_flag_never_shows_a_password(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "migrate", "--database-url", "mysql://u:hunter2@h/d")
    assert code == 2
    assert "hunter2" not in out + err


def test_an_unknown_setting_is_one_line_and_exit_code_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRIDLE_GRPC_ADRESS", "x")
    assert run(capsys, "serve") == (
        1,
        "",
        "bridle: BRIDLE_GRPC_ADRESS is not a setting; did you mean BRIDLE_GRPC_ADDRESS?\n",
    )


def test_migrate_makes_the_schema_and_check_compares_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = str(tmp_path / "data")

    code, _, err = run(capsys, "migrate", "--check", "--data-dir", folder)
    assert code == 1
    assert "run `bridle migrate`" in err

    code, out, _ = run(capsys, "migrate", "--data-dir", folder)
    assert code == 0
    assert "current" in out

    assert run(capsys, "migrate", "--check", "--data-dir", folder)[0] == 0


def test_a_flag_wins_over_its_variable(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BRIDLE_DATA_DIR", str(tmp_path / "variable"))
    run(capsys, "migrate", "--data-dir", str(tmp_path / "flag"))
    assert (tmp_path / "flag" / "bridle.db").exists()
    assert not (tmp_path / "variable").exists()


def test_a_data_folder_that_is_a_file_is_one_line_and_exit_code_1(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "data").write_text("in the way")
    code, out, err = run(capsys, "migrate", "--data-dir", str(tmp_path / "data"))
    assert (code, out) == (1, "")
    assert err.startswith("bridle: ")
    assert err.count("\n") == 1


def test_the_secret_of_callbacks_is_that_of_the_data_folder(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BRIDLE_DATA_DIR", str(tmp_path))
    code, first, _ = run(capsys, "callback-secret")
    assert code == 0
    assert first.startswith("whsec_")
    assert run(capsys, "callback-secret")[1] == first
    monkeypatch.setenv("BRIDLE_SECRET_KEY", "another")
    assert run(capsys, "callback-secret")[1] != first


def test_without_a_key_there_is_no_secret_of_callbacks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRIDLE_DATABASE_URL", "postgresql://db/bridle")
    code, _, said = run(capsys, "callback-secret")
    assert code == 1
    assert "BRIDLE_SECRET_KEY" in said
