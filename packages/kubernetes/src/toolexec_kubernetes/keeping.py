"""The workspaces of callers in a cluster: made when they are first needed, and removed by their rule.

A claim is given to a pod only if it is one of ours: what another user has put under its name is refused.
"""

from __future__ import annotations

import logging
from typing import Final

from toolexec.containers import JSONObject
from toolexec.errors import SandboxUnavailableError
from toolexec_kubernetes.client import KubeClient
from toolexec_kubernetes.failures import KubeError, refusal
from toolexec_kubernetes.lease import read_timestamp, timestamp
from toolexec_kubernetes.spec import MANAGED_LABEL, MANAGER
from toolexec_kubernetes.workspace import USED, WORKSPACE_LABEL, Workspace, workspace_body

logger: logging.Logger = logging.getLogger(__name__)
CLAIMS: Final = ("v1", "persistentvolumeclaims")
_TRIES: Final = 3
_FRESH: Final = 3600.0
_PARTS: Final = 10


async def have_workspace(client: KubeClient, name: str, workspace: Workspace) -> None:
    """Have the claim *name* there, used now. Raises SandboxUnavailableError, which is retryable for a claim that is
    being removed, and SandboxDeniedError where the cluster forbids it."""
    try:
        for _ in range(_TRIES):
            if await _have(client, name, workspace):
                return
    except KubeError as error:
        raise refusal(error, "the workspace of the caller cannot be had") from error
    raise _unusable(name, "others make and remove it all the time", retryable=True)


async def _have(client: KubeClient, name: str, workspace: Workspace) -> bool:
    """Return whether the claim is there; it was removed meanwhile where it is not. Raises KubeError, too."""
    path, now = client.path(*CLAIMS), timestamp(client.now())
    try:
        found = await client.get(f"{path}/{name}")
    except KubeError as error:
        if error.status != 404:
            raise
        body = workspace_body(name, workspace, {MANAGED_LABEL: MANAGER}, now)
        try:
            await client.create(path, body)
        except KubeError as other:
            if other.reason != "AlreadyExists":  # another process was quicker
                raise
            return False
        return True
    _check(found, name, workspace)
    if workspace.keep_seconds and client.now() - _used(found) > min(_FRESH, workspace.keep_seconds / _PARTS):
        try:
            await client.merge(f"{path}/{name}", {"metadata": {"annotations": {USED: now}}})
        except KubeError as error:
            if error.status != 404:
                raise
            return False
    return True


def _check(claim: JSONObject, name: str, workspace: Workspace) -> None:
    """Raise SandboxUnavailableError for a claim that is not to be used."""
    metadata = claim["metadata"]
    labels = metadata.get("labels") or {}
    if (labels.get(MANAGED_LABEL), labels.get(WORKSPACE_LABEL)) != (MANAGER, workspace.scope):
        raise _unusable(name, "it is not one of ours: what has that name was made by another user")
    if metadata.get("deletionTimestamp"):
        raise _unusable(name, "it is being removed", retryable=True)
    if (claim.get("status") or {}).get("phase") == "Lost":
        raise _unusable(name, "its volume is lost; remove the claim, and the caller gets an empty one")


def _unusable(name: str, why: str, *, retryable: bool = False) -> SandboxUnavailableError:
    return SandboxUnavailableError(
        f"the workspace of the caller, the PersistentVolumeClaim {name}, cannot be used: {why}",
        retryable=retryable,
        details={"reason": "workspace", "claim": name},
    )


async def remove_unused(client: KubeClient, workspace: Workspace) -> list[str]:
    """Remove the workspaces that were not used for `keep_seconds`, and return their names. One that is used again
    meanwhile stays. Raises KubeError."""
    if not workspace.keep_seconds:
        return []
    path, removed = client.path(*CLAIMS), list[str]()
    selector = f"{MANAGED_LABEL}={MANAGER},{WORKSPACE_LABEL}={workspace.scope}"
    listed = await client.get(path, labelSelector=selector)
    for each in listed.get("items") or ():
        metadata = each["metadata"]
        if metadata.get("deletionTimestamp") or client.now() - _used(each) <= workspace.keep_seconds:
            continue
        name = str(metadata["name"])
        try:
            if await client.delete(f"{path}/{name}", version=str(metadata["resourceVersion"])):
                removed.append(name)
                logger.info("the workspace %s is removed: it was last used at %s", name, _used(each))
        except KubeError as error:
            if error.status != 409:  # it has been used meanwhile
                raise
    return removed


def _used(claim: JSONObject) -> float:
    metadata = claim["metadata"]
    said = (metadata.get("annotations") or {}).get(USED)
    return read_timestamp(str(said)) or read_timestamp(str(metadata.get("creationTimestamp")))
