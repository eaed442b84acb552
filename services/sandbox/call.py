"""One call, seen from the server: its descriptors, its clock, its end."""

import asyncio
import contextlib
import os
import signal
import socket
import struct
from typing import Any

import msgspec

from services.sandbox.model import Job, Limits, Reason, Result
from services.sandbox.pipes import Capture, PipeReader
from services.sandbox.zygote import Zygote, ZygoteLost, job_file

_HEADER = struct.Struct(">I")
# Room for quoting and for the error's text.
_FRAME_SLACK = 64 * 2**10


class Report(msgspec.Struct, frozen=True):
    """What the guard says of a call that is over."""

    status: int = -1
    verdict: str = ""
    error: str = ""
    cpu: float = 0.0


class Said(msgspec.Struct, frozen=True):
    """What the worker says of it. Anything may be in here: code of others can write it, too."""

    reason: str
    value: str = ""
    error: str = ""


class Call:
    """A call that has been sent to the zygote."""

    def __init__(self, zygote: Zygote, job: Job, packages: str, limits: Limits) -> None:
        self._loop = asyncio.get_running_loop()
        self._limits = limits
        self._gently = not zygote.options.namespaces
        self._handle = -1
        self._stopped: Reason | None = None
        # Set when the handle is there, or will never be; and when the process and all its children are gone.
        self._started = asyncio.Event()
        self._gone = asyncio.Event()
        self._report = Report()
        result, result_w = os.pipe2(os.O_CLOEXEC)
        stdout, stdout_w = os.pipe2(os.O_CLOEXEC)
        stderr, stderr_w = os.pipe2(os.O_CLOEXEC)
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel.setblocking(False)
        job_fd = job_file(msgspec.json.encode(job))
        self._result = PipeReader(result, 3 * limits.value_bytes + _FRAME_SLACK)
        self._stdout = Capture(stdout, limits.output_bytes, limits.output_most_bytes, self._too_much_output)
        self._stderr = Capture(stderr, limits.output_bytes, limits.output_most_bytes, self._too_much_output)
        try:
            zygote.send(packages, [theirs.fileno(), job_fd, result_w, stdout_w, stderr_w])
        except ZygoteLost:
            self._close()
            raise
        finally:
            theirs.close()
            for each in (job_fd, result_w, stdout_w, stderr_w):
                os.close(each)
        self._loop.add_reader(self._channel.fileno(), self._on_report)

    async def run(self, seconds: float) -> Result:
        """Wait for its end, at most this long. When this returns or raises, nothing of the call is left."""
        try:
            try:
                async with asyncio.timeout(seconds):
                    await self._gone.wait()
            except TimeoutError:
                self._stopped = self._stopped or Reason.TIMEOUT
            finally:
                await self._end()
            return self._outcome(seconds)
        finally:
            self._close()

    async def _end(self) -> None:
        """Kill it if it is still there, and wait. A cancel does not cut this short."""
        ending = asyncio.ensure_future(self._kill())
        cancelled = False
        while not ending.done():
            try:
                await asyncio.shield(ending)
            except asyncio.CancelledError:
                cancelled = True
        ending.result()
        if cancelled:
            raise asyncio.CancelledError

    async def _kill(self) -> None:
        await self._started.wait()
        if not self._gone.is_set():
            self._signal_guard()
            await self._gone.wait()

    def _signal_guard(self) -> None:
        # With a process namespace the kernel kills everything with the guard. Without, the guard must live to do it; it
        # runs no code of others and is out of their reach, so it will.
        number = signal.SIGTERM if self._gently else signal.SIGKILL
        if self._handle >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, number)

    def _too_much_output(self) -> None:
        self._stopped = self._stopped or Reason.OUTPUT
        self._signal_guard()

    def _on_report(self) -> None:
        """First the zygote's handle of the process, then the guard's report, then the end."""
        try:
            message, handles, _, _ = socket.recv_fds(self._channel, 65_536, 1)
        except BlockingIOError:
            return
        except OSError:
            message, handles = b"", []
        if handles:
            self._handle = handles[0]
            self._loop.add_reader(self._handle, self._on_gone)
            self._started.set()
        elif message:
            self._report = msgspec.json.decode(message, type=Report)
        if not message or self._report.verdict == "broken":
            self._loop.remove_reader(self._channel.fileno())
            if self._handle < 0:
                # It was never started, or the zygote ended while it did, and took it along.
                self._on_gone()

    def _on_gone(self) -> None:
        if self._handle >= 0:
            self._loop.remove_reader(self._handle)
        self._started.set()
        self._gone.set()

    def _close(self) -> None:
        for each in (self._result, self._stdout, self._stderr):
            each.close()
        self._loop.remove_reader(self._channel.fileno())
        self._channel.close()
        if self._handle >= 0:
            self._loop.remove_reader(self._handle)
            os.close(self._handle)
            self._handle = -1

    def _outcome(self, seconds: float) -> Result:
        with contextlib.suppress(OSError):
            while self._channel.fileno() >= 0 and (message := self._channel.recv(65_536)):
                self._report = msgspec.json.decode(message, type=Report)
        for each in (self._result, self._stdout, self._stderr):
            each.drain()
        ending = self._judged(seconds)
        return msgspec.structs.replace(
            ending, stdout=self._stdout.text(), stderr=self._stderr.text(), cpu_seconds=self._report.cpu
        )

    def _judged(self, seconds: float) -> Result:
        """What stopped it, first; then what it says of itself; then how its process ended."""
        report = self._report
        if self._stopped is Reason.TIMEOUT:
            return Result(Reason.TIMEOUT, error=f"The call was stopped: it took longer than {seconds:g} s.")
        if self._stopped is Reason.OUTPUT:
            most = self._limits.output_most_bytes
            return Result(Reason.OUTPUT, error=f"The call was stopped: it printed more than {most} bytes.")
        if report.verdict in (Reason.MEMORY, Reason.DISK, Reason.PROCESSES):
            return _over(Reason(report.verdict), self._limits)
        said = self._said()
        if said is not None:
            return said
        if report.verdict == "broken":
            return Result(Reason.KILLED, error=f"The sandbox could not run the call: {report.error}")
        return _ended(report, self._limits)

    def _said(self) -> Result | None:
        frame = self._result.content()
        if len(frame) < _HEADER.size:
            return None
        size = _HEADER.unpack_from(frame)[0]
        if len(frame) != _HEADER.size + size:
            return Result(Reason.BAD_VALUE, error="The call's result is broken or too large.")
        try:
            said = msgspec.json.decode(frame[_HEADER.size :], type=Said)
            reason = Reason(said.reason)
            if reason is not Reason.OK:
                return Result(reason, error=said.error or "The call failed.")
            msgspec.json.decode(said.value, type=Any)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return Result(Reason.BAD_VALUE, error="The call's result is broken.")
        if len(said.value.encode()) > self._limits.value_bytes:
            return Result(Reason.BAD_VALUE, error="The call's result is too large.")
        return Result(Reason.OK, value=said.value)


def _over(reason: Reason, limits: Limits) -> Result:
    if reason is Reason.PROCESSES:
        return Result(reason, error=f"The call was stopped: it had more than {limits.processes} processes.")
    most = limits.memory_bytes if reason is Reason.MEMORY else limits.disk_bytes
    return Result(reason, error=f"The call was stopped: it needed more than {most} bytes of {reason}.")


def _ended(report: Report, limits: Limits) -> Result:
    """A process that ended without a word."""
    code = os.waitstatus_to_exitcode(report.status) if report.status >= 0 else None
    if code is None:
        return Result(Reason.KILLED, error="The call was killed from outside; it has no result.")
    if code == -signal.SIGXCPU or (code == -signal.SIGKILL and report.cpu >= limits.cpu_seconds):
        return Result(Reason.TIMEOUT, error=f"The call was stopped: it used more than {limits.cpu_seconds} s of CPU.")
    if code < 0:
        return Result(Reason.KILLED, error=f"The call's process was killed by {_signal_name(-code)}.")
    return Result(Reason.KILLED, error=f"The call's process ended with code {code} and without a result.")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
