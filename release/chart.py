"""Render the chart, by Helm itself, into manifests for those who do not use it."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, Final

from release.projects import ROOT

CHART: Final = ROOT / "deploy/helm/toolexec"
MANIFESTS: Final = ROOT / "deploy/kubernetes/toolexec.yaml"
_HEAD: Final = """# What the chart deploy/helm/toolexec makes of its ci/all-values.yaml: put in settings of your own.
# `python -m release manifests` makes this file.
"""


def rendered(values: Path = CHART / "ci/all-values.yaml", **others: Any) -> str:
    """Return the objects of a release named toolexec, in the namespace toolexec, as YAML.

    *others* replace values. Raises ImportError without helm-python-sdk, and its HelmError for values that the chart
    refuses.
    """
    helm: Any = importlib.import_module("helm_python")
    given = {**helm.values_from_yaml(values.read_text(encoding="utf-8")), **others}
    chart = helm.Chart.load(CHART)
    chart.validate_schema(given)
    made = chart.render(given, name="toolexec", namespace="toolexec")
    return _HEAD + "".join(f"{made[name].strip()}\n" for name in sorted(made) if made[name].strip())


def lint(values: Path = CHART / "ci/all-values.yaml") -> list[str]:
    """Return what Helm warns of; raises ImportError as above."""
    helm: Any = importlib.import_module("helm_python")
    report = helm.lint(CHART, helm.values_from_yaml(values.read_text(encoding="utf-8")), strict=True)
    return [*report["errors"], *(each["error"] for each in report["messages"] if each["severity"] > 1)]
