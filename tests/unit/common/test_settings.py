"""Settings: defaults, values, and one clear line for everything that is wrong."""

from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.settings import Settings, SettingsError
from common.startup import StartupError
from scripts import config_table


def test_defaults_need_no_environment() -> None:
    settings = Settings.from_env({"PATH": "/bin"})

    assert settings == Settings()
    assert settings.grpc_address == "127.0.0.1:50051"
    assert settings.http_address == "127.0.0.1:8283"
    assert settings.data_dir == Path("bridle-data")
    assert settings.roles == ("agents", "messages", "runs", "gateway")
    assert settings.default_model == "demo/echo"
    assert settings.max_message_bytes == 8 * 1024 * 1024
    assert settings.event_retention == settings.approval_ttl == timedelta(days=7)
    assert settings.kafka == ()


@pytest.mark.parametrize(
    ("variable", "text", "field", "value"),
    [
        ("BRIDLE_GRPC_ADDRESS", "localhost:0", "grpc_address", "localhost:0"),
        ("BRIDLE_HTTP_ADDRESS", "[::1]:80", "http_address", "[::1]:80"),
        ("BRIDLE_DATA_DIR", "/var/lib/bridle", "data_dir", Path("/var/lib/bridle")),
        ("BRIDLE_DATA_DIR", "~/bridle", "data_dir", Path.home() / "bridle"),
        ("BRIDLE_DATABASE_URL", "postgresql://u:p@h/d", "database_url", "postgresql://u:p@h/d"),
        ("BRIDLE_KAFKA", "a:9092, b:9092", "kafka", ("a:9092", "b:9092")),
        ("BRIDLE_ROLES", "runs,agents", "roles", ("agents", "runs")),
        ("BRIDLE_LOG_LEVEL", "DEBUG", "log_level", "debug"),
        ("BRIDLE_LOG_FORMAT", "json", "log_format", "json"),
        ("BRIDLE_DEFAULT_MODEL", "openai/gpt-5", "default_model", "openai/gpt-5"),
        ("BRIDLE_MAX_RUNS", " 7 ", "max_runs", 7),
        ("BRIDLE_MAX_MESSAGE_BYTES", "100000", "max_message_bytes", 100_000),
        ("BRIDLE_MAX_MESSAGE_BYTES", "16MiB", "max_message_bytes", 16 * 1024 * 1024),
        ("BRIDLE_DRAIN_SECONDS", "0.5", "drain_seconds", 0.5),
        ("BRIDLE_EVENT_RETENTION", "90s", "event_retention", timedelta(seconds=90)),
        ("BRIDLE_EVENT_RETENTION", "12h", "event_retention", timedelta(hours=12)),
        ("BRIDLE_EVENT_RETENTION", "250ms", "event_retention", timedelta(milliseconds=250)),
        ("BRIDLE_APPROVAL_TTL", "0", "approval_ttl", None),
        ("BRIDLE_APPROVAL_TTL", "", "approval_ttl", timedelta(days=7)),
        ("BRIDLE_SQLITE_SYNCHRONOUS", "full", "sqlite_synchronous", "full"),
        ("BRIDLE_INSECURE_BIND", "yes", "insecure_bind", True),
    ],
)
def test_reads_a_value(variable: str, text: str, field: str, value: object) -> None:
    assert getattr(Settings.from_env({variable: text}), field) == value


@pytest.mark.parametrize(
    ("variable", "text", "expected"),
    [
        ("BRIDLE_GRPC_ADDRESS", "50051", "host:port"),
        ("BRIDLE_GRPC_ADDRESS", "localhost:70000", "host:port"),
        ("BRIDLE_GRPC_ADDRESS", "http://localhost:1", "host:port"),
        ("BRIDLE_DATA_DIR", "~nobody-of-that-name/x", "home folder"),
        ("BRIDLE_KAFKA", "broker", "host:port"),
        ("BRIDLE_ROLES", "runs,cooks", "some of agents,messages,runs,gateway"),
        ("BRIDLE_ROLES", ",", "some of agents"),
        ("BRIDLE_LOG_LEVEL", "loud", "one of debug, info"),
        ("BRIDLE_DEFAULT_MODEL", "gpt", "provider/name"),
        ("BRIDLE_MAX_RUNS", "0", "whole number from 1"),
        ("BRIDLE_MAX_RUNS", "1.5", "whole number"),
        ("BRIDLE_MAX_MESSAGE_BYTES", "12", "size from"),
        ("BRIDLE_MAX_MESSAGE_BYTES", "8 GiB", "8MiB"),
        ("BRIDLE_DRAIN_SECONDS", "nan", "number from 0"),
        ("BRIDLE_DRAIN_SECONDS", "-1", "number from 0"),
        ("BRIDLE_EVENT_RETENTION", "a week", "like 90s, 12h or 7d"),
        ("BRIDLE_EVENT_RETENTION", "9999999d", "like 90s, 12h or 7d"),
        ("BRIDLE_INSECURE_BIND", "maybe", "true or false"),
    ],
)
def test_a_bad_value_names_variable_value_and_what_is_expected(variable: str, text: str, expected: str) -> None:
    with pytest.raises(SettingsError) as caught:
        Settings.from_env({variable: text})

    message = str(caught.value)
    assert variable in message
    assert repr(text) in message
    assert expected in message
    assert "\n" not in message


