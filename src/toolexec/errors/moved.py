"""Where settings and commands are now that had another place before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["MOVED_COMMANDS", "MOVED_SETTINGS", "moved_setting"]

_OF_KUBERNETES: Final = {
    "kubeconfig": "kubeconfig",
    "kube_context": "context",
    "kube_namespace": "namespace",
    "kube_runtime_class": "runtime_class",
    "kube_service_account": "service_account",
    "kube_node_selector": "node_selector",
    "kube_tolerations": "tolerations",
    "kube_pull_secrets": "pull_secrets",
    "kube_jobs": "jobs",
    "kube_network": "network",
}

MOVED_SETTINGS: Final[Mapping[str, str]] = {
    **{
        f"sandboxes.{old}": f'it is now {new} in a table of [[sandboxes.plugins]] with kind = "kubernetes"'
        for old, new in _OF_KUBERNETES.items()
    },
    **{
        f"SandboxSettings.{old}": f'it is now plugins=[{{"kind": "kubernetes", "{new}": ...}}]'
        for old, new in _OF_KUBERNETES.items()
    },
}
"""What to write in place of a setting, by its former path in files, and by its class and name in Python."""

MOVED_COMMANDS: Final[Mapping[str, str]] = {"kube": "sandbox kubernetes"}
"""The groups of the command line that have another place, by their former names."""


def moved_setting(path: str) -> str:
    """Return what to write in place of a setting that has another place now; empty for all others.

    >>> moved_setting("sandboxes.kube_jobs")
    'it is now jobs in a table of [[sandboxes.plugins]] with kind = "kubernetes"'
    """
    return MOVED_SETTINGS.get(path, "")
