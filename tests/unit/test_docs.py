"""The pages in docs/ against the code that they describe."""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from common.errors import BridleError, Code, FieldViolation
from common.pb.bridle.v1 import error_reason_pb2
from common.telemetry.metrics import Metrics
from gateway.http.metrics import HttpMetrics
from services.models.metrics import ModelMetrics
from services.runs.metrics import RunMetrics
from services.sandbox.metrics import SandboxMetrics
from services.tools.metrics import ToolMetrics
from services.toolservers.metrics import ToolServerMetrics

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"
_PREFIX = "ERROR_REASON_"


def rows(page: str, first: str) -> list[list[str]]:
    """The cells of the table whose first heading is this, without code marks."""
    lines = iter((DOCS / page).read_text(encoding="utf-8").splitlines())
    for line in lines:
        if line.startswith(f"| {first} |"):
            break
    next(lines)
    found = []
    for line in lines:
        if not line.startswith("|"):
            break
        found.append([cell.strip().replace("`", "") for cell in line.strip("|").split("|")])
    return found


def leaves(kind: type[BridleError] = BridleError) -> Iterator[type[BridleError]]:
    """The errors that are raised."""
    if "reason" in vars(kind):
        yield kind
    for child in kind.__subclasses__():
        yield from leaves(child)


def sample(kind: type[BridleError]) -> BridleError:
    """One of its kind, with whatever its constructor needs."""
    values: dict[str, Any] = {
        "str": "x",
        "int": 1,
        "float": 1.0,
        "Sequence[str]": ["x"],
        "Sequence[FieldViolation]": [FieldViolation("x", "is wrong")],
    }
    needed = [p for p in inspect.signature(kind).parameters.values() if p.default is p.empty]
    return kind(*(values[p.annotation] for p in needed))


ERRORS = {reason: (code, metadata) for reason, code, _, metadata in rows("errors.md", "reason")}


def test_every_reason_is_described() -> None:
    names = {
        value.name.removeprefix(_PREFIX) for value in error_reason_pb2.ErrorReason.DESCRIPTOR.values if value.number
    }
    assert set(ERRORS) == names == {kind.reason for kind in leaves()}


@pytest.mark.parametrize("kind", list(leaves()))
def test_codes_and_metadata_are_what_is_sent(kind: type[BridleError]) -> None:
    code, metadata = ERRORS[kind.reason]
    assert code == Code(kind.code).name
    assert set(re.findall(r"\w+", metadata)) == set(sample(kind).metadata)


def test_every_metric_is_described() -> None:
    registry = CollectorRegistry()
    Metrics(registry), RunMetrics(registry), ModelMetrics(registry), ToolMetrics(registry)
    SandboxMetrics(registry), HttpMetrics(registry), ToolServerMetrics(registry)
    kinds = {family.name: family.type for family in registry.collect()}
    # The library keeps the name of a counter without its ending.
    shown = {name.removesuffix("_total"): kind for name, kind, *_ in rows("operations.md", "metric")}
    assert shown == kinds
