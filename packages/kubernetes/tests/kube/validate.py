"""What an API server checks beyond the schema, and the defaults that it fills in: the parts that a client can get wrong."""

from __future__ import annotations

import re
from typing import Any

from packages.kubernetes.tests.kube.objects import Object, invalid, quantity
from packages.kubernetes.tests.kube.resources import Resource

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_ENV_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
_LAX_NAMES = {"roles", "rolebindings", "clusterroles", "clusterrolebindings"}

Causes = list[tuple[str, str]]


def check_values(resource: Resource, item: Object) -> None:
    """Refuse values that the schema allows and Kubernetes does not; raises ApiError with all of them."""
    causes: Causes = []
    _metadata(item.get("metadata") or {}, causes, lax=resource.plural in _LAX_NAMES)
    match resource.kind:
        case "Pod":
            _pod(item.get("spec") or {}, "spec", causes)
        case "Job":
            _job(item.get("spec") or {}, causes)
        case "Lease":
            _lease(item.get("spec") or {}, causes)
        case "NetworkPolicy":
            _policy(item.get("spec") or {}, causes)
        case "Sandbox" | "SandboxTemplate":
            _pod(item["spec"]["podTemplate"]["spec"], "spec.podTemplate.spec", causes)
        case "ResourceQuota":
            _quantities((item.get("spec") or {}).get("hard"), "spec.hard", causes)
        case _:
            pass
    if causes:
        metadata = item.get("metadata") or {}
        raise invalid(resource.kind, metadata.get("name") or metadata.get("generateName") or "", causes)


def _metadata(metadata: Object, causes: Causes, *, lax: bool) -> None:
    name = metadata.get("name")
    if not name and not metadata.get("generateName"):
        causes.append(("metadata.name", "Required value: name or generateName is required"))
    if name and not lax and (len(name) > 253 or not _SUBDOMAIN.fullmatch(name)):
        causes.append(("metadata.name", f'Invalid value: "{name}": a lowercase RFC 1123 subdomain must consist of ...'))
    for key, value in (metadata.get("labels") or {}).items():
        _key(key, "metadata.labels", causes)
        if len(value) > 63 or not _LABEL_VALUE.fullmatch(value):
            causes.append(("metadata.labels", f'Invalid value: "{value}": a valid label must be 63 characters or less'))
    for key in metadata.get("annotations") or {}:
        _key(key.lower(), "metadata.annotations", causes)


def _key(key: str, path: str, causes: Causes) -> None:
    prefix, slash, name = key.rpartition("/")
    is_fine = 0 < len(name) <= 63 and _LABEL_VALUE.fullmatch(name) and (not slash or _SUBDOMAIN.fullmatch(prefix))
    if not is_fine:
        causes.append((path, f'Invalid value: "{key}": name part must consist of alphanumeric characters'))


def _one_of(value: Any, allowed: tuple[str, ...], path: str, causes: Causes) -> None:
    if value is not None and value not in allowed:
        causes.append((path, f'Unsupported value: "{value}": supported values: {", ".join(map(repr, allowed))}'))


def _pod(spec: Object, path: str, causes: Causes) -> None:
    _one_of(spec.get("restartPolicy"), ("Always", "OnFailure", "Never"), f"{path}.restartPolicy", causes)
    _one_of(
        spec.get("dnsPolicy"),
        ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"),
        f"{path}.dnsPolicy",
        causes,
    )
    if spec.get("dnsPolicy") == "None" and not (spec.get("dnsConfig") or {}).get("nameservers"):
        said = "Required value: must provide at least one DNS nameserver when `dnsPolicy` is None"
        causes.append((f"{path}.dnsConfig.nameservers", said))
    if (seconds := spec.get("activeDeadlineSeconds")) is not None and not 1 <= seconds <= 2**31 - 1:
        said = f"Invalid value: {seconds}: must be between 1 and 2147483647, inclusive"
        causes.append((f"{path}.activeDeadlineSeconds", said))
    if (spec.get("terminationGracePeriodSeconds") or 0) < 0:
        causes.append((f"{path}.terminationGracePeriodSeconds", "Invalid value: must be greater than or equal to 0"))
    if spec.get("hostname") and not _LABEL.fullmatch(spec["hostname"]):
        causes.append((f"{path}.hostname", f'Invalid value: "{spec["hostname"]}": a lowercase RFC 1123 label'))
    volumes = _volumes(spec, path, causes)
    names: set[str] = set()
    if not spec.get("containers"):
        causes.append((f"{path}.containers", "Required value"))
    for kind in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(kind) or []):
            where = f"{path}.{kind}[{index}]"
            if container["name"] in names:
                causes.append((f"{where}.name", f'Duplicate value: "{container["name"]}"'))
            names.add(container["name"])
            _container(container, where, volumes, causes)
    _seccomp(spec.get("securityContext"), f"{path}.securityContext", causes)
    for index, each in enumerate(spec.get("tolerations") or []):
        _one_of(each.get("operator"), ("Exists", "Equal"), f"{path}.tolerations[{index}].operator", causes)
        _one_of(each.get("effect"), ("NoSchedule", "PreferNoSchedule", "NoExecute"), f"{path}.tolerations[{index}].effect", causes)  # fmt: skip


