"""Checks of single values. Each yields what is wrong, so that a request can be told everything at once."""

import math
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from zoneinfo import ZoneInfo

import msgspec
from google.protobuf.duration_pb2 import Duration
from google.protobuf.struct_pb2 import Struct
from google.protobuf.timestamp_pb2 import Timestamp

from common.errors import FieldViolation, InvalidArgument
from common.ids import Prefix, is_id
from services.wire.wellknown import Enum, is_known, numbers, to_dict, to_seconds

Found = Iterator[FieldViolation]

# A time limit is added to the time of day, which ends with the year 9999.
_MAX_SECONDS = 3650 * 24 * 3600
# Of the years that a timestamp may lie in.
_FIRST_SECOND = -62_135_596_800
_LAST_SECOND = 253_402_300_799
_HANDLE = re.compile(r"[a-z0-9-]{1,32}/[!-~]{1,200}")
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,48}")


def require(found: Iterable[FieldViolation]) -> None:
    """Refuse the request if anything was found."""
    violations = list(found)
    if violations:
        raise InvalidArgument(violations)


def identifier(field: str, prefix: Prefix, text: str) -> Found:
    """An id of one kind."""
    if not text:
        yield FieldViolation(field, "is required")
    elif not is_id(prefix, text):
        yield FieldViolation(field, f"must look like '{prefix}-<uuid4>' in lower case")


def text(field: str, value: str, *, least: int = 0, most: int) -> Found:
    """A text of some length."""
    if not least <= len(value) <= most:
        size = f"{least} to {most:,}" if least else f"at most {most:,}"
        yield FieldViolation(field, f"must have {size} characters")
    yield from storable(field, value)


def storable(field: str, value: str) -> Found:
    """A text of any length."""
    # Postgres cannot store it.
    if "\0" in value:
        yield FieldViolation(field, "must not contain a NUL character")


def size_in_bytes(field: str, value: str, most: int) -> Found:
    """A long text, measured as it travels."""
    if len(value.encode()) > most:
        yield FieldViolation(field, f"must have at most {most:,} bytes")


def count(field: str, values: Collection[object], most: int) -> Found:
    """A number of elements."""
    if len(values) > most:
        yield FieldViolation(field, f"must have at most {most:,} elements")


def no_duplicates(field: str, values: Sequence[str]) -> Found:
    """Each text only once; the second one is to blame."""
    seen: set[str] = set()
    for number, value in enumerate(values):
        if value in seen:
            yield FieldViolation(f"{field}[{number}]", "is a duplicate")
        seen.add(value)


def handle(field: str, value: str) -> Found:
    """`provider/name` of a model, or empty."""
    if value and not _HANDLE.fullmatch(value):
        yield FieldViolation(field, "must look like 'provider/name'")


def tool_name(field: str, value: str) -> Found:
    """What a tool can be called."""
    if not value:
        yield FieldViolation(field, "is required")
    elif not _TOOL_NAME.fullmatch(value):
        yield FieldViolation(field, "must be 1 to 48 letters, digits, underscores and dashes")


def timezone(field: str, value: str) -> Found:
    """The IANA name of a zone, or empty."""
    try:
        ZoneInfo(value or "UTC")
    except (KeyError, ValueError, OSError):  # unknown, not a path inside the database, a folder of it
        yield FieldViolation(field, "is not the IANA name of a time zone")


def duration(field: str, value: Duration) -> Found:
    """A time limit."""
    if abs(value.nanos) >= 1_000_000_000 or not 0 < to_seconds(value) <= _MAX_SECONDS:
        yield FieldViolation(field, "must be more than 0 and at most 3,650 days")


def moment(field: str, value: Timestamp) -> Found:
    """A time of day that exists."""
    if not (0 <= value.nanos < 1_000_000_000 and _FIRST_SECOND <= value.seconds <= _LAST_SECOND):
        yield FieldViolation(field, "must be a time in the years 1 to 9999")


def json(field: str, value: Struct, most: int | None = None) -> Found:
    """A JSON object, of at most some bytes."""
    plain = to_dict(value)
    if not all(map(math.isfinite, numbers(plain))):
        yield FieldViolation(field, "must not contain numbers that JSON does not have")
    elif most is not None and len(msgspec.json.encode(plain)) > most:
        yield FieldViolation(field, f"must have at most {most:,} bytes as JSON")


def enum(field: str, kind: Enum, number: int) -> Found:
    """A value that this server knows."""
    if not is_known(kind, number):
        yield FieldViolation(field, "is not a value that this server knows")


def at_least(field: str, value: int, least: int) -> Found:
    """A number that is not too small."""
    if value < least:
        yield FieldViolation(field, f"must be at least {least:,}")
