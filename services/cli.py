"""The `bridle` command."""

from __future__ import annotations

import os
import sys
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from common.errors import SecretKeyMissing
from common.seal import seal_for
from common.settings import Settings
from common.startup import StartupError
from services.chat.main import ChatOptions, chat

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

app: Final = typer.Typer(
    help="Runs LLM agents behind gRPC.",
    epilog="Start with `bridle serve`, then talk to it with `bridle chat` in another terminal.",
    no_args_is_help=True,
    add_completion=False,
    # Boxes and colours help nobody who reads them in a log.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _checked(name: str) -> Callable[[str | None], str | None]:
    """Refuse a flag's value (exit code 2) by the rule of the setting that it overrides."""
    spec = Settings.spec(name)

    def check(text: str | None) -> str | None:
        if text is not None:
            try:
                spec.parse(text)
            except ValueError as error:
                raise typer.BadParameter(str(error)) from None
        return text

    return check


def _flag(name: str, doc: str, metavar: str) -> Any:
    spec = Settings.spec(name)
    default = f"; default: {spec.default}" if spec.default else ""
    text = f"{doc} Instead of {spec.env}{default}."
    return typer.Option(metavar=metavar, help=text, callback=_checked(name), show_default=False)


@app.command()
def serve(
    grpc_address: Annotated[str | None, _flag("grpc_address", "Where gRPC listens.", "HOST:PORT")] = None,
    http_address: Annotated[str | None, _flag("http_address", "Where HTTP listens.", "HOST:PORT")] = None,
    data_dir: Annotated[str | None, _flag("data_dir", "Folder of the embedded database.", "FOLDER")] = None,
    database_url: Annotated[str | None, _flag("database_url", "Postgres or SQLite.", "URL")] = None,
    roles: Annotated[str | None, _flag("roles", "What this process hosts.", "NAMES")] = None,
    log_level: Annotated[str | None, _flag("log_level", "How much to log.", "LEVEL")] = None,
) -> None:
    """Serve gRPC and HTTP until Ctrl-C or SIGTERM.

    Everything runs in this one process, on a SQLite file, unless a database is named. Flags win over BRIDLE_
    variables; the README lists those that have no flag. The first Ctrl-C drains, the second one stops at once.

    \b
    Examples:
      bridle serve
      bridle serve --data-dir /var/lib/bridle
      bridle serve --grpc-address 127.0.0.1:9000 --log-level debug
      BRIDLE_DATABASE_URL=postgresql://bridle@db/bridle bridle serve
    """
    settings = _settings(
        grpc_address=grpc_address,
        http_address=http_address,
        data_dir=data_dir,
        database_url=database_url,
        roles=roles,
        log_level=log_level,
    )
    from services import app as server  # noqa: PLC0415 - takes seconds to load, which `chat` must not wait for

    raise typer.Exit(server.main(settings))


@app.command()
def migrate(
    check: Annotated[bool, typer.Option("--check", help="Change nothing; exit with 1 if there is work to do.")] = False,
    data_dir: Annotated[str | None, _flag("data_dir", "Folder of the embedded database.", "FOLDER")] = None,
    database_url: Annotated[str | None, _flag("database_url", "Postgres or SQLite.", "URL")] = None,
) -> None:
    """Bring the database to the schema of this version.

    \b
    Examples:
      bridle migrate
      bridle migrate --check
      bridle migrate --database-url postgresql://bridle@db/bridle
    """
    settings = _settings(data_dir=data_dir, database_url=database_url)
    from common.db import migrate as migrations  # noqa: PLC0415 - loads Alembic, which only this command needs

    if not check:
        migrations.upgrade(settings.database)
    current, head = migrations.current(settings.database), migrations.head()
    if current == head:
        typer.echo(f"the schema is current: {head}")
        return
    typer.echo(f"the schema is at {current or 'nothing'}, this version needs {head}: run `bridle migrate`", err=True)
    raise typer.Exit(1)


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(f"bridle {installed_version('bridle')}")


@app.command(name="chat")
def chat_command(
    message: Annotated[str | None, typer.Argument(help="Say this, show the answer, and end.")] = None,
    address: Annotated[
        str, typer.Option(metavar="HOST:PORT", envvar=Settings.spec("grpc_address").env, help="The server.")
    ] = Settings.spec("grpc_address").default,
    agent: Annotated[str, typer.Option(metavar="ID", help="Go on with this agent instead of a new one.")] = "",
    model: Annotated[str, typer.Option(metavar="PROVIDER/NAME", help="Model of the new agent.")] = "",
    system: Annotated[str, typer.Option(help="System prompt of the new agent.")] = "",
    tool: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Give the new agent this tool; may be repeated.")
    ] = None,
) -> None:
    """Talk to an agent in the terminal.

    Answers appear as they are written. Ctrl-C cancels the run and not the program. Tool calls that need approval are
    shown and asked about. Without a terminal, each line of stdin is a message, or the answer to an approval.

    \b
    Examples:
      bridle chat
      bridle chat "Hello!"
      bridle chat --tool roll_dice 'call roll_dice {"sides": 6}'
      bridle chat --agent agent-6f0c...
      printf 'Hello\\nHow are you?\\n' | bridle chat

    \b
    Exit codes: 0 all went well, 1 it did not, 2 wrong usage, 3 an approval is needed and
    there is nobody to ask, 130 cancelled.
    """
    if agent and (model or system or tool):
        raise typer.BadParameter("--model, --system and --tool are for a new agent; leave them out, or --agent")
    if message is not None and not message.strip():
        raise typer.BadParameter("there is nothing in it", param_hint="MESSAGE")
    options = ChatOptions(
        address=address, message=message, agent_id=agent, model=model, system=system, tools=tuple(tool or ())
    )
    raise typer.Exit(chat(options))


