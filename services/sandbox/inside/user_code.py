"""Runs the function of a job and says what came of it. Everything here happens behind the walls."""

import asyncio
import inspect
import json
import linecache
import sys
import traceback
import types
from collections.abc import Callable, Mapping
from typing import Any

from services.sandbox.inside.values import plain, typed

NAME = "tool"
FILE = "tool.py"
_MOST_ERROR_CHARACTERS = 8_000


def outcome(job: Mapping[str, Any], most_bytes: int) -> dict[str, str]:
    """`reason`, and `value` or `error`."""
    try:
        function = _load(job["source"], job["function"])
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            return _refused(f"{job['function']} is a generator; a tool returns one value")
        value = _settled(function(**typed(function, json.loads(job["arguments"]))))
    except _NoFunction as error:
        return _refused(str(error))
    except MemoryError:
        return _out_of_memory()
    except BaseException as error:
        return {"reason": "raised", "error": _explained(error)}
    if inspect.isgenerator(value) or inspect.isasyncgen(value):
        return _refused(f"{job['function']} returned a generator; a tool returns one value")
    return _as_json(value, most_bytes)


class _NoFunction(Exception):
    """The source does not define what it should."""


def _refused(error: str) -> dict[str, str]:
    return {"reason": "refused", "error": error}


def _out_of_memory() -> dict[str, str]:
    return {"reason": "memory", "error": "MemoryError: the call needed more memory than it may have"}


def _load(source: str, name: str) -> Callable[..., Any]:
    # Tracebacks show lines of the source, dataclasses look their module up.
    linecache.cache[FILE] = (len(source), None, source.splitlines(keepends=True), FILE)
    module = types.ModuleType(NAME)
    sys.modules[NAME] = module
    exec(compile(source, FILE, "exec", dont_inherit=True), module.__dict__)  # noqa: S102 - what this process is for
    function = module.__dict__.get(name)
    if not callable(function):
        raise _NoFunction(f"the source defines no function {name}")
    return function  # type: ignore[no-any-return]


def _settled(value: Any) -> Any:
    if not inspect.isawaitable(value):
        return value

    async def wait() -> Any:
        return await value

    return asyncio.run(wait())


def _as_json(value: Any, most_bytes: int) -> dict[str, str]:
    try:
        text = json.dumps(value, default=plain, allow_nan=False, ensure_ascii=False)
        size = len(text.encode())
    except MemoryError:
        return _out_of_memory()
    except RecursionError:
        return _bad("it is nested too deeply")
    except UnicodeEncodeError:
        return _bad("it holds half of a surrogate pair, which is no text")
    except Exception as error:
        return _bad(str(error))
    if size > most_bytes:
        return _bad(f"it has {size} bytes, at most {most_bytes} are allowed")
    return {"reason": "ok", "value": text}


def _bad(why: str) -> dict[str, str]:
    return {"reason": "bad_value", "error": f"The returned value cannot be used as JSON: {_cut(why)}"}


def _explained(error: BaseException) -> str:
    """The traceback, with frames of the job's own source only."""
    report = traceback.TracebackException.from_exception(error, limit=-200)
    _only_own_frames(report, set())
    return _cut("".join(report.format()).rstrip())


def _only_own_frames(report: traceback.TracebackException | None, seen: set[int]) -> None:
    if report is None or id(report) in seen:
        return
    seen.add(id(report))
    report.stack = traceback.StackSummary.from_list([frame for frame in report.stack if frame.filename == FILE])
    for other in (report.__cause__, report.__context__, *(report.exceptions or ())):
        _only_own_frames(other, seen)


def _cut(text: str) -> str:
    """The beginning and, mostly, the end: where a traceback says what happened."""
    dropped = len(text) - _MOST_ERROR_CHARACTERS
    if dropped <= 0:
        return text
    head = _MOST_ERROR_CHARACTERS // 4
    return f"{text[:head]}\n[... {dropped} characters are left out ...]\n{text[head + dropped :]}"
