"""The chart, as Helm itself takes it."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest
import yaml
from release.chart import MANIFESTS, lint, rendered
from tests.tiers import missing


@pytest.fixture(scope="session")
def helm() -> None:
    """Helm, which opens files at its first use that stay with the process."""
    if find_spec("helm_python") is None:
        missing("Helm is not here", "pip install --no-deps helm-python-sdk")
    lint()
    rendered()


@pytest.fixture(autouse=True)
def _helm(helm: None) -> None:
    """Every test here needs it."""


def test_helm_makes_the_manifests() -> None:
    """The manifests are what Helm makes of the chart, and it has nothing to warn of."""
    assert lint() == []
    assert rendered() == MANIFESTS.read_text()


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"serve": {"config": ""}}, "minLength"),
        ({"serve": {"config": "x = 1", "nonsense": 1}}, "nonsense"),
        ({"runtime": {"enabled": True}}, "/runtime/config"),
    ],
)
def test_values_that_are_wrong_are_refused(values: dict[str, Any], reason: str) -> None:
    """A server without settings, and a value that there is not."""
    with pytest.raises(Exception, match=reason):
        rendered(**values)


def test_parts_can_be_left_out() -> None:
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
    made = [each for each in yaml.safe_load_all(rendered(serve=alone, runtime=off)) if each]
    assert sorted(each["kind"] for each in made) == ["ConfigMap", "Deployment", "Service", "ServiceAccount"]
    (deployment,) = (each for each in made if each["kind"] == "Deployment")
    assert deployment["spec"]["replicas"] == 1
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    spec = deployment["spec"]["template"]["spec"]
    assert spec["containers"][0]["livenessProbe"]["httpGet"]["scheme"] == "HTTPS"
    assert {each["name"] for each in spec["volumes"]} == {"config", "tls", "state", "cache", "tmp"}
