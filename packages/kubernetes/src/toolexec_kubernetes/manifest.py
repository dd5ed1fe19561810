"""What a cluster needs so that toolexec can run code in it, and no more: objects for its operator to apply. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Final

from toolexec.containers import GuestSettings, JSONDict, JSONValue, Network, boot_command, spec_for
from toolexec.sandbox import Limits
from toolexec_kubernetes.brought import BRINGER_MEMORY
from toolexec_kubernetes.checks import permissions_for
from toolexec_kubernetes.config import KubernetesConfig
from toolexec_kubernetes.pools import pool_bodies
from toolexec_kubernetes.sidecars import sidecar_memory
from toolexec_kubernetes.spec import MANAGED_LABEL, MANAGER, pod_spec, policy_body, with_one_user

_PLAIN: Final = re.compile(r"[A-Za-z/][A-Za-z0-9./_-]*")
_WORDS: Final = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})


def make_manifest(
    config: KubernetesConfig, *, account: str = "toolexec", pool: str = "", replicas: int = 2, pods: int = 0
) -> list[JSONDict]:
    """Return the objects: the namespace with the pod security standard `restricted`, the ServiceAccount *account* with
    the permissions that the backend needs and no others, the NetworkPolicy, and, for a runtime class, the permission to
    look at it.

    With *pool* there is a warm pool of that name for the controller of agent-sandbox, of *replicas* pods that are what
    *config* says for Python. *pods* is how many pods the namespace may have (0: no quota).
    """
    namespace = config.namespace or "toolexec"
    made: list[JSONDict] = [
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {
                "name": namespace,
                "labels": {MANAGED_LABEL: MANAGER, "pod-security.kubernetes.io/enforce": "restricted"},
            },
        },
        _object("v1", "ServiceAccount", account, automountServiceAccountToken=False),
        _object("rbac.authorization.k8s.io/v1", "Role", account, rules=_rules(config, claims=bool(pool))),
        _object("rbac.authorization.k8s.io/v1", "RoleBinding", account, **_binding("Role", account, namespace)),
        policy_body(),
    ]
    if pods:
        made.append(_object("v1", "ResourceQuota", account, spec={"hard": _hard(config, pods)}))
    if pool:
        made += pool_bodies(pool, python_pod(config), replicas, config)
    for each in made[1:]:
        each["metadata"] = {"name": each["metadata"]["name"], "namespace": namespace, **each["metadata"]}
    if config.runtime_class:
        name = f"{account}-runtime-class"
        rule = {
            "apiGroups": ["node.k8s.io"],
            "resources": ["runtimeclasses"],
            "resourceNames": [config.runtime_class],
            "verbs": ["get"],
        }
        made.append(_object("rbac.authorization.k8s.io/v1", "ClusterRole", name, rules=[rule]))
        binding = _binding("ClusterRole", name, namespace, account)
        made.append(_object("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", name, **binding))
    return made


def python_pod(config: KubernetesConfig) -> JSONDict:
    """Return the `spec` of a pod that waits for a Python program, as the backend would make it."""
    network = Network(config.egress)
    spec = spec_for(
        image=config.image,
        command=boot_command(GuestSettings(language="python", proxy_port=network.port, drop=config.guest_drops)),
        limits=Limits(),
        profile="standard",
        config=config,
        kind="kubernetes",
        env=network.env,
    )
    return pod_spec(config.image, with_one_user(spec, config), config)


def to_yaml(documents: Sequence[JSONValue]) -> str:
    """Return *documents* as YAML, one after the other."""
    return "".join(f"---\n{''.join(_lines(each, 0))}" for each in documents)


def _object(version: str, kind: str, name: str, **parts: JSONValue) -> JSONDict:
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": name, "labels": {MANAGED_LABEL: MANAGER}},
        **parts,
    }


def _rules(config: KubernetesConfig, *, claims: bool) -> list[JSONValue]:
    return [
        {
            "apiGroups": [each.group],
            "resources": [f"{each.resource}/{each.subresource}" if each.subresource else each.resource],
            **({"resourceNames": [*each.names]} if each.names else {}),
            "verbs": [*each.verbs],
        }
        for each in permissions_for(
            jobs=config.jobs,
            claims=claims,
            workspace=config.own_workspace,
            sandboxes=config.agent_sandbox and config.suspend_seconds > 0,
        )
    ]


def _binding(kind: str, role: str, namespace: str, account: str = "") -> JSONDict:
    return {
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account or role, "namespace": namespace}],
    }


def _hard(config: KubernetesConfig, pods: int) -> JSONDict:
    """Return the bounds of the namespace: *pods* of the usual size."""
    limits = config.limits
    hard: JSONDict = {"pods": str(pods)}
    if limits.memory_bytes:
        memory = limits.memory_bytes + sidecar_memory(config.all_sidecars)
        hard["limits.memory"] = str(pods * max(memory, BRINGER_MEMORY if config.runtime_image else 0))
    return hard


def _lines(value: JSONValue, depth: int) -> Iterator[str]:
    """Yield the lines of a mapping or a list that is not empty."""
    indent = "  " * depth
    if isinstance(value, dict):
        for name, inner in value.items():
            if isinstance(inner, dict | list) and inner:
                yield f"{indent}{_scalar(name)}:\n"
                yield from _lines(inner, depth + isinstance(inner, dict))
            else:
                yield f"{indent}{_scalar(name)}: {_scalar(inner)}\n"
        return
    for inner in value if isinstance(value, list) else ():
        if isinstance(inner, dict | list) and inner:
            first, *others = _lines(inner, depth + 1)
            yield f"{indent}- {first.removeprefix(indent + '  ')}"
            yield from others
        else:
            yield f"{indent}- {_scalar(inner)}\n"


def _scalar(value: JSONValue) -> str:
    """Return what YAML reads as the same value: plain where it cannot be mistaken, else JSON, which is YAML, too."""
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    return json.dumps(value)
