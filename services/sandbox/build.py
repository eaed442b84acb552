"""Settings in, a sandbox out."""

from collections.abc import Mapping

from prometheus_client import CollectorRegistry

from common.settings import Settings
from services.sandbox.metrics import SandboxMetrics
from services.sandbox.model import Limits, Mode
from services.sandbox.packages import Packages
from services.sandbox.sandbox import Sandbox

_LONGEST_SECONDS = 86_400.0


def build_sandbox(settings: Settings, environ: Mapping[str, str], registry: CollectorRegistry) -> Sandbox:
    """The sandbox of a process; not yet started."""
    limits = Limits(
        # Each call brings its own, by the tool's timeout or the server's.
        wall_seconds=_LONGEST_SECONDS,
        cpu_seconds=settings.tool_cpu_seconds,
        memory_bytes=settings.tool_memory,
        processes=settings.tool_processes,
        output_bytes=settings.tool_output,
        disk_bytes=settings.tool_disk,
        concurrency=settings.tool_concurrency,
    )
    packages = Packages(settings.data_dir / "packages", environ) if settings.tool_requirements else None
    return Sandbox(
        limits,
        mode=Mode(settings.sandbox),
        network=settings.tool_network,
        packages=packages,
        metrics=SandboxMetrics(registry),
    )
