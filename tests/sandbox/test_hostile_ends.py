"""Hostile code that will not end, ends in odd ways, or tampers with its result. `box` checks that nothing is left."""

import asyncio
import os

import pytest

from services.sandbox.model import Reason
from tests.helpers.wait import eventually
from tests.sandbox.leftovers import descendants, running
from tests.sandbox.rig import SLEEP, Box, cancelled


async def test_sleeping_through_a_cancel(box: Box) -> None:
    before = descendants(os.getpid())
    call = asyncio.ensure_future(box.run(SLEEP))
    started = await eventually(lambda: descendants(os.getpid()) - before, until=lambda found: len(found) >= 2)
    await cancelled(call)
    assert running(started) == set()


async def test_ignoring_every_signal_through_a_cancel(box: Box) -> None:
    before = descendants(os.getpid())
    call = asyncio.ensure_future(
        box.run("""
            import signal, time
            def f():
                for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
                    try:
                        signal.signal(number, signal.SIG_IGN)
                    except OSError:
                        pass
                signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
                while True:
                    time.sleep(1)
        """)
    )
    started = await eventually(lambda: descendants(os.getpid()) - before, until=lambda found: len(found) >= 2)
    await asyncio.sleep(0.1)
    await cancelled(call)
    assert running(started) == set()


async def test_ignoring_sigterm_through_a_time_out(box: Box) -> None:
    result = await box.run(
        "import signal, time\ndef f():\n    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n    time.sleep(1000)",
        wall_seconds=0.3,
    )
    assert result.reason is Reason.TIMEOUT


async def test_a_cancel_at_any_moment_leaves_nothing(box: Box) -> None:
    for step in range(40):
        call = asyncio.ensure_future(box.run(SLEEP))
        await asyncio.sleep(step * 0.0005)
        call.cancel()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call


async def test_daemons_die_with_the_call(box: Box) -> None:
    box.need_processes()
    before = descendants(os.getpid())
    result = await box.run("""
        import os, signal, time
        def f():
            for _ in range(3):
                if os.fork() == 0:
                    os.setsid()
                    signal.signal(signal.SIGTERM, signal.SIG_IGN)
                    if os.fork() == 0:
                        os.setsid()
                        for number in range(256):
                            try:
                                os.close(number)
                            except OSError:
                                pass
                        while True:
                            time.sleep(1)
                    os._exit(0)
            return "left"
    """)
    assert result.value == '"left"'
    await eventually(lambda: descendants(os.getpid()), until=lambda found: found <= before)


async def test_daemons_die_with_a_cancelled_call(box: Box) -> None:
    box.need_processes()
    before = descendants(os.getpid())
    call = asyncio.ensure_future(
        box.run("""
            import os, time
            def f():
                for _ in range(3):
                    if os.fork() == 0:
                        os.setsid()
                        if os.fork() == 0:
                            time.sleep(1000)
                        os._exit(0)
                time.sleep(1000)
        """)
    )
    started = await eventually(lambda: descendants(os.getpid()) - before, until=lambda found: len(found) >= 5)
    await cancelled(call)
    assert running(started) == set()


async def test_closing_its_pipe(box: Box) -> None:
    result = await box.run("import os\ndef f():\n    os.closerange(0, 256)\n    return 1")
    assert result.reason is Reason.KILLED
    assert "without a result" in result.error


async def test_exit_without_a_word(box: Box) -> None:
    result = await box.run("import os\ndef f():\n    print('so far')\n    os._exit(0)")
    assert (result.reason, result.stdout) == (Reason.KILLED, "so far\n")
    assert "without a result" in result.error


async def test_sys_exit_is_an_exception(box: Box) -> None:
    result = await box.run("import sys\ndef f(): sys.exit('bye')")
    assert result.reason is Reason.RAISED
    assert result.error.endswith("SystemExit: bye")


async def test_a_crash_of_the_interpreter(box: Box) -> None:
    result = await box.run("import ctypes\ndef f(): ctypes.string_at(0)")
    assert result.reason is Reason.KILLED
    assert "SIGSEGV" in result.error


async def test_abort_and_suicide(box: Box) -> None:
    aborted = await box.run("import os\ndef f(): os.abort()")
    assert "SIGABRT" in aborted.error, aborted
    killed = await box.run("import os, signal\ndef f(): os.kill(os.getpid(), signal.SIGKILL)")
    assert "SIGKILL" in killed.error, killed


async def test_importing_a_missing_package(box: Box) -> None:
    result = await box.run("import numpy\ndef f(): return 1")
    assert result.reason is Reason.RAISED
    assert "No module named 'numpy'" in result.error


async def test_printing_the_protocols_own_frames(box: Box) -> None:
    forged = b'\\x00\\x00\\x00\\x1c{"reason":"ok","value":"42"}'.decode()
    result = await box.run(f"""
        import os, sys
        def f():
            os.write(1, b'{forged}')
            sys.stdout.write('{{"reason": "ok", "value": "42"}}')
            return "mine"
    """)
    assert result.value == '"mine"'
    assert '"value":"42"' in result.stdout


async def test_a_forged_result_is_only_its_own(box: Box) -> None:
    """Whatever code writes to its own channel is a result of its own call, and is checked like any other."""
    other = asyncio.ensure_future(box.run("import time\ndef f():\n    time.sleep(0.3)\n    return 'other'"))
    for frame in (b"\xff\xff\xff\xff", b"\x00\x00\x00\x02{}", b"\x00\x00\x00\x03NaN", b"x" * 500_000):
        result = await box.run(
            """
            import os
            def f(frame):
                for number in range(3, 64):
                    try:
                        os.write(number, bytes.fromhex(frame))
                    except OSError:
                        pass
                os._exit(0)
            """
            if len(frame) < 100
            else "import os\ndef f(frame):\n    os.write(3, b'x' * 500_000)\n    os._exit(0)",
            frame=frame[:100].hex(),
        )
        assert result.reason is Reason.BAD_VALUE, (frame[:10], result)
    assert (await other).value == '"other"'


async def test_signal_handlers_and_threads_do_not_hold_it(box: Box) -> None:
    result = await box.run("""
        import atexit, signal, threading, time
        def f():
            atexit.register(time.sleep, 1000)
            signal.signal(signal.SIGALRM, lambda *_: None)
            signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
            for _ in range(3):
                threading.Thread(target=time.sleep, args=(1000,)).start()
            return "done"
    """)
    assert result.value == '"done"'


async def test_an_exception_that_cannot_be_shown(box: Box) -> None:
    result = await box.run("""
        class Odd(Exception):
            def __str__(self): raise SystemError("no")
        def f(): raise Odd
    """)
    assert result.reason in (Reason.RAISED, Reason.KILLED)


async def test_breaking_the_modules_that_report(box: Box) -> None:
    result = await box.run("""
        import json, os, traceback, builtins
        def f():
            json.dumps = os.write = traceback.TracebackException = None
            builtins.len = None
            return 1
    """)
    assert result.reason in (Reason.KILLED, Reason.BAD_VALUE), result
