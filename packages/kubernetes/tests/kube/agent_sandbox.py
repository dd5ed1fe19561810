"""A controller for the resources of the SIG's agent-sandbox: sandboxes, templates, pools of warm ones, claims."""

from __future__ import annotations

import asyncio
import calendar
import copy
import secrets
import time
from contextlib import suppress

from packages.kubernetes.tests.kube.objects import ApiError, Object, now
from packages.kubernetes.tests.kube.registry import Registry
from packages.kubernetes.tests.kube.resources import AGENTS, EXTENSIONS

_SANDBOXES, _TEMPLATES = f"sandboxes.{AGENTS}", f"sandboxtemplates.{EXTENSIONS}"
_POOLS, _CLAIMS = f"sandboxwarmpools.{EXTENSIONS}", f"sandboxclaims.{EXTENSIONS}"
_POLICIES = "networkpolicies.networking.k8s.io"
_HASH = f"{AGENTS}/sandbox-name-hash"
_POOL_LABEL = f"{AGENTS}/warm-pool-sandbox"
_CLAIM_LABEL = f"{AGENTS}/claim-uid"
_POD_NAME = f"{AGENTS}/pod-name"
_KINDS = (_SANDBOXES, _TEMPLATES, _POOLS, _CLAIMS, "pods")


