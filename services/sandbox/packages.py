"""Packages that tools declare: installed by pip, once each, into folders that calls can read."""

import asyncio
import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import signal
import sys
import sysconfig
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

_REQUIREMENT = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?==[A-Za-z0-9.!+_-]+")
_MOST_REQUIREMENTS = 50
_MOST_ERROR_CHARACTERS = 2_000
# What pip may see of the server's environment: how to reach an index, nothing else.
_PASSED_ON = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE")


class RequirementsRefused(Exception):
    """They cannot be had; the text is for whoever wrote the tool."""


class Packages:
    """A folder of installed requirements, one subfolder for each set of them. Several servers may share it."""

    def __init__(self, folder: Path, environ: Mapping[str, str], seconds: float = 300.0) -> None:
        self.folder = folder.resolve()
        self._environ = {
            name: value
            for name, value in environ.items()
            if name.startswith("PIP_") or name.upper() in _PASSED_ON
        } | {"PATH": os.defpath, "LANG": "C.UTF-8"}  # fmt: skip
        self._seconds = seconds
        self._installing: dict[Path, asyncio.Task[None]] = {}

    def prepare(self) -> None:
        """Make the folder; whoever runs in the sandbox must be able to read it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)

    async def folder_of(self, requirements: tuple[str, ...]) -> str:
        """Where these are installed; installs them if they are not."""
        for each in requirements:
            if not _REQUIREMENT.fullmatch(each):
                raise RequirementsRefused(f"The requirement {each[:200]!r} is not of the form name==version.")
        if len(requirements) > _MOST_REQUIREMENTS:
            raise RequirementsRefused(f"There are {len(requirements)} requirements, at most {_MOST_REQUIREMENTS}.")
        wanted = sorted({each.lower() for each in requirements})
        place = self.folder / _key(wanted)
        if not _is_there(place):
            # A caller that is cancelled does not stop it: it would never be done for a tool with a short limit on time.
            await asyncio.shield(self._installation(wanted, place))
        return str(place)

    def _installation(self, wanted: list[str], place: Path) -> "asyncio.Task[None]":
        """The one that is under way, or a new one."""

        def forget(task: "asyncio.Task[None]") -> None:
            del self._installing[place]
            if not task.cancelled():
                task.exception()  # may have nobody left to tell

        if place not in self._installing:
            self._installing[place] = asyncio.create_task(self._install(wanted, place))
            self._installing[place].add_done_callback(forget)
        return self._installing[place]

    async def close(self) -> None:
        """Stop what is being installed."""
        tasks = list(self._installing.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _install(self, wanted: list[str], place: Path) -> None:
        # Other processes may share the folder.
        async with _file_lock(self.folder / f"{place.name}.lock"):
            if not _is_there(place):
                await self._fill(wanted, place)

    async def _fill(self, wanted: list[str], place: Path) -> None:
        unfinished = Path(tempfile.mkdtemp(prefix="unfinished-", dir=self.folder))
        try:
            await self._pip(wanted, unfinished)
            os.chmod(unfinished, 0o755)  # noqa: S103 - calls run as another user
            os.rename(unfinished, place)
        finally:
            await asyncio.to_thread(shutil.rmtree, unfinished, ignore_errors=True)

    async def _pip(self, wanted: list[str], target: Path) -> None:
        # Wheels only: building a package would run its code here, outside of the sandbox.
        command = [sys.executable, "-I", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
        command += ["--only-binary=:all:", "--no-compile", "--target", str(target), *wanted]
        process = await asyncio.create_subprocess_exec(
            *command,
            env=self._environ | {"HOME": str(target), "PIP_NO_CACHE_DIR": "1"},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
            umask=0o022,
        )
        try:
            async with asyncio.timeout(self._seconds):
                output, _ = await process.communicate()
        except TimeoutError:
            raise RequirementsRefused(f"The requirements took longer than {self._seconds:g} s to install.") from None
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        if process.returncode:
            said = output.decode(errors="replace").strip()[-_MOST_ERROR_CHARACTERS:]
            raise RequirementsRefused(f"The requirements cannot be installed:\n{said}")


def _is_there(place: Path) -> bool:
    return place.exists()


def _key(wanted: list[str]) -> str:
    interpreter = f"{sys.implementation.cache_tag} {sysconfig.get_platform()}"
    return hashlib.sha256("\n".join([interpreter, *wanted]).encode()).hexdigest()[:32]


@asynccontextmanager
async def _file_lock(path: Path) -> AsyncIterator[None]:
    with path.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(0.1)
        # Closing the file lets go of it.
        yield