def _volumes(spec: Object, path: str, causes: Causes) -> set[str]:
    names: set[str] = set()
    for index, volume in enumerate(spec.get("volumes") or []):
        where = f"{path}.volumes[{index}]"
        if not _LABEL.fullmatch(volume["name"]):
            causes.append((f"{where}.name", f'Invalid value: "{volume["name"]}": a lowercase RFC 1123 label'))
        if volume["name"] in names:
            causes.append((f"{where}.name", f'Duplicate value: "{volume["name"]}"'))
        names.add(volume["name"])
        if len([key for key in volume if key != "name"]) != 1:
            causes.append((where, "Required value: must specify exactly one volume type"))
        empty = volume.get("emptyDir") or {}
        _one_of(empty.get("medium") or None, ("Memory", "HugePages"), f"{where}.emptyDir.medium", causes)
        if "sizeLimit" in empty:
            _quantities({"sizeLimit": empty["sizeLimit"]}, f"{where}.emptyDir", causes)
    return names


def _container(container: Object, path: str, volumes: set[str], causes: Causes) -> None:
    if not _LABEL.fullmatch(container["name"]):
        causes.append((f"{path}.name", f'Invalid value: "{container["name"]}": a lowercase RFC 1123 label'))
    if not container.get("image"):
        causes.append((f"{path}.image", "Required value"))
    _one_of(container.get("imagePullPolicy"), ("Always", "IfNotPresent", "Never"), f"{path}.imagePullPolicy", causes)
    targets: set[str] = set()
    for index, mount in enumerate(container.get("volumeMounts") or []):
        where = f"{path}.volumeMounts[{index}]"
        if mount["name"] not in volumes:
            causes.append((f"{where}.name", f'Not found: "{mount["name"]}"'))
        if mount["mountPath"] in targets:
            causes.append((f"{where}.mountPath", f'Invalid value: "{mount["mountPath"]}": must be unique'))
        targets.add(mount["mountPath"])
    for index, each in enumerate(container.get("env") or []):
        if not _ENV_NAME.fullmatch(each["name"]):
            causes.append((f"{path}.env[{index}].name", f'Invalid value: "{each["name"]}"'))
        if each.get("value") and each.get("valueFrom"):
            causes.append(
                (f"{path}.env[{index}].valueFrom", "Invalid value: may not be specified when `value` is not empty")
            )
    _limits(container.get("resources") or {}, f"{path}.resources", causes)
    context = container.get("securityContext") or {}
    _seccomp(context, f"{path}.securityContext", causes)
    if context.get("privileged") and context.get("allowPrivilegeEscalation") is False:
        said = "Invalid value: cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
        causes.append((f"{path}.securityContext", said))


def _seccomp(context: Object | None, path: str, causes: Causes) -> None:
    profile = (context or {}).get("seccompProfile")
    if profile:
        _one_of(
            profile.get("type"), ("Localhost", "RuntimeDefault", "Unconfined"), f"{path}.seccompProfile.type", causes
        )


def _limits(resources: Object, path: str, causes: Causes) -> None:
    _quantities(resources.get("limits"), f"{path}.limits", causes)
    _quantities(resources.get("requests"), f"{path}.requests", causes)
    if causes:
        return
    limits = resources.get("limits") or {}
    for name, value in (resources.get("requests") or {}).items():
        if name in limits and quantity(value) > quantity(limits[name]):
            said = f'Invalid value: "{value}": must be less than or equal to {name} limit of {limits[name]}'
            causes.append((f"{path}.requests", said))


