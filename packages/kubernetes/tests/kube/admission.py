"""Admission: Pod Security, quota, RuntimeClass, service accounts, and a webhook that denies on demand."""

from __future__ import annotations

import secrets
from typing import Any

from packages.kubernetes.tests.kube.objects import ApiError, Object, forbidden, quantity
from packages.kubernetes.tests.kube.store import Store

_VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
_TOKEN_DIRECTORY = "/var/run/secrets/kubernetes.io/serviceaccount"


def admit_pod(store: Store, pod: Object, denied: str = "") -> None:
    """Change *pod* as the admission plugins do, or refuse it with ApiError; *denied* is what a webhook has against it."""
    namespace, name = (
        pod["metadata"]["namespace"],
        pod["metadata"].get("name") or pod["metadata"].get("generateName", ""),
    )
    if denied:
        raise ApiError(403, f'admission webhook "deny.fixture" denied the request: {denied}')
    space = store.find("namespaces", "", namespace)
    if space is None:
        raise ApiError(404, f'namespaces "{namespace}" not found')
    if space["metadata"].get("deletionTimestamp"):
        why = f"unable to create new content in namespace {namespace} because it is being terminated"
        raise forbidden("pods", name, why)
    _service_account(store, pod, namespace, name)
    _runtime_class(store, pod, name)
    _pod_security(space, pod, name)
    _quota(store, pod, namespace, name)


def _service_account(store: Store, pod: Object, namespace: str, name: str) -> None:
    """Mount the token of the service account, unless the pod does without."""
    spec = pod["spec"]
    account = store.find("serviceaccounts", namespace, spec["serviceAccountName"])
    if account is None:
        why = f'error looking up service account {namespace}/{spec["serviceAccountName"]}: serviceaccount "{spec["serviceAccountName"]}" not found'
        raise forbidden("pods", name, why)
    spec["serviceAccount"] = spec["serviceAccountName"]
    wanted = spec.get("automountServiceAccountToken", account.get("automountServiceAccountToken", True))
    if not wanted:
        return
    volume = f"kube-api-access-{secrets.token_hex(3)[:5]}"
    spec.setdefault("volumes", []).append(
        {
            "name": volume,
            "projected": {
                "defaultMode": 0o644,
                "sources": [
                    {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                    {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
                ],
            },
        }
    )  # fmt: skip
    for container in [*(spec.get("initContainers") or []), *spec["containers"]]:
        mounts = container.setdefault("volumeMounts", [])
        if all(each["mountPath"] != _TOKEN_DIRECTORY for each in mounts):
            mounts.append({"name": volume, "mountPath": _TOKEN_DIRECTORY, "readOnly": True})


def _runtime_class(store: Store, pod: Object, name: str) -> None:
    wanted = pod["spec"].get("runtimeClassName")
    if wanted and store.find("runtimeclasses.node.k8s.io", "", wanted) is None:
        raise forbidden("pods", name, f'pod rejected: RuntimeClass "{wanted}" not found')


def _pod_security(space: Object, pod: Object, name: str) -> None:
    level = (space["metadata"].get("labels") or {}).get("pod-security.kubernetes.io/enforce", "privileged")
    found = [] if level == "privileged" else _baseline(pod["spec"])
    if level == "restricted":
        found += _restricted(pod["spec"])
    if found:
        raise forbidden("pods", name, f'violates PodSecurity "{level}:latest": {", ".join(found)}')


def _containers(spec: Object) -> list[Object]:
    return [*(spec.get("initContainers") or []), *spec["containers"]]


def _baseline(spec: Object) -> list[str]:
    found = [f"host namespaces ({name}=true)" for name in ("hostNetwork", "hostPID", "hostIPC") if spec.get(name)]
    found += [f'hostPath volumes (volume "{each["name"]}")' for each in spec.get("volumes") or [] if "hostPath" in each]
    for each in _containers(spec):
        if (each.get("securityContext") or {}).get("privileged"):
            found.append(f'privileged (container "{each["name"]}" must not set securityContext.privileged=true)')
    return found


def _restricted(spec: Object) -> list[str]:
    found: list[str] = []
    outer: Object = spec.get("securityContext") or {}
    for volume in spec.get("volumes") or []:
        if not _VOLUMES & set(volume):
            found.append(f'restricted volume types (volume "{volume["name"]}")')
    for each in _containers(spec):
        own: Object = each.get("securityContext") or {}
        found += [f'{what} (container "{each["name"]}" {must})' for what, must in _of_container(own, outer)]
    return found


def _of_container(own: Object, outer: Object) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    if own.get("allowPrivilegeEscalation") is not False:
        found.append(("allowPrivilegeEscalation != false", "must set securityContext.allowPrivilegeEscalation=false"))
    capabilities: Object = own.get("capabilities") or {}
    is_dropped = "ALL" in (capabilities.get("drop") or [])
    if not is_dropped or set(capabilities.get("add") or []) - {"NET_BIND_SERVICE"}:
        found.append(("unrestricted capabilities", 'must set securityContext.capabilities.drop=["ALL"]'))
    if not own.get("runAsNonRoot", outer.get("runAsNonRoot")):
        found.append(("runAsNonRoot != true", "must set securityContext.runAsNonRoot=true"))
    if own.get("runAsUser", outer.get("runAsUser")) == 0:
        found.append(("runAsUser=0", "must not set runAsUser=0"))
    profile = own.get("seccompProfile") or outer.get("seccompProfile") or {}
    if profile.get("type") not in ("RuntimeDefault", "Localhost"):
        found.append(
            ("seccompProfile", 'must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"')
        )
    return found


def _usage(pod: Object) -> dict[str, float]:
    """Return what *pod* uses of a quota; nothing once it has ended."""
    if pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
        return {}
    used: dict[str, float] = {"pods": 1, "count/pods": 1}
    for container in pod["spec"]["containers"]:
        resources: Object = container.get("resources") or {}
        for kind in ("requests", "limits"):
            for name, value in (resources.get(kind) or {}).items():
                used[f"{kind}.{name}"] = used.get(f"{kind}.{name}", 0) + quantity(value)
    for name in ("cpu", "memory", "ephemeral-storage"):
        if f"requests.{name}" in used:
            used[name] = used[f"requests.{name}"]
    return used


def quota_usage(store: Store, namespace: str) -> dict[str, float]:
    """Return what all pods of *namespace* use together."""
    total: dict[str, float] = {}
    for pod in store.all("pods", namespace):
        for name, value in _usage(pod).items():
            total[name] = total.get(name, 0) + value
    return total


def _quota(store: Store, pod: Object, namespace: str, name: str) -> None:
    for quota in store.all("resourcequotas", namespace):
        hard: dict[str, Any] = (quota.get("spec") or {}).get("hard") or {}
        used, wanted = quota_usage(store, namespace), _usage(pod)
        lacking = [
            key for key in hard if key not in wanted and key.startswith(("requests.", "limits.", "cpu", "memory"))
        ]
        if lacking:
            raise forbidden(
                "pods", name, f"failed quota: {quota['metadata']['name']}: must specify {','.join(lacking)}"
            )
        over = [key for key in hard if key in wanted and used.get(key, 0) + wanted[key] > quantity(hard[key])]
        if over:
            asked = ",".join(f"{key}={wanted[key]:g}" for key in over)
            has = ",".join(f"{key}={used.get(key, 0):g}" for key in over)
            limited = ",".join(f"{key}={hard[key]}" for key in over)
            why = f"exceeded quota: {quota['metadata']['name']}, requested: {asked}, used: {has}, limited: {limited}"
            raise forbidden("pods", name, why)
