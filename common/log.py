"""Logging set-up: JSON lines for machines, plain lines on a terminal, and fields from the context."""

from __future__ import annotations

import logging
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TextIO


# Holds an immutable mapping that is replaced, never changed: tasks inherit it by reference.
_fields: ContextVar[Mapping[str, str]] = ContextVar("log_fields", default={})  # noqa: B039

_encode: Final = msgspec.json.Encoder(enc_hook=str).encode


def bind(**fields: str) -> None:
    """Add fields (request_id, run_id) to every line logged from this task and its children."""
    _fields.set({**_fields.get(), **fields})


def bound() -> Mapping[str, str]:
    """The fields that a line logged here would carry."""
    return _fields.get()


class JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """Encode the record, its context and its own fields."""
        line: dict[str, Any] = {
            "time": _timestamp(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields_of(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return _encode(line).decode()


class TextFormatter(logging.Formatter):
    """One line for people: time, level, message, then fields as key=value."""

    def format(self, record: logging.LogRecord) -> str:
        """Render the record for a terminal."""
        fields = " ".join(f"{key}={value}" for key, value in _fields_of(record).items())
        time = _timestamp(record)[11:23]
        text = f"{time} {record.levelname:<7} {record.getMessage()}  {fields}".rstrip()
        if record.exc_info:
            text = f"{text}\n{self.formatException(record.exc_info)}"
        return text


def configure(level: str = "INFO", format: str = "auto", stream: TextIO | None = None) -> None:
    """Send the root logger's lines to stderr (or `stream`); the composition root calls this once."""
    target = stream or sys.stderr
    human = format == "text" or (format == "auto" and target.isatty())
    handler = logging.StreamHandler(target)
    handler.setFormatter(TextFormatter() if human else JsonFormatter())
    # Looked up for every record otherwise, and neither format shows them.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # It reports every step of a migration; whoever is told that a port is busy should read that line and no other.
    logging.getLogger("alembic").setLevel(logging.WARNING)
    # It reports every request, with its address.
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    # It shows what servers send; what goes wrong with them is the outcome of a call.
    logging.getLogger("mcp").setLevel(logging.CRITICAL)


def _fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """Context first, so that what the line itself says wins."""
    return {**_fields.get(), **getattr(record, "fields", {})}


def _timestamp(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
