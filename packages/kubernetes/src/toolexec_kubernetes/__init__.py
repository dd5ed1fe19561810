"""Pods of a Kubernetes cluster: one for each program, or claimed from a warm pool of the cluster's own.

`use = ["kubernetes"]` in a settings file works once this package is installed. Nothing is asked of a cluster before
something is to run:

>>> from toolexec_kubernetes import KubernetesBackend, KubernetesConfig
>>> backend = KubernetesBackend(KubernetesConfig(namespace="code", runtime_class="gvisor"))
>>> backend.kind, backend.isolation
('kubernetes', 'gvisor')
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.sandbox import lazy_names

if TYPE_CHECKING:
    from toolexec_kubernetes.config import KubernetesConfig
    from toolexec_kubernetes.engine import KubernetesBackend, KubernetesEngine
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "toolexec_kubernetes.config": ("KubernetesConfig",),
            "toolexec_kubernetes.engine": ("KubernetesBackend", "KubernetesEngine"),
        },
        unix_for="the sandbox kubernetes",
    )

__all__ = ["KubernetesBackend", "KubernetesConfig", "KubernetesEngine"]