def test_an_unknown_variable_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(SettingsError, match=r"BRIDLE_GRPC_ADRESS is not a setting; did you mean BRIDLE_GRPC_ADDRESS\?"):
        Settings.from_env({"BRIDLE_GRPC_ADRESS": "x"})


def test_an_unknown_variable_like_no_other_gets_no_guess() -> None:
    with pytest.raises(SettingsError, match=r"BRIDLE_ZZZZZZ is not a setting$"):
        Settings.from_env({"BRIDLE_ZZZZZZ": "x"})


def test_service_links_of_kubernetes_are_not_settings() -> None:
    links = {
        "BRIDLE_PORT": "tcp://10.0.0.7:50051",
        "BRIDLE_SERVICE_HOST": "10.0.0.7",
        "BRIDLE_SERVICE_PORT": "50051",
        "BRIDLE_RUNS_SERVICE_PORT_GRPC": "50051",
        "BRIDLE_RUNS_PORT_50051_TCP_ADDR": "10.0.0.7",
    }
    assert Settings.from_env(links) == Settings()


@pytest.mark.parametrize("variable", ["BRIDLE_GRPC_ADDRESS", "BRIDLE_HTTP_ADDRESS"])
@pytest.mark.parametrize("address", ["0.0.0.0:1", "[::]:1", "10.1.2.3:1", "example.test:1"])
def test_an_open_bind_without_credentials_is_refused(variable: str, address: str) -> None:
    with pytest.raises(SettingsError, match=f"{variable}.*BRIDLE_INSECURE_BIND=true"):
        Settings.from_env({variable: address})

    allowed = Settings.from_env({variable: address, "BRIDLE_INSECURE_BIND": "true"})
    assert address in (allowed.grpc_address, allowed.http_address)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.1.2.3:1", "localhost:1", "[::1]:1"])
def test_loopback_needs_no_credentials(address: str) -> None:
    assert Settings.from_env({"BRIDLE_GRPC_ADDRESS": address}).grpc_address == address


def test_secrets_are_shown_nowhere() -> None:
    settings = Settings.from_env({"BRIDLE_DATABASE_URL": "postgresql://u:hunter2@h/d"})
    assert "hunter2" not in repr(settings)
    assert "database_url=***" in repr(settings)
    assert "grpc_address='127.0.0.1:50051'" in repr(settings)

    with pytest.raises(SettingsError) as caught:
        Settings.from_env({"BRIDLE_DATABASE_URL": "mysql://u:hunter2@h/d"})
    assert "hunter2" not in str(caught.value)
    assert "BRIDLE_DATABASE_URL" in str(caught.value)


def test_the_database_is_a_file_in_the_data_folder_unless_named() -> None:
    assert Settings.from_env({"BRIDLE_DATA_DIR": "/d a/x?"}).database == "sqlite:////d a/x%3F/bridle.db"
    assert Settings.from_env({"BRIDLE_DATABASE_URL": "sqlite:///f.db"}).database == "sqlite:///f.db"


def test_keys_are_kept_beside_the_data_unless_others_share_it() -> None:
    assert Settings.from_env({"BRIDLE_DATA_DIR": "/d"}).key_folder == Path("/d")
    assert Settings.from_env({"BRIDLE_DATABASE_URL": "sqlite:////x%20y/f.db"}).key_folder == Path("/x y")
    assert Settings.from_env({"BRIDLE_DATABASE_URL": "postgresql://db/bridle"}).key_folder is None


def test_settings_errors_are_startup_errors() -> None:
    assert issubclass(SettingsError, StartupError)


@given(st.dictionaries(st.sampled_from([spec.env for _, spec in Settings.specs()]), st.text(max_size=20)))
def test_any_text_is_a_value_or_a_settings_error(environ: dict[str, str]) -> None:
    try:
        outcome = repr(Settings.from_env(environ))
    except SettingsError as error:
        outcome = next(name for name in environ if str(error).startswith(name))
    assert outcome


def test_the_readme_has_the_current_table() -> None:
    readme = config_table.README.read_text(encoding="utf-8")
    assert config_table.updated(readme) == readme, "run scripts/config_table.py"


def test_the_table_names_every_setting() -> None:
    assert all(f"`{spec.env}`" in config_table.table() for _, spec in Settings.specs())


def test_a_readme_without_its_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="mark"):
        config_table.updated("# Bridle\n")
