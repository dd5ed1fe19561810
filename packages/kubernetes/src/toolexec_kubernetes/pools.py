"""Warm pools that the cluster itself keeps, by the resources of agent-sandbox: pods that run before they are needed.

A pool is used for containers that are exactly what its template says, by the digest in the template's label; all others
get a pod of their own.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from toolexec.containers import JSONDict, JSONObject
from toolexec_kubernetes.failures import KubeError
from toolexec_kubernetes.spec import (
    MANAGED_LABEL,
    MANAGER,
    POOL_LABEL,
    SANDBOX_LABEL,
    SPEC_LABEL,
    metadata_of,
    spec_hash,
)

if TYPE_CHECKING:
    from toolexec_kubernetes.client import KubeClient
    from toolexec_kubernetes.config import KubernetesConfig

logger: logging.Logger = logging.getLogger(__name__)
_GROUP: Final = "extensions.agents.x-k8s.io"
_VERSION: Final = "v1beta1"
EXTENSIONS: Final = f"{_GROUP}/{_VERSION}"


async def find_pools(client: KubeClient) -> dict[str, str] | None:
    """Return the pools of the namespace by the digest of what their pods are; None where the cluster has no
    agent-sandbox of the version that we know."""
    try:
        group = await client.get(f"/apis/{_GROUP}")
        if _VERSION not in [each.get("version") for each in group.get("versions") or ()]:
            return None
        listed = await client.get(client.path(EXTENSIONS, "sandboxtemplates"), labelSelector=SPEC_LABEL)
    except KubeError as error:
        if error.status not in (403, 404):
            logger.warning("the warm pools of the cluster cannot be looked at: %s", error)
        return None
    found: dict[str, str] = {}
    for each in listed.get("items") or ():
        labels: JSONDict = each["metadata"].get("labels") or {}
        pool = labels.get(POOL_LABEL)
        if pool:
            found[str(labels[SPEC_LABEL])] = str(pool)
    return found


def pool_bodies(name: str, spec: JSONObject, replicas: int, config: KubernetesConfig) -> list[JSONDict]:
    """Return the template and the warm pool *name* of *replicas* pods of a `pod_spec`, which *config* was used for.

    The NetworkPolicy of agent-sandbox is not made: it would let the pods reach the Internet.
    """
    digest = spec_hash(spec, config)
    shown = {MANAGED_LABEL: MANAGER, SPEC_LABEL: digest, POOL_LABEL: name}
    template: JSONDict = {
        "podTemplate": {
            "metadata": metadata_of({**config.labels, **shown, SANDBOX_LABEL: "true"}, config.annotations),
            "spec": dict(spec),
        },
        "networkPolicyManagement": "Unmanaged",
    }
    return [
        {
            "apiVersion": EXTENSIONS,
            "kind": "SandboxTemplate",
            "metadata": {"name": name, "labels": shown},
            "spec": template,
        },
        {
            "apiVersion": EXTENSIONS,
            "kind": "SandboxWarmPool",
            "metadata": {"name": name, "labels": shown},
            "spec": {"replicas": replicas, "sandboxTemplateRef": {"name": name}},
        },
    ]
