"""Containers as objects of Kubernetes: pods, Jobs, claims, and the NetworkPolicy that holds them. Pure."""

from __future__ import annotations

import hashlib
import json
import math
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Final

from toolexec.containers import HOSTNAME, NAMESPACES, NOBODY, OWNER_LABEL, JSONDict, JSONObject, Security
from toolexec.errors import SandboxDeniedError
from toolexec.sandbox import ContainerSpec
from toolexec_kubernetes.brought import BROUGHT_BYTES, bringer_bodies, brought_mounts, brought_volumes, with_brought
from toolexec_kubernetes.config import CONTAINER, LINK_QUIET, KubernetesConfig
from toolexec_kubernetes.sidecars import sidecar_bodies, sidecar_volumes
from toolexec_kubernetes.volumes import node_bytes, volume_bodies, volume_mounts
from toolexec_kubernetes.workspace import claimed_at

AGENTS: Final = "agents.x-k8s.io/v1beta1"
"""Where a Sandbox of agent-sandbox belongs."""
MANAGED_LABEL: Final = "app.kubernetes.io/managed-by"
MANAGER: Final = "toolexec"
OWNED_LABEL: Final = "toolexec.io/owner"
"""The process that a pod, Job, claim or Lease belongs to; see `toolexec.process.owner`."""
RUN_LABEL: Final = "toolexec.io/run"
"""Which of its process's containers a pod is."""
SANDBOX_LABEL: Final = "toolexec.io/sandbox"
"""What the NetworkPolicy selects."""
SPEC_LABEL: Final = "toolexec.io/spec"
"""The digest of what the pods of a warm pool are; see `spec_hash`."""
POOL_LABEL: Final = "toolexec.io/pool"
"""The warm pool that uses a template."""
POLICY: Final = "toolexec-sandboxes"
"""The name of the NetworkPolicy."""

