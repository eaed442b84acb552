"""Text -> value, for settings. A ValueError says what was expected."""

from __future__ import annotations

import math
import re
import shlex
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Sequence

_ADDRESS: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%\w]+\]|[^\s:/\[\]]+):(?P<port>\d{1,5})")
_DURATION: Final = re.compile(r"(?P<amount>\d+(\.\d+)?)(?P<unit>ms|s|m|h|d)?")
_UNITS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_SIZE: Final = re.compile(r"(?P<amount>\d+)\s*(?P<unit>KiB|MiB)?")
_SIZES: Final = {"KiB": 1024, "MiB": 1024**2}
_MODEL: Final = re.compile(r"[a-z0-9_-]+/\S+")
_DATABASE: Final = re.compile(r"(sqlite(\+pysqlite)?|postgres|postgresql(\+asyncpg)?)://.*", re.DOTALL)
_YES: Final = frozenset({"true", "1", "yes", "on"})
_NO: Final = frozenset({"false", "0", "no", "off"})
_LONGEST: Final = timedelta(days=36_500)


def address(text: str) -> str:
    """`host:port`, with brackets around an IPv6 host."""
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found["port"]) > 65_535:
        raise ValueError("expected host:port, like 127.0.0.1:50051 or [::1]:50051")
    return text


def is_loopback(text: str) -> bool:
    """Whether only this machine can reach an address. A name may point anywhere, so only `localhost` counts."""
    host = text.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def addresses(text: str) -> tuple[str, ...]:
    """Addresses separated by commas, or nothing."""
    return tuple(address(part) for part in _parts(text))


def commands(text: str) -> tuple[tuple[str, ...], ...]:
    """Commands separated by commas, each in words as a shell would split it, or nothing."""
    try:
        return tuple(tuple(shlex.split(part)) for part in _parts(text))
    except ValueError:
        raise ValueError(
            "expected commands like uvx mcp-server-time,/opt/tools/server; a quote is not closed"
        ) from None


def text(text: str) -> str:
    """Any text."""
    return text


def path(text: str) -> Path:
    """A file or folder; `~` is the home folder."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise ValueError("expected a path; there is no such home folder") from None


def database_url(text: str) -> str:
    """A URL of a database that we can open, or nothing."""
    if text and not _DATABASE.fullmatch(text):
        raise ValueError("expected postgresql://user:password@host/name or sqlite:///file")
    return text


def sqlite_file(url: str) -> Path | None:
    """The file that a SQLite URL names; None for another database."""
    scheme, _, file = url.partition(":///")
    return Path(unquote(file)) if scheme.startswith("sqlite") and file else None


def model(text: str) -> str:
    """A model handle."""
    if not _MODEL.fullmatch(text):
        raise ValueError("expected provider/name, like demo/echo")
    return text


def choice(text: str, *, of: Sequence[str]) -> str:
    """One of some words, in any case."""
    if text.lower() not in of:
        raise ValueError(f"expected one of {', '.join(of)}")
    return text.lower()


def subset(text: str, *, of: Sequence[str]) -> tuple[str, ...]:
    """Some of the words, at least one, in the order of `of`."""
    chosen = _parts(text)
    if not chosen or not set(chosen) <= set(of):
        raise ValueError(f"expected some of {','.join(of)}")
    return tuple(word for word in of if word in chosen)


def words(text: str) -> tuple[str, ...]:
    """Some words, separated by commas."""
    return tuple(_parts(text))


def boolean(text: str) -> bool:
    """true or false."""
    if text.lower() not in _YES | _NO:
        raise ValueError("expected true or false")
    return text.lower() in _YES


def integer(text: str, *, least: int, most: int) -> int:
    """A whole number within bounds."""
    if not re.fullmatch(r"\d{1,18}", text) or not least <= int(text) <= most:
        raise ValueError(f"expected a whole number from {least} to {most}")
    return int(text)


def number(text: str, *, least: float, most: float) -> float:
    """A number within bounds."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not least <= value <= most:
        raise ValueError(f"expected a number from {least:g} to {most:g}")
    return value


def size(text: str, *, least: int, most: int) -> int:
    """A number of bytes, plain or with KiB or MiB."""
    found = _SIZE.fullmatch(text)
    value = int(found["amount"]) * _SIZES.get(found["unit"] or "", 1) if found else -1
    if not least <= value <= most:
        raise ValueError(f"expected a size from {least} to {most} bytes, like 8388608 or 8MiB")
    return value


def duration(text: str) -> timedelta | None:
    """A span of time with its unit (seconds without one); None for 0, which means for ever."""
    found = _DURATION.fullmatch(text)
    seconds = float(found["amount"]) * _UNITS[found["unit"] or "s"] if found else -1.0
    if not 0 <= seconds <= _LONGEST.total_seconds():
        raise ValueError("expected a duration like 90s, 12h or 7d; 0 means for ever")
    return timedelta(seconds=seconds) or None


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
