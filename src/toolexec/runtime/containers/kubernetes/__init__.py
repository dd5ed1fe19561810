"""Pods of a Kubernetes cluster: one for each program, or claimed from a warm pool of the cluster's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.lazy import lazy_names

if TYPE_CHECKING:
    from toolexec.runtime.containers.kubernetes.config import KubernetesConfig
    from toolexec.runtime.containers.kubernetes.engine import KubernetesBackend, KubernetesEngine
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "toolexec.runtime.containers.kubernetes.config": ("KubernetesConfig",),
            "toolexec.runtime.containers.kubernetes.engine": (
                "KubernetesBackend",
                "KubernetesEngine",
            ),
        },
        unix_for="the sandbox kubernetes",
    )

__all__ = ["KubernetesBackend", "KubernetesConfig", "KubernetesEngine"]
