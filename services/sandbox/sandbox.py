"""The sandbox: jobs in, results out, and nothing left behind."""

import asyncio
import contextlib
import json
import logging
import sys
import time

import msgspec
from prometheus_client import CollectorRegistry

from services.sandbox.call import Call
from services.sandbox.metrics import SandboxMetrics
from services.sandbox.model import Job, Limits, Mode, Reason, Result, Walls
from services.sandbox.packages import Packages, RequirementsRefused
from services.sandbox.walls import Bait, judge
from services.sandbox.zygote import Zygote, ZygoteLost, ZygoteOptions

logger = logging.getLogger(__name__)

_TRIAL_SECONDS = 20.0
_AGAIN_SECONDS = (0.0, 0.1, 0.5, 2.0, 5.0)


class Sandbox:
    """Runs Python functions of others in processes of their own. `start` before use, `close` after."""

    def __init__(
        self,
        limits: Limits,
        *,
        mode: Mode = Mode.MINIMUM,
        network: bool = False,
        namespaces: bool = True,
        packages: Packages | None = None,
        metrics: SandboxMetrics | None = None,
    ) -> None:
        self._limits = limits
        self._mode = mode
        self._packages = packages
        self._metrics = metrics or SandboxMetrics(CollectorRegistry())
        # Most walls first; a kernel or container that does not allow namespaces gets the second.
        shown = str(packages.folder) if packages else ""
        self._plans = [
            ZygoteOptions(limits, namespaces=each, network=network, packages=shown)
            for each in ((True, False) if namespaces else (False,))
        ]
        self._walls = Walls(details={"sandbox": "not started"})
        self._judged = asyncio.Event()
        self._zygote: Zygote | None = None
        self._available = asyncio.Event()
        self._restarting: asyncio.Task[None] | None = None
        self._slots = asyncio.Semaphore(limits.concurrency)
        self._closed = False

    def walls(self) -> Walls:
        """Which walls stand."""
        return self._walls

    async def start(self) -> None:
        """Start the process behind it and try its walls. Never fails: without walls, calls are refused.

        Calls that come meanwhile wait for it.
        """
        try:
            if sys.platform != "linux":
                self._walls = Walls(details={"sandbox": "there is none on this system, only on Linux"})
            else:
                await asyncio.to_thread(self._prepare_packages)
                await self._choose()
            self._metrics.found(self._walls)
            self._log()
        finally:
            self._judged.set()

    def _prepare_packages(self) -> None:
        if self._packages:
            try:
                self._packages.prepare()
            except OSError as error:
                logger.warning("sandbox: requirements of tools cannot be installed: %s", error)
                self._packages = None

    async def _choose(self) -> None:
        obstacles = {}
        for plan in self._plans:
            try:
                self._zygote, walls = await self._tried(plan)
            except ZygoteLost as error:
                obstacles["own_root" if plan.namespaces else "sandbox"] = str(error)
                continue
            self._available.set()
            self._walls = msgspec.structs.replace(walls, details=obstacles | walls.details)
            return
        self._walls = Walls(details=obstacles)

    async def _started(self, plan: ZygoteOptions) -> Zygote:
        zygote = Zygote(plan, self._on_zygote_end)
        try:
            await zygote.start()
        except BaseException:
            await zygote.close()
            raise
        return zygote

    async def _tried(self, plan: ZygoteOptions) -> tuple[Zygote, Walls]:
        zygote = await self._started(plan)
        bait = Bait()
        try:
            result = await Call(zygote, bait.job(self._limits), "", self._limits).run(_TRIAL_SECONDS)
            if result.value is None:
                raise ZygoteLost(f"the trial call failed: {result.error} {result.stderr}".strip())
        except BaseException:
            await zygote.close()
            raise
        finally:
            bait.remove()
        return zygote, judge(zygote.options, zygote.said, json.loads(result.value))

    def _log(self) -> None:
        lacking = self._walls.lacking(self._mode)
        usable = self._zygote is not None
        fields = {
            "mode": str(self._mode),
            "standing": sorted(self._walls.standing),
            "missing": sorted(self._walls.missing),
            "details": {str(name): text for name, text in self._walls.details.items()},
        }
        if not usable or lacking:
            logger.warning("sandbox: Python tools are refused, walls are missing", extra={"fields": fields})
        elif self._walls.lacking(Mode.MINIMUM):
            logger.warning("sandbox: Python tools run without the minimum of walls", extra={"fields": fields})
        else:
            logger.info("sandbox: walls", extra={"fields": fields})

    async def close(self) -> None:
        """Kill what runs, and end. Calls that come later are refused."""
        self._closed = True
        self._judged.set()
        if self._packages:
            await self._packages.close()
        if self._restarting:
            self._restarting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._restarting
        if self._zygote:
            zygote, self._zygote = self._zygote, None
            await zygote.close()

    async def run(self, job: Job) -> Result:
        """The job's outcome. Cancelling kills its processes and returns when they are gone."""
        await self._judged.wait()
        refusal = self._refusal(job)
        if refusal:
            return self._counted(Result(Reason.REFUSED, error=refusal), 0.0)
        try:
            packages = await self._packages.folder_of(job.requirements) if self._packages and job.requirements else ""
        except RequirementsRefused as error:
            return self._counted(Result(Reason.REFUSED, error=str(error)), 0.0)
        async with self._slots:
            began = time.monotonic()
            self._metrics.live.inc()
            try:
                result = await self._run(job, packages)
            except asyncio.CancelledError:
                self._metrics.ended(None, time.monotonic() - began)
                raise
            finally:
                self._metrics.live.dec()
            return self._counted(result, time.monotonic() - began)

    def _counted(self, result: Result, seconds: float) -> Result:
        self._metrics.ended(result.reason, seconds)
        return result

    def _refusal(self, job: Job) -> str:
        lacking = self._walls.lacking(self._mode)
        if lacking:
            return (
                f"Python tools do not run here: these walls of the sandbox are missing: {', '.join(sorted(lacking))}. "
                "BRIDLE_SANDBOX says which are needed."
            )
        if self._zygote is None and self._restarting is None:
            return "Python tools do not run here: the sandbox could not be started."
        if job.requirements and self._packages is None:
            return "The tool has requirements, and they are not installed here: see BRIDLE_TOOL_REQUIREMENTS."
        try:
            msgspec.json.decode(job.arguments, type=dict[str, object])
        except msgspec.MsgspecError:
            return "The arguments are not a JSON object."
        if any("\0" in text or not name or "=" in name for name, text in job.env.items() for text in (name, text)):
            return "A name or value of the environment cannot be used."
        return ""

    async def _run(self, job: Job, packages: str) -> Result:
        seconds = min(job.wall_seconds or self._limits.wall_seconds, self._limits.wall_seconds)
        try:
            async with asyncio.timeout(seconds):
                call = await self._sent(job, packages)
        except TimeoutError:
            return Result(Reason.KILLED, error="The sandbox's process has ended, and another could not be started.")
        return await call.run(seconds)

    async def _sent(self, job: Job, packages: str) -> Call:
        while True:
            await self._available.wait()
            if self._zygote is not None:
                try:
                    return Call(self._zygote, job, packages, self._limits)
                except ZygoteLost:
                    # Nothing has run; its end will be noticed in a moment.
                    self._on_zygote_end(self._zygote)

    def _on_zygote_end(self, zygote: Zygote) -> None:
        if zygote is self._zygote and not self._closed:
            self._zygote = None
            self._available.clear()
            self._metrics.restarts.inc()
            logger.warning("sandbox: its process has ended, starting another")
            self._restarting = asyncio.get_running_loop().create_task(self._restart(zygote))

    async def _restart(self, old: Zygote) -> None:
        await old.close()
        tries = 0
        while True:
            await asyncio.sleep(_AGAIN_SECONDS[min(tries, len(_AGAIN_SECONDS) - 1)])
            tries += 1
            try:
                self._zygote = await self._started(old.options)
            except (ZygoteLost, OSError):
                logger.exception("sandbox: its process could not be started")
                continue
            self._available.set()
            self._restarting = None
            return
