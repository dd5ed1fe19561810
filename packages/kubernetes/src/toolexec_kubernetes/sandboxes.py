"""A Sandbox of agent-sandbox: it makes the pod of a session, suspends it while it is idle, and resumes it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from toolexec.containers import JSONDict, JSONObject
from toolexec_kubernetes.client import KubeClient
from toolexec_kubernetes.failures import KubeError
from toolexec_kubernetes.spec import AGENTS, MANAGED_LABEL, MANAGER, OWNED_LABEL, RUN_LABEL, Made, metadata_of

logger: logging.Logger = logging.getLogger(__name__)
_RUNNING: Final = "Running"
_SUSPENDED: Final = "Suspended"


async def has_sandboxes(client: KubeClient) -> bool:
    """Return whether the cluster has Sandboxes of the version that can be suspended."""
    try:
        found = await client.get(f"/apis/{AGENTS}")
    except KubeError as error:
        if error.status not in (403, 404):
            logger.warning("the sandboxes of the cluster cannot be looked at: %s", error)
        return False
    return any(each.get("name") == "sandboxes" for each in found.get("resources") or ())


def sandbox_body(
    name: str, labels: Mapping[str, str], spec: JSONObject, annotations: Mapping[str, str], ends: str
) -> JSONDict:
    """Return the Sandbox *name* of one pod with a `pod_spec`, which the cluster itself removes at *ends* (RFC 3339)."""
    own = {key: labels[key] for key in (OWNED_LABEL, RUN_LABEL)}
    return {
        "apiVersion": AGENTS,
        "kind": "Sandbox",
        "metadata": {"name": name, "labels": {MANAGED_LABEL: MANAGER, **own}},
        "spec": {
            "podTemplate": {"metadata": metadata_of(labels, annotations), "spec": dict(spec)},
            "operatingMode": _RUNNING,
            "shutdownTime": ends,
            "shutdownPolicy": "Delete",
        },
    }


def can_be_suspended(made: JSONObject) -> bool:
    """Return whether the API server has kept the mode of a Sandbox: a version without modes leaves it out."""
    return (made.get("spec") or {}).get("operatingMode") == _RUNNING


async def suspend_sandbox(client: KubeClient, made: Made, ends: str) -> None:
    """Have the pod of a Sandbox removed, and the Sandbox stay until *ends*. Raises KubeError."""
    await _change(client, made, _SUSPENDED, ends)


async def resume_sandbox(client: KubeClient, made: Made) -> bool:
    """Have the pod of a Sandbox made again; False where the cluster has removed the Sandbox meanwhile. Raises
    KubeError."""
    try:
        await _change(client, made, _RUNNING, str(made.body["spec"]["shutdownTime"]))
    except KubeError as error:
        if error.status != 404:
            raise
        return False
    return True


async def _change(client: KubeClient, made: Made, mode: str, ends: str) -> None:
    path = client.path(made.group, made.kind, str(made.body["metadata"]["name"]))
    await client.merge(path, {"spec": {"operatingMode": mode, "shutdownTime": ends}})