_LABEL: Final = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_LABEL_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LOGS: Final = 128 << 20
"""What the kubelet keeps of a container's output counts as its ephemeral storage; it rotates at some ten megabytes."""
_NODE_GONE: Final = 10
"""How many seconds a pod stays on a node that is lost: its run is lost, too, and the caller waits."""
_GRACE: Final = 1
_OF_THE_NODE: Final = {"network": "hostNetwork", "pid": "hostPID", "ipc": "hostIPC"}
"""By namespace, how a pod asks for that of its node; it has its own of the other kinds in any case."""
_SERVICE: Final = (
    "KUBERNETES_SERVICE_HOST",
    "KUBERNETES_SERVICE_PORT",
    "KUBERNETES_SERVICE_PORT_HTTPS",
    "KUBERNETES_PORT",
    *(f"KUBERNETES_PORT_443_TCP{part}" for part in ("", "_PROTO", "_PORT", "_ADDR")),
)
"""What a kubelet says to each container of the API server, whatever `enableServiceLinks` is; a program needs none of
it."""
_FIRST_USER: Final = 1 << 24
_LAST_USER: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What a container is made by: *body* goes to objects of *kind* in *group*, and *run* is the label of its pod.

    With `own_users` the pod has to have users of its own: one that was made without is not used. `linked` says what its
    stdin and stdout are; see `pod_spec`. `beside` has the names of the containers that have to run, too. `keeps` is for
    how many seconds it stays when it is suspended, where that is possible.
    """

    group: str
    kind: str
    body: JSONObject
    run: str
    image: str
    own_users: bool = False
    linked: bool = True
    beside: tuple[str, ...] = ()
    keeps: int = 0

    @property
    def id(self) -> str:
        """What the object is called, with its kind: `pods/…`."""
        return f"{self.kind}/{self.body['metadata']['name']}"


def labels_of(
    spec: ContainerSpec, owner: str, run: str, settings: Mapping[str, str] = MappingProxyType({})
) -> dict[str, str]:
    """Return the labels of a pod: those of the *settings*, those of *spec* that can be labels in Kubernetes, and last
    ours, so that they are what we say."""
    own = {
        name: value
        for name, value in spec.labels.items()
        if name != OWNER_LABEL and _LABEL_NAME.fullmatch(name) and _LABEL.fullmatch(value)
    }
    return {**settings, **own, MANAGED_LABEL: MANAGER, SANDBOX_LABEL: "true", OWNED_LABEL: owner, RUN_LABEL: run}


def metadata_of(labels: Mapping[str, str], annotations: Mapping[str, str]) -> JSONDict:
    """Return the metadata of a pod, but for its name."""
    return {"labels": dict(labels), **({"annotations": dict(annotations)} if annotations else {})}


def pod_body(
    name: str, labels: Mapping[str, str], spec: JSONObject, annotations: Mapping[str, str] = MappingProxyType({})
) -> JSONDict:
    """Return the pod *name* of a `pod_spec`."""
    metadata = {"name": name, **metadata_of(labels, annotations)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": dict(spec)}


def job_body(
    name: str,
    labels: Mapping[str, str],
    spec: JSONObject,
    annotations: Mapping[str, str] = MappingProxyType({}),
    *,
    ttl: int,
) -> JSONDict:
    """Return the Job *name* that makes one pod, once; it and its pod are removed *ttl* seconds after its end."""
    job: JSONDict = {
        "backoffLimit": 0,
        "ttlSecondsAfterFinished": ttl,
        "template": {"metadata": metadata_of(labels, annotations), "spec": dict(spec)},
    }
    if "activeDeadlineSeconds" in spec:
        job["activeDeadlineSeconds"] = spec["activeDeadlineSeconds"]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": dict(labels)},
        "spec": job,
    }


def claim_body(name: str, pool: str, owner: str, run: str, ends: str) -> JSONDict:
    """Return the claim of one pod of the warm pool *pool*, which the cluster itself takes back at *ends* (RFC 3339)."""
    own = {OWNED_LABEL: owner, RUN_LABEL: run}
    return {
        "apiVersion": "extensions.agents.x-k8s.io/v1beta1",
        "kind": "SandboxClaim",
        "metadata": {"name": name, "labels": {MANAGED_LABEL: MANAGER, **own}},
        "spec": {
            "warmPoolRef": {"name": pool},
            "lifecycle": {"shutdownTime": ends, "shutdownPolicy": "Delete"},
            "additionalPodMetadata": {"labels": own},
        },
    }


def policy_body() -> JSONDict:
    """Return the NetworkPolicy under which no pod of ours has a network: nothing may come in or go out."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": POLICY, "labels": {MANAGED_LABEL: MANAGER}},
        "spec": {
            "podSelector": {"matchLabels": {SANDBOX_LABEL: "true"}},
            "policyTypes": ["Ingress", "Egress"],
        },
    }


def random_user() -> int:
    """Return a number for the user of one pod, which no other pod has: the kernel counts processes by it."""
    return _FIRST_USER + secrets.randbelow(_LAST_USER - _FIRST_USER)


def with_user(spec: ContainerSpec, user: int) -> ContainerSpec:
    """Return *spec* for another user; the group stays."""
    group = spec.security.user.partition(":")[2] or NOBODY.partition(":")[2]
    return replace(spec, security=replace(spec.security, user=f"{user}:{group}"))


def with_one_user(spec: ContainerSpec, config: KubernetesConfig) -> ContainerSpec:
    """Return *spec* for the user that all pods of *config* have; as it is where each has another one."""
    return with_user(spec, config.one_user) if config.one_user else spec


def spec_hash(spec: JSONObject, config: KubernetesConfig) -> str:
    """Return the digest of a `pod_spec` without its deadline, and of the labels and annotations that *config* has: pods
    of the same digest are alike."""
    alike = {name: value for name, value in spec.items() if name != "activeDeadlineSeconds"}
    alike |= {name: {**given} for name in ("labels", "annotations") if (given := getattr(config, name))}
    return hashlib.sha256(json.dumps(alike, sort_keys=True).encode()).hexdigest()[:32]


