"""Pods of a Kubernetes cluster: one for each program, or claimed from a warm pool of the cluster's own."""

from toolexec.errors.extras import unix_needed

with unix_needed("the sandbox kubernetes"):
    from toolexec.runtime.containers.kubernetes.config import KubernetesConfig
    from toolexec.runtime.containers.kubernetes.engine import KubernetesBackend, KubernetesEngine

__all__ = ["KubernetesBackend", "KubernetesConfig", "KubernetesEngine"]
