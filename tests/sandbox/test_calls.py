"""Ordinary calls: what comes back."""

import asyncio
import json

import pytest

from services.sandbox.model import Job, Limits, Mode, Reason, Wall, Walls
from services.sandbox.sandbox import Sandbox
from tests.sandbox.rig import Box


async def test_arguments_in_value_out(box: Box) -> None:
    value = await box.value("def f(name, n=2):\n    return {'said': [name] * n, 'ü': None}", name="Käthe")
    assert value == {"said": ["Käthe", "Käthe"], "ü": None}


async def test_output_is_captured(box: Box) -> None:
    result = await box.run("import sys\ndef f():\n    print('out')\n    print('err', file=sys.stderr)")
    assert (result.value, result.stdout, result.stderr) == ("null", "out\n", "err\n")


async def test_async_functions_are_awaited(box: Box) -> None:
    source = """
        import asyncio
        async def f(n):
            return await asyncio.gather(*[asyncio.sleep(0.001, i) for i in range(n)])
    """
    assert await box.value(source, n=3) == [0, 1, 2]


@pytest.mark.parametrize(
    "source",
    ["def f():\n    yield 1", "async def f():\n    yield 1", "def f():\n    return (i for i in ())"],
)
async def test_generators_are_refused(box: Box, source: str) -> None:
    result = await box.run(source)
    assert result.reason is Reason.REFUSED
    assert "generator" in result.error


async def test_a_traceback_shows_only_the_tools_own_lines(box: Box) -> None:
    result = await box.run("""
        import json
        def inner(text):
            return json.loads(text)
        def f():
            try:
                inner("{")
            except ValueError as error:
                raise RuntimeError("outer") from error
    """)
    assert result.reason is Reason.RAISED
    assert 'File "tool.py", line 4, in inner\n    return json.loads(text)' in result.error
    assert result.error.endswith("RuntimeError: outer")
    assert "json/decoder" not in result.error
    assert "services" not in result.error


@pytest.mark.parametrize(
    ("source", "reason", "says"),
    [
        ("def g(): pass", Reason.REFUSED, "defines no function f"),
        ("f = 3", Reason.REFUSED, "defines no function f"),
        ("def f(:", Reason.RAISED, "SyntaxError"),
        ("1/0\ndef f(): pass", Reason.RAISED, "ZeroDivisionError"),
        ("def f(a): pass", Reason.RAISED, "missing 1 required positional argument"),
        ("def f():\n    raise KeyboardInterrupt", Reason.RAISED, "KeyboardInterrupt"),
    ],
)
async def test_code_that_cannot_run(box: Box, source: str, reason: Reason, says: str) -> None:
    result = await box.run(source)
    assert result.reason is reason
    assert says in result.error


@pytest.mark.parametrize("arguments", ["", "[]", "{", '{"a": NaN}', "null"])
async def test_arguments_must_be_an_object(box: Box, arguments: str) -> None:
    result = await box.sandbox.run(Job("def f(): pass", "f", arguments))
    assert (result.reason, result.error) == (Reason.REFUSED, "The arguments are not a JSON object.")


@pytest.mark.parametrize("env", [{"": "x"}, {"A=B": "x"}, {"A": "x\0y"}, {"A\0": "x"}])
async def test_an_environment_that_cannot_be(box: Box, env: dict[str, str]) -> None:
    result = await box.sandbox.run(Job("def f(): pass", "f", env=env))
    assert result.reason is Reason.REFUSED


async def test_dataclasses_know_their_module(box: Box) -> None:
    source = """
        from __future__ import annotations
        from dataclasses import asdict, dataclass
        @dataclass
        class Point:
            x: int
            y: int = 2
        def f() -> dict: return asdict(Point(1))
    """
    assert await box.value(source) == {"x": 1, "y": 2}


async def test_randomness_differs_between_calls(box: Box) -> None:
    source = "import random, uuid\ndef f(): return [random.random(), str(uuid.uuid4())]"
    assert len({json.dumps(await box.value(source)) for _ in range(5)}) == 5


async def test_large_sources_and_arguments(box: Box) -> None:
    source = f"text = '{'x' * 500_000}'\ndef f(given): return len(text) + len(given)"
    assert await box.value(source, given="y" * 500_000) == 1_000_000


async def test_calls_run_at_the_same_time(box: Box) -> None:
    """Each waits until all have begun; one after the other, none would end."""
    source = "import time\ndef f(n):\n    time.sleep(0.2)\n    return n"
    values = await asyncio.gather(*(box.value(source, n=n) for n in range(20)))
    assert values == list(range(20))


async def test_nothing_survives_from_call_to_call(box: Box) -> None:
    await box.value("import json, os\ndef f():\n    json.mine = 1\n    open('left', 'w').close()")
    assert await box.value("import json, os\ndef f(): return [hasattr(json, 'mine'), os.listdir()]") == [False, []]


@pytest.mark.parametrize(
    ("mode", "standing", "lacking"),
    [
        (Mode.OFF, frozenset[Wall](), set[Wall]()),
        (Mode.MINIMUM, frozenset(Wall) - {Wall.OWN_ROOT, Wall.OWN_PROCESSES, Wall.NOT_ROOT}, set[Wall]()),
        (Mode.MINIMUM, frozenset(Wall) - {Wall.NETWORK, Wall.LANDLOCK}, {Wall.NETWORK}),
        (Mode.STRICT, frozenset(Wall) - {Wall.OWN_ROOT}, {Wall.OWN_ROOT}),
    ],
)
def test_what_a_mode_needs(mode: Mode, standing: frozenset[Wall], lacking: set[Wall]) -> None:
    assert Walls(standing).lacking(mode) == lacking


async def test_without_the_walls_nothing_runs() -> None:
    sandbox = Sandbox(Limits(), mode=Mode.STRICT, namespaces=False)
    await sandbox.start()
    try:
        result = await sandbox.run(Job("def f(): return 1", "f"))
    finally:
        await sandbox.close()
    assert result.reason is Reason.REFUSED
    assert "own_processes" in result.error


async def test_requirements_are_off_by_default(box: Box) -> None:
    result = await box.sandbox.run(Job("def f(): return 1", "f", requirements=("idna==3.7",)))
    assert result.reason is Reason.REFUSED
    assert "BRIDLE_TOOL_REQUIREMENTS" in result.error
