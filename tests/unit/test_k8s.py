"""The manifests say what the server means."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # pre-commit brings it, without types

from common.rpc.health import LIVENESS, READINESS
from common.settings import Settings

BASE = Path(__file__).resolve().parent.parent.parent / "k8s" / "base"
KUSTOMIZATION = "kustomization.yaml"


def documents() -> Iterator[dict[str, Any]]:
    for name in yaml.safe_load((BASE / KUSTOMIZATION).read_text())["resources"]:
        yield from yaml.safe_load_all((BASE / name).read_text())


def the(kind: str) -> dict[str, Any]:
    (found,) = (document for document in documents() if document["kind"] == kind)
    return found


@pytest.fixture
def pod() -> dict[str, Any]:
    spec: dict[str, Any] = the("Deployment")["spec"]["template"]["spec"]
    return spec


@pytest.fixture
def container(pod: dict[str, Any]) -> dict[str, Any]:
    (only,) = pod["containers"]
    return dict(only)


@pytest.fixture
def settings(container: dict[str, Any]) -> Settings:
    return Settings.from_env({each["name"]: each["value"] for each in container["env"]})


def test_every_manifest_is_listed() -> None:
    listed = set(yaml.safe_load((BASE / KUSTOMIZATION).read_text())["resources"])
    assert listed == {path.name for path in BASE.glob("*.yaml")} - {KUSTOMIZATION}


def test_the_ports_are_those_that_the_server_listens_on(container: dict[str, Any], settings: Settings) -> None:
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    listening = {"grpc": settings.grpc_address, "http": settings.http_address}
    assert ports == {name: int(address.rpartition(":")[2]) for name, address in listening.items()}
    assert {each["name"]: each["port"] for each in the("Service")["spec"]["ports"]} == ports


def test_probes_ask_for_names_that_the_server_knows(container: dict[str, Any], settings: Settings) -> None:
    asked = {kind: container[f"{kind}Probe"]["grpc"] for kind in ("startup", "liveness", "readiness")}
    assert {kind: each["service"] for kind, each in asked.items()} == {
        "startup": LIVENESS,
        "liveness": LIVENESS,
        "readiness": READINESS,
    }
    assert {each["port"] for each in asked.values()} == {int(settings.grpc_address.rpartition(":")[2])}


def test_the_grace_outlasts_the_drain(pod: dict[str, Any], container: dict[str, Any], settings: Settings) -> None:
    before = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod["terminationGracePeriodSeconds"] >= before + settings.drain_seconds + 15


def test_the_pod_may_run_in_a_restricted_namespace(pod: dict[str, Any], container: dict[str, Any]) -> None:
    assert the("Namespace")["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_kustomize_builds_it() -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("there is no kubectl on this machine")
    built = subprocess.run(["kubectl", "kustomize", BASE], capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    kinds = [document["kind"] for document in yaml.safe_load_all(built.stdout)]
    assert sorted(kinds) == sorted(document["kind"] for document in documents())
