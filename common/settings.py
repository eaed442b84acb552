"""Settings: one frozen value, read once from BRIDLE_ variables. The table in the README is made from this file."""
# ruff: noqa: RUF009 - every default below is made by dataclasses.field, through `_setting`

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from common import setting_parsers as parse
from common.startup import StartupError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import timedelta
    from pathlib import Path

PREFIX: Final = "BRIDLE_"
ROLES: Final = ("agents", "messages", "runs", "gateway")

_SPEC: Final = "setting"
_MASK: Final = "***"

# Kubernetes puts the addresses of a Service named `bridle` or `bridle-runs` into every pod as BRIDLE_PORT,
# BRIDLE_RUNS_SERVICE_HOST and so on. They are not meant for us and must not stop a pod from starting.
_SERVICE_LINK: Final = re.compile(
    r"BRIDLE(_[A-Z0-9_]+)?_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)


class SettingsError(StartupError):
    """A setting that does not exist, or that has a value it cannot have."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What is known of one setting besides its value."""

    env: str
    default: str
    doc: str
    parse: Callable[[str], Any]
    secret: bool = False

    def read(self, text: str) -> Any:
        """The value that `text` stands for; blank is the default."""
        try:
            return self.parse(text.strip() or self.default)
        except ValueError as error:
            shown = _MASK if self.secret else text
            raise SettingsError(f"{self.env}={shown!r}: {error}") from None


def _setting(env: str, default: str, parse: Callable[[str], Any], doc: str, *, secret: bool = False) -> Any:
    spec = Setting(env=PREFIX + env, default=default, doc=doc, parse=parse, secret=secret)
    return field(default=parse(default), metadata={_SPEC: spec})


_count = partial(parse.integer, least=1, most=1_000_000)
_seconds = partial(parse.number, least=0, most=86_400)


@dataclass(frozen=True, kw_only=True, repr=False)
class Settings:
    """How this process is to run."""

    grpc_address: str = _setting("GRPC_ADDRESS", "127.0.0.1:50051", parse.address, "Where gRPC listens, `host:port`.")
    http_address: str = _setting(
        "HTTP_ADDRESS", "127.0.0.1:8283", parse.address, "Where HTTP listens: the API, `/metrics` and `/healthz`."
    )
    data_dir: Path = _setting(
        "DATA_DIR", "./bridle-data", parse.path, "Folder of the embedded database; made if it is not there."
    )
    database_url: str = _setting(
        "DATABASE_URL",
        "",
        parse.database_url,
        "`postgresql://user:password@host/name` or `sqlite:///file`; empty: SQLite in the data folder.",
        secret=True,
    )
    kafka: tuple[str, ...] = _setting(
        "KAFKA", "", parse.addresses, "Kafka brokers, `host:port,host:port`; empty: none, for a single node."
    )
    roles: tuple[str, ...] = _setting(
        "ROLES", ",".join(ROLES), partial(parse.subset, of=ROLES), "What this process hosts, separated by commas."
    )
    grpc_target: str = _setting(
        "GRPC_TARGET",
        "",
        parse.text,
        "Where a gateway finds the services, `host:port` or any gRPC target; empty: in its own process.",
    )
    cors_origins: tuple[str, ...] = _setting(
        "CORS_ORIGINS", "", parse.words, "Origins whose pages may call the HTTP API, separated by commas; `*`: all."
    )
    max_body_bytes: int = _setting(
        "MAX_BODY_BYTES",
        "12MiB",
        partial(parse.size, least=64 * 1024, most=1024**3),
        "Largest body of an HTTP request; larger ones are answered with 413.",
    )
    log_level: str = _setting(
        "LOG_LEVEL",
        "info",
        partial(parse.choice, of=("debug", "info", "warning", "error")),
        "`debug`, `info`, `warning` or `error`.",
    )
    log_format: str = _setting(
        "LOG_FORMAT",
        "auto",
        partial(parse.choice, of=("auto", "json", "text")),
        "`json`, `text`, or `auto`: text on a terminal and JSON elsewhere.",
    )
    default_model: str = _setting(
        "DEFAULT_MODEL", "demo/echo", parse.model, "Model of agents that name none, `provider/name`."
    )
    openai_api: str = _setting(
        "OPENAI_API",
        "auto",
        partial(parse.choice, of=("auto", "responses", "chat")),
        "How `openai/…` is spoken to: `responses`, `chat` (Chat Completions), or `auto`: Responses at OpenAI itself, "
        "Chat Completions at any other `OPENAI_BASE_URL`.",
    )
    trace: bool = _setting(
        "TRACE",
        "off",
        parse.boolean,
        "`on` keeps what was sent to the provider and what came back, for every step and redacted: `GetStepTrace`. As "
        "long as events.",
    )
    trace_bytes: int = _setting(
        "TRACE_BYTES",
        "256KiB",
        partial(parse.size, least=1024, most=16 * 1024**2),
        "Most bytes of a trace's request, and of its response; what is longer is cut, and says so.",
    )
    max_runs: int = _setting("MAX_RUNS", "256", _count, "Most runs that are live on this node; others wait their turn.")
    max_streams: int = _setting("MAX_STREAMS", "2000", _count, "Most streams that are open at once.")
    max_unary: int = _setting("MAX_UNARY", "1000", _count, "Most other calls that are open at once.")
    max_message_bytes: int = _setting(
        "MAX_MESSAGE_BYTES",
        "8MiB",
        partial(parse.size, least=64 * 1024, most=1024**3),
        "Largest gRPC message; a plain number, or with KiB or MiB.",
    )
    drain_seconds: float = _setting(
        "DRAIN_SECONDS", "30", _seconds, "How long a shutdown waits for runs to reach a checkpoint and calls to end."
    )
    event_retention: timedelta | None = _setting(
        "EVENT_RETENTION",
        "7d",
        parse.duration,
        "How long events of stopped runs are kept, like `90s`, `12h` or `7d`; 0: for ever.",
    )
    approval_ttl: timedelta | None = _setting(
        "APPROVAL_TTL",
        "7d",
        parse.duration,
        "How long an approval stays open until its calls are denied; 0: for ever.",
    )
    tool_timeout: float = _setting(
        "TOOL_TIMEOUT",
        "60",
        partial(parse.number, least=0.1, most=86_400),
        "How long a call of a tool may take that has no timeout of its own.",
    )
    heartbeat_seconds: float = _setting(
        "HEARTBEAT_SECONDS",
        "15",
        partial(parse.number, least=0.01, most=60),
        "A stream on which nothing happens gives a sign of life this often.",
    )
    sqlite_synchronous: str = _setting(
        "SQLITE_SYNCHRONOUS",
        "normal",
        partial(parse.choice, of=("normal", "full")),
        "`normal` survives a killed process, `full` also a power cut, at the cost of a disk flush per write.",
    )
    secret_key: str = _setting(
        "SECRET_KEY",
        "",
        parse.text,
        "Seals stored keys and secrets, the same on every node; empty: a key that is kept in the data folder, and with "
        "`BRIDLE_DATABASE_URL` no secrets at all.",
        secret=True,
    )
    mcp_commands: tuple[tuple[str, ...], ...] = _setting(
        "MCP_COMMANDS",
        "",
        parse.commands,
        "Commands of MCP servers that may be started, separated by commas; any further arguments are allowed. They run "
        "with the rights of this process. Empty: none.",
    )
    mcp_private: bool = _setting(
        "MCP_PRIVATE",
        "false",
        parse.boolean,
        "`true` lets MCP servers be at private addresses, loopback included: who may register one can reach them.",
    )
    sandbox: str = _setting(
        "SANDBOX",
        "minimum",
        partial(parse.choice, of=("strict", "minimum", "off")),
        "Walls without which Python tools are refused: `strict` (all), `minimum` (files, network, privileges, limits, "
        "killable), `off` (none: tools may then do what the server may do). See docs/sandbox.md.",
    )
    tool_cpu_seconds: int = _setting(
        "TOOL_CPU_SECONDS", "60", partial(parse.integer, least=1, most=3600), "Most CPU time of each of its processes."
    )
    tool_memory: int = _setting(
        "TOOL_MEMORY", "512MiB", partial(parse.size, least=64 * 2**20, most=2**40), "Most memory of a call."
    )
    tool_processes: int = _setting(
        "TOOL_PROCESSES", "32", partial(parse.integer, least=1, most=10_000), "Most processes and threads of a call."
    )
    tool_output: int = _setting(
        "TOOL_OUTPUT",
        "64KiB",
        partial(parse.size, least=1024, most=16 * 2**20),
        "What is kept of a call's stdout, and of its stderr.",
    )
    tool_disk: int = _setting(
        "TOOL_DISK", "64MiB", partial(parse.size, least=2**20, most=2**40), "Most that a call may have in its folder."
    )
    tool_concurrency: int = _setting(
        "TOOL_CONCURRENCY", "16", partial(parse.integer, least=1, most=1000), "Python calls at a time; others wait."
    )
    tool_network: bool = _setting("TOOL_NETWORK", "false", parse.boolean, "`true` lets Python tools use the network.")
    tool_requirements: bool = _setting(
        "TOOL_REQUIREMENTS",
        "false",
        parse.boolean,
        "`true` lets pip install the packages that Python tools declare, as wheels, below the data folder.",
    )
    callback_private: bool = _setting(
        "CALLBACK_PRIVATE",
        "false",
        parse.boolean,
        "`true` lets callbacks go to private addresses, loopback included: who may start a run can reach them.",
    )
    insecure_bind: bool = _setting(
        "INSECURE_BIND",
        "false",
        parse.boolean,
        "`true` allows to listen on an address that is not loopback without credentials: whoever reaches the port can "
        "read and do everything.",
    )

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Settings:
        """Read BRIDLE_ variables; SettingsError names the first that is unknown or wrong."""
        known = {spec.env: name for name, spec in cls.specs()}
        for variable in sorted(environ):
            if variable.startswith(PREFIX) and variable not in known and not _SERVICE_LINK.fullmatch(variable):
                raise SettingsError(_unknown(variable, list(known)))
        settings = cls(**{name: spec.read(environ.get(spec.env, "")) for name, spec in cls.specs()})
        settings._refuse_open_bind()
        return settings

    @classmethod
    def specs(cls) -> Iterator[tuple[str, Setting]]:
        """Every field with its setting, in the order of the README's table."""
        for each in fields(cls):
            yield each.name, each.metadata[_SPEC]

    @classmethod
    def spec(cls, name: str) -> Setting:
        """The setting of one field."""
        return dict(cls.specs())[name]

    @property
    def database(self) -> str:
        """The URL to open: `database_url`, or the file in the data folder."""
        return self.database_url or f"sqlite:///{quote(str(self.data_dir / 'bridle.db'), safe='/ ')}"

    @property
    def key_folder(self) -> Path | None:
        """Where this server keeps keys that it made itself; None if the database is shared with other nodes."""
        if not self.database_url:
            return self.data_dir
        found = parse.sqlite_file(self.database_url)
        return found.parent if found else None

    def _refuse_open_bind(self) -> None:
        for name in ("grpc_address", "http_address"):
            address = getattr(self, name)
            if not self.insecure_bind and not parse.is_loopback(address):
                raise SettingsError(
                    f"{self.spec(name).env}={address!r}: not a loopback address, and no credentials are configured; "
                    f"set {self.spec('insecure_bind').env}=true to let everybody in who can reach it"
                )

    def __repr__(self) -> str:
        shown = (
            f"{name}={_MASK if spec.secret and getattr(self, name) else repr(getattr(self, name))}"
            for name, spec in self.specs()
        )
        return f"Settings({', '.join(shown)})"


def _unknown(variable: str, known: list[str]) -> str:
    near = get_close_matches(variable, known, n=1, cutoff=0.7)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"{variable} is not a setting{hint}"
