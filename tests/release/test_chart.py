"""The chart, as Helm itself takes it."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from typing import Any

import pytest
import yaml
from release.chart import MANIFESTS, lint, rendered
from tests.tiers import missing


@pytest.fixture(scope="module")
def helm() -> Iterator[ProcessPoolExecutor]:
    """Helm in a process of its own: its Go runtime replaces the handler of SIGSEGV, after which no wasm runs there."""
    if find_spec("helm_python") is None:
        missing("Helm is not here", "pip install --no-deps helm-python-sdk")
    with ProcessPoolExecutor(max_workers=1, mp_context=multiprocessing.get_context("spawn")) as pool:
        pool.submit(lint).result()  # what it opens stays for all tests
        yield pool


def refusal(values: dict[str, Any]) -> str:
    """Return why Helm refuses values, as text: its exception cannot be read without its library."""
    try:
        rendered(**values)
    except Exception as error:
        return str(error)
    return ""


def test_helm_makes_the_manifests(helm: ProcessPoolExecutor) -> None:
    """The manifests are what Helm makes of the chart, and it has nothing to warn of."""
    assert helm.submit(lint).result() == []
    assert helm.submit(rendered).result() == MANIFESTS.read_text()


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"serve": {"config": ""}}, "minLength"),
        ({"serve": {"config": "x = 1", "nonsense": 1}}, "nonsense"),
        ({"runtime": {"enabled": True}}, "/runtime/config"),
    ],
)
def test_values_that_are_wrong_are_refused(helm: ProcessPoolExecutor, values: dict[str, Any], reason: str) -> None:
    """A server without settings, and a value that there is not."""
    assert reason in helm.submit(refusal, values).result()


def test_parts_can_be_left_out(helm: ProcessPoolExecutor) -> None:
    """One server alone, with TLS of its own and its state on a volume, and nothing around it."""
    off: dict[str, Any] = {"enabled": False}
    alone = {
        "config": "x = 1",
        "tlsSecret": "certificate",
        "persistence": {"existingClaim": "state"},
        "disruption": off,
        "networkPolicy": off,
        "monitor": off,
        "autoscaling": off,
    }
    made = [each for each in yaml.safe_load_all(helm.submit(rendered, serve=alone, runtime=off).result()) if each]
    assert sorted(each["kind"] for each in made) == ["ConfigMap", "Deployment", "Service", "ServiceAccount"]
    (deployment,) = (each for each in made if each["kind"] == "Deployment")
    assert deployment["spec"]["replicas"] == 1
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    spec = deployment["spec"]["template"]["spec"]
    assert spec["containers"][0]["livenessProbe"]["httpGet"]["scheme"] == "HTTPS"
    assert {each["name"] for each in spec["volumes"]} == {"config", "tls", "state", "cache", "tmp"}