@app.command(name="fake-llm")
def fake_llm_command(
    address: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where it listens.", callback=_checked("grpc_address"))
    ] = "127.0.0.1:9999",
    rules: Annotated[
        str | None, typer.Option(metavar="FILE", help="What to answer, in JSON or TOML; see docs/fake-llm.md.")
    ] = None,
    insecure_bind: Annotated[
        bool, typer.Option("--insecure-bind", help="Listen on an address that is not loopback, too.")
    ] = False,
) -> None:
    """Serve a fake LLM provider that speaks like OpenAI and Anthropic, for tests.

    Without rules it does what the last user message says (`call NAME {json}`, `count to N`, `fail llm_rate_limit`),
    and echoes everything else.

    \b
    Examples:
      bridle fake-llm
      bridle fake-llm --address 127.0.0.1:9000 --rules rules.toml
    """
    from services.fakellm import main as fake  # noqa: PLC0415 - `chat` must not wait for it

    fake.main(address, Path(rules) if rules else None, insecure_bind=insecure_bind)


@app.command(name="callback-secret")
def callback_secret_command() -> None:
    """Print what receivers of callbacks check the signatures with (standardwebhooks.com)."""
    from services.callbacks.relay import signing_secret  # noqa: PLC0415 - `chat` must not wait for it

    settings = _settings()
    try:
        typer.echo(signing_secret(seal_for(settings.secret_key, settings.key_folder)))
    except SecretKeyMissing as error:
        raise StartupError(error.message) from None


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point; ends the process. What keeps a command from starting is one line and exit code 1."""
    try:
        app(args=argv, prog_name="bridle")
    except StartupError as error:
        typer.echo(f"bridle: {error}", err=True)
        sys.exit(1)


def _settings(**flags: str | None) -> Settings:
    """The environment's settings, with flags in place of their variables."""
    given = {Settings.spec(name).env: text for name, text in flags.items() if text is not None}
    return Settings.from_env({**os.environ, **given})
