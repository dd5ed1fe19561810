"""The workspace of each caller: a claim of its own, whose files are `/work` in all of its pods. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final

from toolexec.containers import WORK, JSONDict
from toolexec.errors import ConfigurationError
from toolexec.sandbox import ContainerSpec
from toolexec_kubernetes.volumes import check_name, read_size

if TYPE_CHECKING:
    from toolexec.sandbox import ExecuteRequest
    from toolexec_kubernetes.spec import Made

WORKSPACE_LABEL: Final = "toolexec.io/workspace"
"""The scope of a claim that is the workspace of a caller."""
USED: Final = "toolexec.io/used"
"""The annotation with the time at which the claim was last given to a pod, an hour's fraction later at most."""

_ACCESS: Final = ("ReadWriteOnce", "ReadWriteOncePod", "ReadWriteMany")
_SCOPE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")
_KEPT: Final = 30 * 86_400
_LONGEST: Final = 10 * 366 * 86_400
_FIRST_USER: Final = 1 << 24
_LAST_USER: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """What the workspace of each caller is: *size* bytes by a storage class ("" for that of the cluster), removed
    *keep_seconds* after its last use (0: never). Callers of another *scope* have others."""

    size: int
    storage_class: str = ""
    access: str = "ReadWriteOnce"
    keep_seconds: int = _KEPT
    scope: str = "default"


@dataclass(slots=True, eq=False)
class SessionPod:
    """What the pods of one session share that is suspended when it is idle.

    *made* is the object that makes its pods, if one does. *is_suspending* says that its pod ends for now; a pod that
    ends at another time ends the session, and is *over*.
    """

    made: Made | None = None
    is_suspending: bool = False
    is_over: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedSpec(ContainerSpec):
    """A container whose `/work` is the claim *workspace*; *session* is the session that it is for, if it is suspended
    when it is idle."""

    workspace: str = ""
    session: SessionPod | None = None


def read_workspace(given: Mapping[str, Any]) -> Workspace | None:
    """Return the setting `workspace`; None where it is empty. Raises ConfigurationError for what is not one."""
    if not given:
        return None
    names = [field.name for field in fields(Workspace)]
    for key in given:
        if key not in names:
            raise ConfigurationError(f"workspace: there is no {key[:80]!r}; there are {', '.join(names)}")
    if "size" not in given:
        raise ConfigurationError("workspace: it needs a size, such as 1Gi")
    kept = given.get("keep_seconds", _KEPT)
    if isinstance(kept, bool) or not isinstance(kept, int) or not 0 <= kept <= _LONGEST:
        raise ConfigurationError(f"workspace: keep_seconds must be from 0 to {_LONGEST}, not {kept!r:.80}")
    access = given.get("access", "ReadWriteOnce")
    if access not in _ACCESS:
        raise ConfigurationError(f"workspace: access must be one of {', '.join(_ACCESS)}, not {access!r:.80}")
    scope = given.get("scope", "default")
    if not isinstance(scope, str) or not _SCOPE.fullmatch(scope):
        raise ConfigurationError(
            f"workspace: scope must be small letters, digits and hyphens, 40 at most, not {scope!r:.80}"
        )
    storage_class = given.get("storage_class", "")
    if storage_class != "":
        check_name(storage_class, "workspace: storage_class")
    size = read_size(given["size"], "workspace")
    return Workspace(size=size, storage_class=storage_class, access=access, keep_seconds=kept, scope=scope)


def workspace_of(request: ExecuteRequest, workspace: Workspace | None) -> str:
    """Return the name of the claim that is the workspace of the caller of *request*; "" for a caller who was not
    identified, and cannot be distinguished from others."""
    caller = request.origin.caller
    return workspace_name(workspace, caller.realm, caller.id) if workspace is not None and caller.id else ""


def workspace_name(workspace: Workspace, realm: str, caller: str) -> str:
    """Return the name of a caller's claim. No two callers have the same, and it does not say who they are: it has the
    SHA-256 of both words in a form that only they have."""
    digest = hashlib.sha256(json.dumps([realm, caller]).encode()).hexdigest()
    return f"toolexec-{workspace.scope}-{digest}"


def workspace_user(name: str) -> int:
    """Return the number of the user in all pods with this workspace, who owns its files."""
    return _FIRST_USER + int(hashlib.sha256(name.encode()).hexdigest()[:16], 16) % (_LAST_USER - _FIRST_USER)


def workspace_body(name: str, workspace: Workspace, labels: Mapping[str, str], used: str) -> JSONDict:
    """Return the claim *name*, used at the time *used*."""
    spec: JSONDict = {
        "accessModes": [workspace.access],
        "resources": {"requests": {"storage": str(workspace.size)}},
    }
    if workspace.storage_class:
        spec["storageClassName"] = workspace.storage_class
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": name,
            "labels": {**labels, WORKSPACE_LABEL: workspace.scope},
            "annotations": {USED: used},
        },
        "spec": spec,
    }


def claimed_at(spec: ContainerSpec, target: str) -> str:
    """Return the claim that a container has at *target*; "" for none."""
    return spec.workspace if isinstance(spec, PlacedSpec) and target == WORK else ""
