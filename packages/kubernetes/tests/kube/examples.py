"""Pods that tests start behind the back of the backend, and what they wait for."""

from __future__ import annotations

from typing import Any

from packages.kubernetes.tests.kube.cluster import KubeCluster
from tests.engines.images import TEST_IMAGE
from tests.waiting import until_blocking

ENDED = ("Succeeded", "Failed")


def pod(
    name: str, *command: str, stdin: bool = False, container: dict[str, Any] | None = None, **spec: Any
) -> dict[str, Any]:
    """Return a pod that runs *command*, and meets the standard `restricted` of Pod Security."""
    context = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    inner = {
        "name": "main",
        "image": TEST_IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": [*command],
        "stdin": stdin,
        "stdinOnce": stdin,
        "securityContext": context,
        **(container or {}),
    }
    outer = {"runAsNonRoot": True, "runAsUser": 65534, "seccompProfile": {"type": "RuntimeDefault"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "securityContext": outer,
            "containers": [inner],
            **spec,
        },
    }


def wait_for(cluster: KubeCluster, namespace: str, name: str, *phases: str) -> dict[str, Any]:
    """Wait until a pod is in one of *phases* (by default: ended), and return it."""
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"

    def reached() -> dict[str, Any] | None:
        found = cluster.ask("GET", path)
        return found if found["status"].get("phase") in (phases or ENDED) else None

    found = until_blocking(reached, 0.01)
    assert found is not None
    return found