def link_command(command: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command of a container that runs *command* at the other end of a `ResumedStream`."""
    return ("python3", "-I", "-S", "-c", _link_text(), str(LINK_QUIET), *command)


@cache
def _link_text() -> str:
    return files("toolexec_kubernetes").joinpath("link.py").read_text("utf-8")


def pod_spec(
    image: str, spec: ContainerSpec, config: KubernetesConfig, *, seconds: int = 0, linked: bool = True
) -> JSONDict:
    """Return the `spec` of a pod that is *spec*, of *image*, for at most *seconds* (0: as long as it likes). Its stdin
    and stdout are the other end of a `ResumedStream`, unless it is not *linked*: then they are those of its command.

    It fits the pod security standard `restricted` under all profiles but `dev`. Bounds on processes are the kubelet's
    business, and are left out.

    Raises SandboxDeniedError for a spec that would let code out: no spec of ours does that.
    """
    _refuse(spec)
    guest, brought = _container(image, spec, config, linked=linked), config.runtime_image
    pod: JSONDict = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "hostname": HOSTNAME,
        **{_OF_THE_NODE[kind]: False for kind in NAMESPACES if kind in _OF_THE_NODE},
        "shareProcessNamespace": False,
        **({"hostUsers": False} if config.user_namespaces else {}),
        "dnsPolicy": "None",
        "dnsConfig": {"nameservers": ["127.0.0.1"]},  # a name that is looked up would leave the pod
        "terminationGracePeriodSeconds": _GRACE,
        "securityContext": _pod_security(spec, claims=_has_claims(spec, config)),
        "containers": [
            guest,
            *sidecar_bodies(config.all_sidecars, _side_rights(spec, config), _pull(config)),
        ],
        "volumes": [
            _volume(number, claimed_at(spec, mount.target), mount.size_bytes)
            for number, mount in enumerate(spec.mounts)
        ]
        + volume_bodies(config.all_volumes)
        + brought_volumes(brought)
        + sidecar_volumes(config.all_sidecars),
        "tolerations": [
            *(dict(each) for each in config.tolerations),
            *(
                {
                    "key": f"node.kubernetes.io/{trouble}",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": _NODE_GONE,
                }
                for trouble in ("not-ready", "unreachable")
            ),
        ],
    }
    named: JSONDict = {
        "initContainers": bringer_bodies(brought, guest),
        "activeDeadlineSeconds": seconds,
        "runtimeClassName": spec.runtime or config.runtime_class,
        "serviceAccountName": config.service_account,
        "nodeSelector": dict(config.node_selector),
        "imagePullSecrets": [{"name": name} for name in config.pull_secrets],
        "priorityClassName": config.priority_class,
    }
    return pod | {name: value for name, value in named.items() if value}


def _container(image: str, spec: ContainerSpec, config: KubernetesConfig, *, linked: bool) -> JSONDict:
    command = link_command(spec.command) if linked else spec.command
    command = with_brought(command) if config.runtime_image else command
    env = {**spec.env, **dict.fromkeys(_SERVICE, "")} if linked else spec.env
    bounds = _bounds(spec, config)
    uid, gid = _user(spec)
    return {
        "name": CONTAINER,
        "image": image,
        "imagePullPolicy": _pull(config),
        # `$(NAME)` would be a variable to the kubelet
        "command": [word.replace("$", "$$") for word in command],
        "workingDir": spec.working_dir,
        "env": [{"name": name, "value": value.replace("$", "$$")} for name, value in env.items()],
        "stdin": True,
        "stdinOnce": not linked,  # which would end with the first connection
        "resources": bounds,
        "securityContext": _rights(spec.security, uid, gid),
        "volumeMounts": [
            {
                "name": _volume_name(number, claimed_at(spec, mount.target)),
                "mountPath": mount.target,
                **({"readOnly": True} if mount.read_only else {}),
            }
            for number, mount in enumerate(spec.mounts)
        ]
        + volume_mounts(config.all_volumes)
        + brought_mounts(config.runtime_image),
    }


def _volume_name(number: int, claim: str) -> str:
    return "workspace" if claim else f"tmpfs-{number}"


def _volume(number: int, claim: str, size: int) -> JSONDict:
    source: JSONDict = {"emptyDir": {"medium": "Memory", "sizeLimit": str(size)}}
    if claim:
        source = {"persistentVolumeClaim": {"claimName": claim}}
    return {"name": _volume_name(number, claim), **source}


def _has_claims(spec: ContainerSpec, config: KubernetesConfig) -> bool:
    ours = any(claimed_at(spec, mount.target) for mount in spec.mounts)
    return ours or any(each.claim for each in config.all_volumes)


def _pull(config: KubernetesConfig) -> str:
    return {"always": "Always", "never": "Never"}.get(config.pull, "IfNotPresent")


def _rights(security: Security, uid: int, gid: int) -> JSONDict:
    kept = [name.removeprefix("CAP_") for name in security.keep_capabilities]
    return {
        "privileged": False,
        "procMount": "Default",  # in which a runtime hides what is hidden in containers
        "allowPrivilegeEscalation": not security.no_new_privileges,
        "readOnlyRootFilesystem": security.read_only_root,
        "runAsNonRoot": True,
        "runAsUser": uid,
        "runAsGroup": gid,
        "capabilities": {"drop": ["ALL"], **({"add": kept} if kept else {})},
    }


def _side_rights(spec: ContainerSpec, config: KubernetesConfig) -> JSONDict:
    """Return the rights of a container beside the guest: by another user where each pod has its own, as the kernel
    counts processes by user."""
    uid, gid = _user(spec)
    security = replace(spec.security, read_only_root=True, no_new_privileges=True, keep_capabilities=())
    return _rights(security, uid if config.one_user else uid + 1, gid)


def _bounds(spec: ContainerSpec, config: KubernetesConfig) -> JSONDict:
    resources = spec.resources
    limits: dict[str, str] = {}
    if resources.memory_bytes:
        limits["memory"] = str(resources.memory_bytes)
    if resources.cpus:
        limits["cpu"] = f"{math.ceil(resources.cpus * 1000)}m"
    if resources.disk_bytes:
        limits["ephemeral-storage"] = str(resources.disk_bytes + _LOGS + _on_the_node(config))
    requests = dict(limits)
    if "cpu" not in requests and config.cpu_request:
        requests["cpu"] = f"{math.ceil(config.cpu_request * 1000)}m"
    return {"limits": limits, "requests": requests}


def _on_the_node(config: KubernetesConfig) -> int:
    return node_bytes(config.all_volumes) + (BROUGHT_BYTES if config.runtime_image else 0)


def _pod_security(spec: ContainerSpec, *, claims: bool) -> JSONDict:
    uid, gid = _user(spec)
    profile: JSONDict = {"type": "RuntimeDefault"}
    if spec.security.seccomp == "unconfined":
        profile = {"type": "Unconfined"}
    elif spec.security.seccomp != "default":
        profile = {"type": "Localhost", "localhostProfile": spec.security.seccomp}
    owner: JSONDict = {"fsGroup": gid, "fsGroupChangePolicy": "OnRootMismatch"} if claims else {"fsGroup": gid}
    return {"runAsNonRoot": True, "runAsUser": uid, "runAsGroup": gid, **owner, "seccompProfile": profile}


def _user(spec: ContainerSpec) -> tuple[int, int]:
    """Return the numbers of its user and group; an image that knows names cannot be asked here."""
    user, _, group = spec.security.user.partition(":")
    if not user.isdecimal() or not (group or user).isdecimal():
        user, _, group = NOBODY.partition(":")
    return int(user), int(group or user)


def _refuse(spec: ContainerSpec) -> None:
    """Refuse a forbidden spec. Its maker has checked this before; this last gate must hold by itself."""
    if spec.security.privileged:
        raise SandboxDeniedError("a sandbox is never privileged")
    if spec.security.network == "host":
        raise SandboxDeniedError("a sandbox never has the network of its node")
    if 0 in _user(spec):
        raise SandboxDeniedError("a sandbox is never root")
    bound = [mount.target for mount in spec.mounts if mount.type != "tmpfs"]
    if bound:
        raise SandboxDeniedError(
            f"a pod has no files of its node, yet {', '.join(bound)} is to be one; hand over files"
        )
