"""common/log.py"""

import asyncio
import io
import json
import logging
import sys
from collections.abc import Iterator
from contextvars import copy_context
from typing import Any

import pytest

from common import log


@pytest.fixture(autouse=True)
def restored_root() -> Iterator[None]:
    """`configure` replaces the root's handlers; the test runner needs its own back."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = True
    root.handlers[:] = handlers
    root.setLevel(level)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def written(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_json_line_has_the_record_and_its_fields() -> None:
    stream = io.StringIO()
    log.configure(stream=stream)
    logging.getLogger("some.module").info("hello %s", "world", extra={"fields": {"code": "OK", "ms": 1.5}})
    (line,) = written(stream)
    assert line.pop("time").endswith("+00:00")
    assert line == {"level": "info", "logger": "some.module", "message": "hello world", "code": "OK", "ms": 1.5}


def test_an_exception_stays_on_one_line() -> None:
    stream = io.StringIO()
    log.configure(format="json", stream=stream)
    try:
        raise ValueError("two\nlines")
    except ValueError:
        logging.getLogger().exception("failed")
    (line,) = written(stream)
    assert "ValueError: two\nlines" in line["exception"]


def test_what_cannot_be_encoded_is_written_as_text() -> None:
    stream = io.StringIO()
    log.configure(format="json", stream=stream)
    logging.getLogger().info("odd", extra={"fields": {"value": object}})
    assert written(stream)[0]["value"] == "<class 'object'>"


async def test_bound_fields_reach_child_tasks_and_no_others() -> None:
    stream = io.StringIO()
    log.configure(format="json", stream=stream)

    async def say(name: str) -> None:
        logging.getLogger().info(name)

    async def request(number: str) -> None:
        log.bind(request_id=number)
        log.bind(run_id=f"run-{number}")
        await asyncio.create_task(say(number))

    await asyncio.gather(asyncio.create_task(request("1")), asyncio.create_task(request("2")))
    await say("outside")
    lines = {line["message"]: (line.get("request_id"), line.get("run_id")) for line in written(stream)}
    assert lines == {"1": ("1", "run-1"), "2": ("2", "run-2"), "outside": (None, None)}


def test_what_a_line_says_itself_wins_over_the_context() -> None:
    stream = io.StringIO()
    log.configure(format="json", stream=stream)

    def inside() -> None:
        log.bind(request_id="context")
        logging.getLogger().info("x", extra={"fields": {"request_id": "own"}})
        assert log.bound() == {"request_id": "context"}

    copy_context().run(inside)
    assert written(stream)[0]["request_id"] == "own"


def test_a_terminal_gets_plain_lines() -> None:
    stream = Terminal()
    log.configure(level="debug", stream=stream)
    try:
        raise ValueError("why")
    except ValueError:
        logging.getLogger().debug("hello", extra={"fields": {"code": "OK"}}, exc_info=sys.exc_info())
    first, *rest = stream.getvalue().splitlines()
    assert first.split(maxsplit=1)[1] == "DEBUG   hello  code=OK"
    assert rest[-1] == "ValueError: why"


def test_the_format_can_be_forced_and_the_level_holds() -> None:
    stream = Terminal()
    log.configure(level="WARNING", format="json", stream=stream)
    logging.getLogger().info("quiet")
    logging.getLogger().warning("loud")
    assert [line["message"] for line in written(stream)] == ["loud"]