class AgentSandboxes:
    """Looks at everything again after each change: there are few objects in a test."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._store = registry.store
        self._changed = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Follow all resources until this is cancelled."""
        followers = [asyncio.create_task(self._follow(key)) for key in _KINDS]
        try:
            while True:
                await self._changed.wait()
                self._changed.clear()
                self._sync()
        finally:
            for each in followers:
                each.cancel()

    async def _follow(self, key: str) -> None:
        async for change in self._store.follow(key):
            if key != "pods" or _POD_NAME in (change.item["metadata"].get("annotations") or {}) or _owner(change.item):
                self._changed.set()

    def _sync(self) -> None:
        for sync, key in (
            (self._template, _TEMPLATES),
            (self._pool, _POOLS),
            (self._claim, _CLAIMS),
            (self._sandbox, _SANDBOXES),
        ):
            for item in self._store.all(key):
                if not item["metadata"].get("deletionTimestamp"):
                    with suppress(ApiError):
                        sync(item)

    def _template(self, template: Object) -> None:
        """Make the shared NetworkPolicy of a template, unless it is Unmanaged."""
        metadata, spec = template["metadata"], template["spec"]
        name = f"{metadata['name']}-network-policy"
        if spec.get("networkPolicyManagement", "Managed") == "Unmanaged" or self._store.find(
            _POLICIES, metadata["namespace"], name
        ):
            return
        rules = spec.get("networkPolicy") or {"egress": [{"to": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]}]}
        policy = {
            "metadata": {"name": name, "ownerReferences": [_reference(template)]},
            "spec": {
                "podSelector": {"matchLabels": {f"{AGENTS}/sandbox-template-ref": metadata["name"]}},
                "policyTypes": ["Ingress", "Egress"],
                **rules,
            },
        }
        self._registry.create(_POLICIES, metadata["namespace"], policy)

    def _pool(self, pool: Object) -> None:
        """Keep as many sandboxes as the pool wants."""
        metadata, spec = pool["metadata"], pool["spec"]
        template = self._store.find(_TEMPLATES, metadata["namespace"], spec["sandboxTemplateRef"]["name"])
        mine = [each for each in self._store.all(_SANDBOXES, metadata["namespace"]) if _owned(each, pool)]
        wanted = spec.get("replicas", 1)
        if template is not None:
            for _ in range(wanted - len(mine)):
                mine.append(self._make(pool, template, {_POOL_LABEL: metadata["name"]}))
        for each in mine[wanted:]:
            self._registry.delete(_SANDBOXES, each)
        status = {"replicas": len(mine[:wanted]), "readyReplicas": sum(_is_ready(each) for each in mine[:wanted])}
        self._registry.write(_POOLS, pool, lambda item: {**item, "status": status})

    def _make(self, owner: Object, template: Object, labels: dict[str, str]) -> Object:
        """Return a new sandbox of a template; without a token of a service account, unless the template wants one."""
        blueprint = copy.deepcopy(template["spec"]["podTemplate"])
        blueprint["spec"].setdefault("automountServiceAccountToken", False)
        metadata = blueprint.setdefault("metadata", {})
        metadata["labels"] = {
            **(metadata.get("labels") or {}),
            f"{AGENTS}/sandbox-template-ref": template["metadata"]["name"],
            **labels,
        }
        name = f"{owner['metadata']['name']}-{secrets.token_hex(3)}"
        sandbox = {
            "metadata": {"name": name, "labels": labels, "ownerReferences": [_reference(owner)]},
            "spec": {"podTemplate": blueprint},
        }
        return self._registry.create(_SANDBOXES, owner["metadata"]["namespace"], sandbox)

    def _claim(self, claim: Object) -> None:
        """Give a claim a sandbox: a ready one of its pool, or a new one."""
        if self._is_expired(claim):
            return
        namespace = claim["metadata"]["namespace"]
        mine = [each for each in self._store.all(_SANDBOXES, namespace) if _owned(each, claim)]
        if not mine:
            pool = self._store.find(_POOLS, namespace, claim["spec"]["warmPoolRef"]["name"])
            if pool is None:
                said = f'SandboxWarmPool "{claim["spec"]["warmPoolRef"]["name"]}" not found'
                self._set_ready(_CLAIMS, claim, "False", "WarmPoolNotFound", said)
                return
            mine = [self._adopt(claim, pool)]
        sandbox = mine[0]
        ready = next(
            (each for each in sandbox.get("status", {}).get("conditions") or [] if each["type"] == "Ready"), None
        )
        found = {"name": sandbox["metadata"]["name"], "podIPs": sandbox.get("status", {}).get("podIPs") or []}
        if ready is not None:
            self._set_ready(_CLAIMS, claim, ready["status"], ready["reason"], ready["message"], sandbox=found)
        elif not claim.get("status"):
            self._set_ready(_CLAIMS, claim, "False", "SandboxNotReady", "the sandbox is not ready", sandbox=found)

    def _adopt(self, claim: Object, pool: Object) -> Object:
        namespace = claim["metadata"]["namespace"]
        extra: Object = claim["spec"].get("additionalPodMetadata") or {}
        labels = {_CLAIM_LABEL: claim["metadata"]["uid"], **(extra.get("labels") or {})}
        free = [each for each in self._store.all(_SANDBOXES, namespace) if _owned(each, pool) and _is_ready(each)]
        if not free:
            template = self._store.get(
                self._registry.resource(_TEMPLATES), namespace, pool["spec"]["sandboxTemplateRef"]["name"]
            )
            return self._make(claim, template, labels)

        def take(item: Object) -> Object:
            item["metadata"]["ownerReferences"] = [_reference(claim)]
            item["metadata"]["labels"] = {_CLAIM_LABEL: claim["metadata"]["uid"]}
            item["metadata"].setdefault("annotations", {})[_POD_NAME] = item["metadata"]["name"]
            return item

        def mark(item: Object) -> Object:
            item["metadata"]["labels"] = {**(item["metadata"].get("labels") or {}), **labels}
            item["metadata"]["labels"].pop(_POOL_LABEL, None)
            item["metadata"].setdefault("annotations", {}).update(extra.get("annotations") or {})
            return item

        sandbox = self._registry.write(_SANDBOXES, free[0], take)
        pod = self._store.find("pods", namespace, sandbox["metadata"]["name"])
        if pod is not None:
            self._registry.write("pods", pod, mark)
        return sandbox

    def _is_expired(self, claim: Object) -> bool:
        """Delete a claim whose time is over, or look at it again when it is."""
        lifecycle: Object = claim["spec"].get("lifecycle") or {}
        ends: list[float] = []
        if "shutdownTime" in lifecycle:
            ends.append(_seconds(lifecycle["shutdownTime"]))
        if "ttlSecondsAfterCreated" in claim["spec"]:
            ends.append(_seconds(claim["metadata"]["creationTimestamp"]) + claim["spec"]["ttlSecondsAfterCreated"])
        if not ends:
            return False
        left = min(ends) - time.time()
        if left > 0:
            asyncio.get_running_loop().call_later(left + 0.01, self._changed.set)
            return False
        for each in self._store.all(_SANDBOXES, claim["metadata"]["namespace"]):
            if _owned(each, claim):
                self._registry.delete(_SANDBOXES, each)
        if lifecycle.get("shutdownPolicy", "Retain") != "Retain" or "ttlSecondsAfterCreated" in claim["spec"]:
            self._registry.delete(_CLAIMS, claim)
        else:
            self._set_ready(_CLAIMS, claim, "False", "ClaimExpired", "the claim has expired")
        return True

    def _sandbox(self, sandbox: Object) -> None:
        """Keep the pod of a sandbox, and say what it is like."""
        metadata, spec = sandbox["metadata"], sandbox["spec"]
        pod = self._store.find("pods", metadata["namespace"], metadata["name"])
        if "shutdownTime" in spec and _seconds(spec["shutdownTime"]) <= time.time():
            if pod is not None:
                self._registry.delete("pods", pod)
            if spec.get("shutdownPolicy") == "Delete":
                self._registry.delete(_SANDBOXES, sandbox)
            return
        if spec.get("operatingMode") == "Suspended":
            if pod is not None:
                self._registry.delete("pods", pod)
            self._set_ready(_SANDBOXES, sandbox, "False", "SandboxSuspended", "the sandbox is suspended")
            return
        if pod is None:
            pod = self._make_pod(sandbox)
        ready = any(
            each["type"] == "Ready" and each["status"] == "True" for each in pod["status"].get("conditions") or []
        )
        why = (
            ("True", "DependenciesReady", "Pod is Ready")
            if ready
            else ("False", "DependenciesNotReady", "Pod is not ready")
        )
        addresses = [each["ip"] for each in pod["status"].get("podIPs") or []]
        selector = f"{_HASH}={metadata['uid'][:8]}"
        more = {"selector": selector, "podIPs": addresses, "nodeName": pod["spec"].get("nodeName", "")}
        self._set_ready(_SANDBOXES, sandbox, *why, **more)

    def _make_pod(self, sandbox: Object) -> Object:
        template, metadata = sandbox["spec"]["podTemplate"], sandbox["metadata"]
        given: Object = template.get("metadata") or {}
        pod = {
            "metadata": {
                "name": metadata["name"],
                "labels": {**(given.get("labels") or {}), _HASH: metadata["uid"][:8]},
                "annotations": given.get("annotations") or {},
                "ownerReferences": [_reference(sandbox)],
            },
            "spec": copy.deepcopy(template["spec"]),
        }
        return self._registry.create("pods", metadata["namespace"], pod)

    def _set_ready(self, key: str, item: Object, status: str, reason: str, message: str, **more: object) -> None:
        def change(found: Object) -> Object:
            before: Object = found.get("status") or {}
            old = next(iter(before.get("conditions") or []), {})
            at = old.get("lastTransitionTime") if old.get("status") == status else now()
            condition = {
                "type": "Ready",
                "status": status,
                "reason": reason,
                "message": message,
                "lastTransitionTime": at,
            }
            return {**found, "status": {**before, **more, "conditions": [condition]}}

        self._registry.write(key, item, change)


def _reference(owner: Object) -> Object:
    metadata = owner["metadata"]
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _owned(item: Object, owner: Object) -> bool:
    return any(each["uid"] == owner["metadata"]["uid"] for each in item["metadata"].get("ownerReferences") or [])


def _owner(pod: Object) -> bool:
    return any(each["kind"] == "Sandbox" for each in pod["metadata"].get("ownerReferences") or [])


def _is_ready(sandbox: Object) -> bool:
    conditions = (sandbox.get("status") or {}).get("conditions") or []
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _seconds(text: str) -> float:
    return calendar.timegm(time.strptime(text.partition(".")[0].removesuffix("Z"), "%Y-%m-%dT%H:%M:%S"))