def _quantities(found: Object | None, path: str, causes: Causes) -> None:
    for name, value in (found or {}).items():
        try:
            if quantity(value) < 0:
                causes.append((f"{path}[{name}]", f'Invalid value: "{value}": must be greater than or equal to 0'))
        except ValueError as error:
            causes.append((f"{path}[{name}]", f'Invalid value: "{value}": {error}'))


def _job(spec: Object, causes: Causes) -> None:
    template = spec["template"].get("spec") or {}
    _pod(template, "spec.template.spec", causes)
    if template.get("restartPolicy", "Always") not in ("Never", "OnFailure"):
        said = 'Required value: valid values: "OnFailure", "Never"'
        causes.append(("spec.template.spec.restartPolicy", said))
    for name in ("backoffLimit", "ttlSecondsAfterFinished", "parallelism", "completions", "activeDeadlineSeconds"):
        if (spec.get(name) or 0) < 0:
            causes.append((f"spec.{name}", f"Invalid value: {spec[name]}: must be greater than or equal to 0"))


def _lease(spec: Object, causes: Causes) -> None:
    if (seconds := spec.get("leaseDurationSeconds")) is not None and seconds <= 0:
        causes.append(("spec.leaseDurationSeconds", f"Invalid value: {seconds}: must be greater than 0"))


def _policy(spec: Object, causes: Causes) -> None:
    for index, each in enumerate(spec.get("policyTypes") or []):
        _one_of(each, ("Ingress", "Egress"), f"spec.policyTypes[{index}]", causes)


def fill_defaults(resource: Resource, item: Object) -> None:
    """Fill in what an API server fills in, so that clients do not take what they read for what they wrote."""
    if resource.kind == "Pod":
        _pod_defaults(item["spec"])
        item["status"] = {"phase": "Pending", "qosClass": _quality(item["spec"])}
    elif resource.kind == "Job":
        spec = item["spec"]
        for name, value in (("parallelism", 1), ("completions", 1), ("backoffLimit", 6), ("suspend", False)):
            spec.setdefault(name, value)
        spec.setdefault("completionMode", "NonIndexed")
        _pod_defaults(spec["template"]["spec"])
        item["status"] = {}
    elif resource.kind == "Namespace":
        item |= {"spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}
        item["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = item["metadata"]["name"]
    elif resource.kind in ("Sandbox", "SandboxClaim", "SandboxWarmPool"):
        item.pop("status", None)
        if resource.kind == "Sandbox":
            item["spec"].setdefault("operatingMode", "Running")


def _pod_defaults(spec: Object) -> None:
    defaults: Object = {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "schedulerName": "default-scheduler",
        "serviceAccountName": "default",
        "enableServiceLinks": True,
        "priority": 0,
        "preemptionPolicy": "PreemptLowerPriority",
    }
    for name, value in defaults.items():
        spec.setdefault(name, value)
    for container in [*(spec.get("initContainers") or []), *spec["containers"]]:
        resources = container.setdefault("resources", {})
        if resources.get("limits"):
            resources["requests"] = {**resources["limits"], **(resources.get("requests") or {})}
        is_latest = container["image"].rpartition("/")[2].partition(":")[2] in ("", "latest")
        container.setdefault("imagePullPolicy", "Always" if is_latest else "IfNotPresent")
        container.setdefault("terminationMessagePath", "/dev/termination-log")
        container.setdefault("terminationMessagePolicy", "File")
    for volume in spec.get("volumes") or []:
        for kind in ("secret", "configMap", "projected"):
            if kind in volume:
                volume[kind].setdefault("defaultMode", 0o644)


def _quality(spec: Object) -> str:
    """Return the quality-of-service class, by which the node chooses what to evict."""
    resources = [each.get("resources") or {} for each in spec["containers"]]
    if all(not each.get("limits") and not each.get("requests") for each in resources):
        return "BestEffort"
    for each in resources:
        limits, requests = each.get("limits") or {}, each.get("requests") or {}
        if any(quantity(limits.get(name, 0)) != quantity(requests.get(name, -1)) for name in ("cpu", "memory")):
            return "Burstable"
    return "Guaranteed"
