"""The schema of the resources of the SIG's agent-sandbox, version v1beta1, which no client's classes describe."""

from __future__ import annotations

Fields = tuple[dict[str, tuple[str, str]], tuple[str, ...]]


def _kind(required: str = "", /, **fields: str) -> Fields:
    """Return field → (attribute, type), and the required fields."""
    return {name: (name, kind) for name, kind in fields.items()}, tuple(required.split())


def _top(spec: str, status: str) -> Fields:
    kinds = {"apiVersion": "str", "kind": "str", "metadata": "V1ObjectMeta", "spec": spec}
    return _kind("spec", **kinds, **({"status": status} if status else {}))


_BLUEPRINT = {"podTemplate": "X_PodTemplate", "volumeClaimTemplates": "list[object]", "service": "bool"}
_LIFECYCLE = {"shutdownTime": "datetime", "shutdownPolicy": "str"}

CRDS: dict[str, Fields] = {
    "Sandbox": _top("X_SandboxSpec", "X_SandboxStatus"),
    "SandboxTemplate": _top("X_SandboxTemplateSpec", "object"),
    "SandboxWarmPool": _top("X_SandboxWarmPoolSpec", "X_SandboxWarmPoolStatus"),
    "SandboxClaim": _top("X_SandboxClaimSpec", "X_SandboxClaimStatus"),
    "X_PodMetadata": _kind(labels="dict[str, str]", annotations="dict[str, str]"),
    "X_PodTemplate": _kind("spec", spec="V1PodSpec", metadata="X_PodMetadata"),
    "X_SandboxSpec": _kind("podTemplate", **_BLUEPRINT, **_LIFECYCLE, operatingMode="str"),
    "X_SandboxStatus": _kind(
        serviceFQDN="str", service="str", conditions="list[V1Condition]", selector="str", podIPs="list[str]", nodeName="str",
    ),
    "X_SandboxTemplateSpec": _kind(
        "podTemplate", **_BLUEPRINT, networkPolicy="X_NetworkPolicySpec", networkPolicyManagement="str",
        envVarsInjectionPolicy="str", volumeClaimTemplatesPolicy="str",
    ),
    "X_NetworkPolicySpec": _kind(ingress="list[V1NetworkPolicyIngressRule]", egress="list[V1NetworkPolicyEgressRule]"),
    "X_Ref": _kind("name", name="str"),
    "X_SandboxWarmPoolSpec": _kind(
        "sandboxTemplateRef", replicas="int", ttlSecondsAfterCreated="int", sandboxTemplateRef="X_Ref", updateStrategy="object",
    ),
    "X_SandboxWarmPoolStatus": _kind(replicas="int", readyReplicas="int", selector="str"),
    "X_SandboxClaimSpec": _kind(
        "warmPoolRef", warmPoolRef="X_Ref", ttlSecondsAfterCreated="int", lifecycle="X_ClaimLifecycle",
        additionalPodMetadata="X_PodMetadata", env="list[object]", volumeClaimTemplates="list[object]",
    ),
    "X_ClaimLifecycle": _kind(**_LIFECYCLE, ttlSecondsAfterFinished="int"),
    "X_SandboxClaimStatus": _kind(conditions="list[V1Condition]", sandbox="X_ClaimedSandbox"),
    "X_ClaimedSandbox": _kind(name="str", podIPs="list[str]"),
}  # fmt: skip
