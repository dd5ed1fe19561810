"""Which resources there are, and what the API says about them in its discovery documents."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from packages.kubernetes.tests.kube.objects import Object

AGENTS = "agents.x-k8s.io"
EXTENSIONS = f"extensions.{AGENTS}"
_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]


@dataclass(frozen=True)
class Resource:
    """A resource: `model` is the class of the published client that describes it; "" for one of a CRD."""

    group: str
    version: str
    plural: str
    kind: str
    model: str
    namespaced: bool = True
    subresources: tuple[str, ...] = ()
    short: tuple[str, ...] = ()
    create_only: bool = False

    @cached_property
    def key(self) -> str:
        """Return what the store calls it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def api_version(self) -> str:
        """Return what objects have as `apiVersion`."""
        return f"{self.group}/{self.version}" if self.group else self.version


_POD = ("status", "log", "exec", "attach", "eviction", "ephemeralcontainers", "resize", "binding", "portforward")
_STATUS = ("status",)
_RBAC, _AUTH = "rbac.authorization.k8s.io", "authorization.k8s.io"

RESOURCES = (
    Resource("", "v1", "namespaces", "Namespace", "V1Namespace", False, ("status", "finalize"), ("ns",)),
    Resource("", "v1", "nodes", "Node", "V1Node", False, _STATUS, ("no",)),
    Resource("", "v1", "pods", "Pod", "V1Pod", True, _POD, ("po",)),
    Resource("", "v1", "events", "Event", "CoreV1Event", True, (), ("ev",)),
    Resource("", "v1", "configmaps", "ConfigMap", "V1ConfigMap", True, (), ("cm",)),
    Resource("", "v1", "secrets", "Secret", "V1Secret"),
    Resource("", "v1", "persistentvolumes", "PersistentVolume", "V1PersistentVolume", False, _STATUS, ("pv",)),
    Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", "V1PersistentVolumeClaim", True, _STATUS, ("pvc",)),
    Resource("", "v1", "services", "Service", "V1Service", True, _STATUS, ("svc",)),
    Resource("", "v1", "serviceaccounts", "ServiceAccount", "V1ServiceAccount", True, ("token",), ("sa",)),
    Resource("", "v1", "resourcequotas", "ResourceQuota", "V1ResourceQuota", True, _STATUS, ("quota",)),
    Resource("", "v1", "limitranges", "LimitRange", "V1LimitRange"),
    Resource("batch", "v1", "jobs", "Job", "V1Job", True, _STATUS),
    Resource("coordination.k8s.io", "v1", "leases", "Lease", "V1Lease"),
    Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", "V1NetworkPolicy", True, (), ("netpol",)),
    Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", "V1RuntimeClass", False),
    Resource(_RBAC, "v1", "roles", "Role", "V1Role"),
    Resource(_RBAC, "v1", "rolebindings", "RoleBinding", "V1RoleBinding"),
    Resource(_RBAC, "v1", "clusterroles", "ClusterRole", "V1ClusterRole", False),
    Resource(_RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", "V1ClusterRoleBinding", False),
    Resource(
        _AUTH, "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", "V1SelfSubjectAccessReview", False,
        create_only=True,
    ),
    Resource(AGENTS, "v1beta1", "sandboxes", "Sandbox", "", True, _STATUS, ("sandbox",)),
    Resource(EXTENSIONS, "v1beta1", "sandboxtemplates", "SandboxTemplate", "", True, (), ("sandboxtemplate",)),
    Resource(EXTENSIONS, "v1beta1", "sandboxwarmpools", "SandboxWarmPool", "", True, ("status", "scale"), ("swp",)),
    Resource(EXTENSIONS, "v1beta1", "sandboxclaims", "SandboxClaim", "", True, _STATUS, ("sandboxclaim",)),
)  # fmt: skip
_BY_PATH = {(each.group, each.version, each.plural): each for each in RESOURCES}


def find_resource(group: str, version: str, plural: str) -> Resource | None:
    """Return the resource of that path."""
    return _BY_PATH.get((group, version, plural))


def discovery(group: str, version: str) -> Object | None:
    """Return the APIResourceList of a group version."""
    found = [each for each in RESOURCES if (each.group, each.version) == (group, version)]
    if not found:
        return None
    listed: list[Object] = []
    for each in found:
        verbs = ["create"] if each.create_only else _VERBS
        entry: Object = {"name": each.plural, "singularName": each.kind.lower(), "namespaced": each.namespaced}
        entry |= {"kind": each.kind, "verbs": verbs} | ({"shortNames": [*each.short]} if each.short else {})
        listed.append(entry)
        for name in each.subresources:
            listed.append(_subresource(each, name))
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": found[0].api_version,
        "resources": listed,
    }


def _subresource(resource: Resource, name: str) -> Object:
    kinds = {"exec": "PodExecOptions", "attach": "PodAttachOptions", "eviction": "Eviction", "token": "TokenRequest"}
    verbs = {"exec": ["create", "get"], "attach": ["create", "get"], "eviction": ["create"], "token": ["create"]}
    entry: Object = {"name": f"{resource.plural}/{name}", "singularName": "", "namespaced": resource.namespaced}
    entry |= {"kind": kinds.get(name, resource.kind), "verbs": verbs.get(name, ["get", "patch", "update"])}
    if name == "eviction":
        entry |= {"group": "policy", "version": "v1"}
    if name == "token":
        entry |= {"group": "authentication.k8s.io", "version": "v1"}
    return entry


def group_list(hidden: frozenset[str]) -> Object:
    """Return the APIGroupList, without the groups *hidden*."""
    groups: dict[str, str] = {each.group: each.version for each in RESOURCES if each.group and each.group not in hidden}
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(*each) for each in groups.items()]}


def _group(name: str, version: str) -> Object:
    preferred = {"groupVersion": f"{name}/{version}", "version": version}
    return {"name": name, "versions": [preferred], "preferredVersion": preferred}
