"""Hostile code that takes too much: processes, memory, time, output, disk. `box` checks that nothing is left."""

import pytest

from services.sandbox.model import Reason, Wall
from tests.sandbox.rig import LIMITS, Box


async def test_a_fork_bomb_hits_the_limit_on_processes(box: Box) -> None:
    box.need_processes()
    result = await box.run("""
        import os, time
        def f():
            made = 0
            try:
                while True:
                    if os.fork() == 0:
                        time.sleep(1000)
                    made += 1
            except BlockingIOError:
                return made
    """)
    if Wall.OWN_PROCESSES in box.sandbox.walls().standing:
        assert result.reason is Reason.OK, result
        assert 0 < int(result.value or 0) <= LIMITS.processes
    else:
        # The kernel's limit is that of all calls together; the guard looks at each.
        assert result.reason in (Reason.OK, Reason.PROCESSES), result


async def test_a_fork_bomb_without_end_is_stopped(box: Box) -> None:
    box.need_processes()
    result = await box.run(
        """
        import os
        def f():
            while True:
                try:
                    os.fork()
                except OSError:
                    pass
        """,
        wall_seconds=0.5,
    )
    assert result.reason in (Reason.TIMEOUT, Reason.PROCESSES), result


async def test_a_memory_bomb_hits_the_limit(box: Box) -> None:
    result = await box.run("def f():\n    kept = []\n    while True: kept.append(bytearray(2**20))")
    assert result.reason is Reason.MEMORY
    assert "memory" in result.error


async def test_memory_of_all_processes_together_is_limited(box: Box) -> None:
    box.need_processes()
    result = await box.run("""
        import os, time
        def f():
            for _ in range(6):
                if os.fork() == 0:
                    kept = bytearray(b"x" * (50 * 2**20))
                    time.sleep(1000)
            time.sleep(1000)
    """)
    assert result.reason is Reason.MEMORY, result


async def test_memory_that_forks_share_is_counted_once(box: Box) -> None:
    box.need_processes()
    result = await box.run("""
        import os, time
        def f():
            kept = bytearray(b"x" * (60 * 2**20))
            children = []
            for _ in range(5):
                child = os.fork()
                if child == 0:
                    time.sleep(1)
                    os._exit(0)
                children.append(child)
            return [os.waitpid(child, 0)[1] for child in children]
    """)
    assert result.value == "[0, 0, 0, 0, 0]", result


async def test_an_endless_loop_runs_out_of_time(box: Box) -> None:
    result = await box.run("def f():\n    while True: pass", wall_seconds=0.3)
    assert result.reason is Reason.TIMEOUT
    assert "0.3 s" in result.error


async def test_an_endless_loop_runs_out_of_cpu(box: Box) -> None:
    result = await box.run("def f():\n    while True: pass")
    assert result.reason is Reason.TIMEOUT, result
    assert "CPU" in result.error


async def test_cpu_time_ends_also_for_code_that_ignores_the_signal(box: Box) -> None:
    result = await box.run("""
        import signal
        def f():
            signal.signal(signal.SIGXCPU, signal.SIG_IGN)
            while True: pass
    """)
    assert result.reason is Reason.TIMEOUT, result
    assert "CPU" in result.error


async def test_endless_output_is_stopped(box: Box) -> None:
    result = await box.run("def f():\n    while True: print('x' * 1000)")
    assert result.reason is Reason.OUTPUT
    assert len(result.stdout) < LIMITS.output_bytes + 100
    assert "more bytes were dropped" in result.stdout


async def test_much_output_is_cut_with_a_notice(box: Box) -> None:
    result = await box.run("import sys\ndef f():\n    sys.stderr.write('é' * 4000)\n    return 1")
    assert result.reason is Reason.OK
    assert result.stderr.startswith("é" * 2000)
    assert result.stderr.endswith("[3904 more bytes were dropped]")


