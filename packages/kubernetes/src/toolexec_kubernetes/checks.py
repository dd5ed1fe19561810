"""Whether a cluster that answers can be used for sandboxes, asked of the real thing: permissions, names, policies."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from toolexec.containers import unavailable
from toolexec.errors import SandboxUnavailableError
from toolexec.sandbox import LimitsEnforced, claim_resources
from toolexec_kubernetes.config import KubernetesConfig, isolation_of
from toolexec_kubernetes.failures import KubeError, refusal
from toolexec_kubernetes.spec import POLICY, policy_body
from toolexec_kubernetes.workspace import Workspace

if TYPE_CHECKING:
    from toolexec_kubernetes.client import KubeClient

_HELD: Final = claim_resources(memory=True, cpu=False, cpus=True, pids=False, disk=True)
"""What a pod is held to by the cluster. Its processes are counted by the kubelet for the whole pod, if at all, and
its CPU time can be read only with permissions that allow much more."""

_OLDEST: Final = (1, 19)
_SIZED: Final = (1, 22)


class Permission(NamedTuple):
    """Some verbs on one kind of object, or on those of it with certain names."""

    group: str
    resource: str
    verbs: Sequence[str]
    subresource: str = ""
    names: Sequence[str] = ()


_PODS: Final = ("delete", "get", "list", "watch")
_ALWAYS: Final = (
    Permission("", "pods", ("get", "create"), "attach"),  # a server's version decides which of the two it asks for
    Permission("", "pods", ("get",), "log"),
    Permission("coordination.k8s.io", "leases", ("create", "delete", "list", "patch")),
    Permission("networking.k8s.io", "networkpolicies", ("get",), names=(POLICY,)),
)
_JOBS: Final = Permission("batch", "jobs", ("create", "delete", "list"))
_CLAIMS: Final = (
    Permission("extensions.agents.x-k8s.io", "sandboxclaims", ("create", "delete", "list")),
    Permission("extensions.agents.x-k8s.io", "sandboxtemplates", ("list",)),
)
_SANDBOXES: Final = Permission("agents.x-k8s.io", "sandboxes", ("create", "delete", "list", "patch"))
_WORKSPACES: Final = Permission("", "persistentvolumeclaims", ("create", "delete", "get", "list", "patch"))
_KEPT_WORKSPACES: Final = Permission("", "persistentvolumeclaims", ("create", "get"))
_WHY: Final = Permission("", "events", ("list",))
"""Why a Job or a claim makes no pod."""


def permissions_for(
    *, jobs: bool, claims: bool, workspace: Workspace | None = None, sandboxes: bool = False
) -> tuple[Permission, ...]:
    """Return all that is needed in the namespace: with *jobs* for pods made by Jobs, which then are the only way to
    make one, with *claims* for pods that are claimed from a warm pool of the cluster, too, with a *workspace* for
    claims of volumes, and with *sandboxes* for sessions that a Sandbox suspends."""
    return (
        Permission("", "pods", _PODS if jobs else ("create", *_PODS)),
        *_ALWAYS,
        *((_JOBS,) if jobs else ()),
        *(_CLAIMS if claims else ()),
        *((_SANDBOXES,) if sandboxes else ()),
        *((_WORKSPACES if workspace.keep_seconds else _KEPT_WORKSPACES,) if workspace is not None else ()),
        *((_WHY,) if jobs or claims or sandboxes else ()),
    )


async def server_version(client: KubeClient) -> tuple[str, tuple[int, ...]]:
    """Return the version of the cluster, as it says it and as numbers (zeros for a build that has none). Raises
    SandboxUnavailableError for one that does not answer, or is too old."""
    try:
        found = await client.get("/version")
    except KubeError as error:
        raise _asked(error, f"the cluster at {client.host} cannot be used") from error
    numbers = tuple(_number(str(found.get(part, ""))) for part in ("major", "minor"))
    if any(numbers) and numbers < _OLDEST:
        oldest = ".".join(map(str, _OLDEST))
        raise unavailable(f"the cluster is too old: {found.get('gitVersion')}", f"update it to {oldest} or later")
    return str(found.get("gitVersion", "")).removeprefix("v"), numbers


def _number(text: str) -> int:
    """Return the number in something like `33+`; 0 for none."""
    return int("".join(filter(str.isdigit, text)) or 0)


def held_by(version: tuple[int, ...], *, pids: bool) -> LimitsEnforced:
    """Return which limits hold in a cluster of this *version*: before 1.22 volumes in memory have no size. *pids* says
    that guests bound their processes."""
    return replace(_HELD, disk=version >= _SIZED, pids=pids)


async def look_at_namespace(client: KubeClient) -> None:
    """Raise SandboxUnavailableError when the namespace is not there; who may not look is believed."""
    try:
        found = await client.get(f"/api/v1/namespaces/{client.namespace}")
    except KubeError as error:
        if error.status == 404:
            raise unavailable(
                f"the cluster has no namespace {client.namespace}", "make it with: toolexec sandbox kubernetes manifest"
            ) from error
        if error.status == 403:
            return
        raise _asked(error, f"the namespace {client.namespace} cannot be looked at") from error
    if (found.get("status") or {}).get("phase") == "Terminating":
        raise unavailable(f"the namespace {client.namespace} is being deleted", "wait, and make it again")


async def look_at_permissions(client: KubeClient, permissions: Sequence[Permission]) -> None:
    """Raise SandboxUnavailableError with all the permissions that we lack."""
    asked = [(each, verb) for each in permissions for verb in each.verbs]
    try:
        answers = await asyncio.gather(*(_allowed(client, each, verb) for each, verb in asked))
    except KubeError as error:
        raise _asked(error, "the cluster does not say what we may do") from error
    lacking = [
        f"{verb} {each.resource}{f'/{each.subresource}' if each.subresource else ''}"
        for (each, verb), allowed in zip(asked, answers, strict=True)
        if not allowed
    ]
    if lacking:
        raise unavailable(
            f"in the namespace {client.namespace} we lack the permissions: {', '.join(lacking)}",
            "grant them with: toolexec sandbox kubernetes manifest",
        )


async def _allowed(client: KubeClient, permission: Permission, verb: str) -> bool:
    attributes = {
        "namespace": client.namespace,
        "group": permission.group,
        "resource": permission.resource,
        "verb": verb,
    }
    if permission.subresource:
        attributes["subresource"] = permission.subresource
    if permission.names:
        (attributes["name"],) = permission.names
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    found = await client.ask("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body)
    return (found.get("status") or {}).get("allowed") is True


async def look_at_runtime_class(client: KubeClient, config: KubernetesConfig) -> str:
    """Return the handler of the runtime class. Raises SandboxUnavailableError for a class that is not there, and for
    one that is not what its name says: the profile hardened counts on it."""
    name = config.runtime_class
    if not name:
        return ""
    try:
        found = await client.get(f"/apis/node.k8s.io/v1/runtimeclasses/{name}")
    except KubeError as error:
        if error.status == 404:
            raise unavailable(f"the cluster has no runtime class {name}", "make it, or name one that it has") from error
        if error.status == 403:
            raise unavailable(
                f"we may not look at the runtime class {name}, and so do not know what it is",
                "allow it with: toolexec sandbox kubernetes manifest --runtime-class " + name,
            ) from error
        raise _asked(error, f"the runtime class {name} cannot be looked at") from error
    handler = str(found.get("handler") or "")
    if config.isolation != "container" and isolation_of(handler) != config.isolation:
        raise unavailable(
            f"the runtime class {name} has the handler {handler}, which is not {config.isolation}",
            "name a class whose handler is gVisor's (runsc) or Kata's",
        )
    return handler


async def ensure_policy(client: KubeClient) -> None:
    """Have the NetworkPolicy there that keeps our pods from the network: it is made where we may make any, which the
    manifest does not allow, as another one could let something through. Raises SandboxUnavailableError for none, and
    for one of that name that is another."""
    path = client.path("networking.k8s.io/v1", "networkpolicies")
    wanted = policy_body()
    try:
        try:
            found = await client.get(f"{path}/{POLICY}")
        except KubeError as error:
            if error.status != 404:
                raise
            await client.create(path, wanted)
            return
    except KubeError as error:
        if error.reason == "AlreadyExists":  # another process was quicker
            return
        if error.status == 403:
            raise unavailable(
                f"there is no NetworkPolicy {POLICY} in the namespace {client.namespace}, and we may not make it",
                "make it with: toolexec sandbox kubernetes manifest",
            ) from error
        raise _asked(error, f"the NetworkPolicy {POLICY} cannot be made") from error
    spec = found.get("spec") or {}
    if (
        spec.get("podSelector") != wanted["spec"]["podSelector"]
        or {*(spec.get("policyTypes") or ())} != {"Ingress", "Egress"}
        or spec.get("ingress")
        or spec.get("egress")
    ):
        raise unavailable(
            f"the NetworkPolicy {POLICY} in the namespace {client.namespace} lets something through",
            f"delete it, and it is made again: kubectl -n {client.namespace} delete networkpolicy {POLICY}",
        )


def _asked(error: KubeError, what: str) -> SandboxUnavailableError:
    """Return the error for a check that could not be made."""
    found = refusal(error, what)
    return SandboxUnavailableError(found.message, retryable=found.retryable, details=found.details)
