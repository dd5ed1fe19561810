"""The kind of sandbox `kubernetes`: pods of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.runtime.base import SandboxBackend
from toolexec.runtime.plugin import SandboxContext, SandboxPlugin

if TYPE_CHECKING:
    from toolexec.runtime.containers.kubernetes import KubernetesConfig
    from toolexec.runtime.sandboxes import SandboxSettings

__all__ = ["PLUGIN"]


def _read(settings: SandboxSettings) -> KubernetesConfig:
    from toolexec.runtime.containers.kubernetes import KubernetesConfig

    return KubernetesConfig(
        **settings.shared(),
        kubeconfig=settings.kubeconfig,
        context=settings.kube_context,
        namespace=settings.kube_namespace,
        runtime_class=settings.kube_runtime_class,
        service_account=settings.kube_service_account,
        node_selector=settings.kube_node_selector,
        tolerations=settings.kube_tolerations,
        pull_secrets=settings.kube_pull_secrets,
        jobs=settings.kube_jobs,
        network=settings.kube_network,
    )


def _make(settings: KubernetesConfig, _: SandboxContext) -> SandboxBackend:
    from toolexec.runtime.containers.kubernetes import KubernetesBackend

    return KubernetesBackend(settings)


PLUGIN = SandboxPlugin(
    kind="kubernetes",
    api=1,
    settings="toolexec.runtime.containers.kubernetes:KubernetesConfig",
    make=_make,
    profiles={"standard": 50, "hardened": 40},
    isolation="container",
    read=_read,
)