async def test_deep_recursion(box: Box) -> None:
    result = await box.run("def f(): return f()")
    assert result.reason is Reason.RAISED
    assert "RecursionError" in result.error
    assert len(result.error) < 10_000


async def test_recursion_without_a_limit(box: Box) -> None:
    result = await box.run("""
        import sys
        def g(n): return [g(n + 1)]
        def f():
            sys.setrecursionlimit(10**9)
            return sorted([1], key=lambda _: g(0))
    """)
    assert result.reason in (Reason.KILLED, Reason.MEMORY, Reason.RAISED, Reason.TIMEOUT), result


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("float('nan')", "Out of range float values"),
        ("[float('inf')]", "Out of range float values"),
        ("b'bytes'", "type bytes is not JSON"),
        ("object()", "type object is not JSON"),
        ("{(1, 2): 3}", "keys must be"),
        ("(lambda a: (a.append(a), a)[1])([])", "Circular reference"),
        ("__import__('functools').reduce(lambda a, _: [a], range(100_000), [])", "nested too deeply"),
        ("'x' * 100_000", "at most 65536 are allowed"),
        ("'\\ud800'", "surrogate"),
    ],
)
async def test_values_that_are_not_json(box: Box, expression: str, says: str) -> None:
    result = await box.run(f"def f(): return {expression}")
    assert result.reason is Reason.BAD_VALUE, result
    assert says in result.error


async def test_returning_a_gigabyte(box: Box) -> None:
    result = await box.run("def f(): return 'x' * 2**30")
    assert result.reason is Reason.MEMORY
    most = await box.run("def f(): return 'x' * (50 * 2**20)")
    assert most.reason in (Reason.BAD_VALUE, Reason.MEMORY)


async def test_filling_the_disk(box: Box) -> None:
    result = await box.run("""
        def f():
            for number in range(10_000):
                with open(str(number), "wb") as file:
                    for _ in range(16):
                        file.write(b"x" * 2**16)
            return "filled"
    """)
    assert result.reason is Reason.DISK or "No space left" in result.error, result


async def test_a_single_huge_file(box: Box) -> None:
    result = await box.run("def f():\n    with open('a', 'wb') as file: file.write(b'x' * (8 * 2**20))")
    assert result.reason in (Reason.RAISED, Reason.KILLED, Reason.DISK), result


async def test_a_million_files(box: Box) -> None:
    result = await box.run("""
        def f():
            for number in range(1_000_000):
                open(str(number), "w").close()
    """)
    assert result.reason is Reason.DISK or "No space left" in result.error, result


async def test_a_folder_too_deep_to_remove(box: Box) -> None:
    result = await box.run("""
        import os
        def f():
            for _ in range(150):
                os.mkdir("d" * 200)
                os.chdir("d" * 200)
            os.mkdir("closed", 0)
    """)
    assert result.reason is Reason.OK, result


async def test_exhausting_descriptors(box: Box) -> None:
    result = await box.run("""
        import os
        def f():
            kept = []
            try:
                while True:
                    kept.append(os.open("/dev/null", os.O_RDONLY))
            except OSError as error:
                count = len(kept)
                for each in kept:
                    os.close(each)
                return [count, error.strerror]
    """)
    assert result.reason is Reason.OK, result
    assert "Too many open files" in (result.value or "")


async def test_threads_are_counted_as_processes(box: Box) -> None:
    box.need(Wall.OWN_PROCESSES)
    result = await box.run("""
        import threading, time
        threading.stack_size(65536)
        def f():
            for count in range(1000):
                try:
                    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
                except RuntimeError:
                    return count
    """)
    assert result.reason is Reason.OK
    assert int(result.value or 0) <= LIMITS.processes


async def test_a_huge_message_of_an_exception_is_cut(box: Box) -> None:
    result = await box.run("def f(): raise ValueError('x' * 10_000_000)")
    assert result.reason is Reason.RAISED
    assert len(result.error) < 10_000
    assert "are left out" in result.error
