"""The store with everything that a write goes through: schema, defaults, admission; for clients and controllers."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from typing import Any

from packages.kubernetes.tests.kube.access import Access
from packages.kubernetes.tests.kube.admission import admit_pod
from packages.kubernetes.tests.kube.objects import ApiError, Object, invalid, now, now_micro, strategic
from packages.kubernetes.tests.kube.resources import RESOURCES, Resource
from packages.kubernetes.tests.kube.schema import check_schema
from packages.kubernetes.tests.kube.store import Change, Store
from packages.kubernetes.tests.kube.validate import check_values, fill_defaults

_BY_KEY = {each.key: each for each in RESOURCES}
_MUTABLE_POD = {"activeDeadlineSeconds", "terminationGracePeriodSeconds", "tolerations"}


class Registry:
    """All objects, with the checks of an API server; `denied` is what the webhook has against new pods."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.denied = ""
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, Any]) -> None:
        """Do something beside what is done now."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def resource(self, key: str) -> Resource:
        """Return the resource *key*."""
        return _BY_KEY[key]

    def create(self, key: str, namespace: str, item: Object, *, dry_run: bool = False) -> Object:
        """Add an object; raises ApiError for one that is refused."""
        resource = _BY_KEY[key]
        check_schema(resource, item)
        item.setdefault("metadata", {})
        if resource.namespaced:
            stated = item["metadata"].get("namespace")
            if stated not in (None, "", namespace):
                what = f"the namespace of the provided object does not match the namespace sent on the request ({namespace})"
                raise ApiError(400, what)
            item["metadata"]["namespace"] = namespace
            if self.store.find("namespaces", "", namespace) is None:
                raise ApiError(404, f'namespaces "{namespace}" not found')
        check_values(resource, item)
        fill_defaults(resource, item)
        if key == "pods":
            admit_pod(self.store, item, self.denied)
        if dry_run:
            return item
        return self.store.create(resource, namespace, item)

    def replace(
        self, resource: Resource, namespace: str, name: str, change: Callable[[Object], Object], part: str
    ) -> Object:
        """Change an object as a client does: *part* is "status" for that subresource, "" for all but the status."""

        def checked(item: Object) -> Object:
            before = dict(item)
            item = change(item)
            check_schema(resource, item)
            if part == "status":
                kept = {**before, "status": item.get("status", {})}
                kept["metadata"] = {**before["metadata"], "resourceVersion": item["metadata"].get("resourceVersion")}
                return kept
            if "status" in before:
                item["status"] = before["status"]
            for key in ("uid", "creationTimestamp", "deletionTimestamp", "generation", "name", "namespace"):
                if key in before["metadata"]:
                    item["metadata"][key] = before["metadata"][key]
            check_values(resource, item)
            if resource.kind == "Pod":
                _check_pod_update(before, item)
            return item

        return self.store.update(resource, namespace, name, checked)

    def write(self, key: str, item: Object, change: Callable[[Object], Object]) -> Object:
        """Change an object as a controller does: whatever its version is, but only if it is still the same one."""

        def same(found: Object) -> Object:
            if found["metadata"]["uid"] != item["metadata"]["uid"]:
                raise ApiError(409, "it is another object of the same name")
            return change(found)

        metadata = item["metadata"]
        return self.store.update(_BY_KEY[key], metadata.get("namespace", ""), metadata["name"], same)

    def delete(self, key: str, item: Object, grace: int | None = None) -> None:
        """Delete an object as a controller does; one that is gone is fine."""
        metadata = item["metadata"]
        found = self.store.find(key, metadata.get("namespace", ""), metadata["name"])
        if found is not None and found["metadata"]["uid"] == metadata["uid"]:
            self.store.delete(_BY_KEY[key], metadata.get("namespace", ""), metadata["name"], grace)

    def put_status(self, item: Object) -> None:
        """Write an object of the cluster, such as the node, whether or not it is there."""
        resource = next(each for each in RESOURCES if each.kind == item["kind"])
        if self.store.find(resource.key, "", item["metadata"]["name"]) is None:
            self.store.create(resource, "", item)
            return
        self.store.update(
            resource,
            "",
            item["metadata"]["name"],
            lambda found: {**found, "spec": item["spec"], "status": item["status"]},
        )

    def contents(self, namespace: str) -> list[tuple[str, Object]]:
        """Return everything in a namespace, by resource."""
        return [
            (each.key, item) for each in RESOURCES if each.namespaced for item in self.store.all(each.key, namespace)
        ]

    def event(self, about: Object, type: str, reason: str, message: str) -> None:
        """Record an event; one about an object of a namespace that is gone is not kept."""
        metadata = about["metadata"]
        namespace = metadata.get("namespace") or "default"
        if self.store.find("namespaces", "", namespace) is None:
            return
        event = {
            "metadata": {"name": f"{metadata['name'][:200]}.{secrets.token_hex(8)}"},
            "involvedObject": {
                "kind": about["kind"],
                "apiVersion": about["apiVersion"],
                "name": metadata["name"],
                "namespace": metadata.get("namespace"),
                "uid": metadata["uid"],
            },
            "type": type,
            "reason": reason,
            "message": message,
            "source": {"component": "fixture"},
            "firstTimestamp": now(),
            "lastTimestamp": now(),
            "eventTime": now_micro(),
            "count": 1,
        }
        self.store.create(_BY_KEY["events"], namespace, event)


def _check_pod_update(before: Object, item: Object) -> None:
    """Refuse changes of what a pod cannot change."""
    old = {key: value for key, value in before["spec"].items() if key not in _MUTABLE_POD}
    new = {key: value for key, value in item["spec"].items() if key not in _MUTABLE_POD}
    for spec in (old, new):
        spec["containers"] = [{**each, "image": ""} for each in spec["containers"]]
    if old != new:
        said = "Forbidden: pod updates may not change fields other than `spec.containers[*].image`, ..."
        raise invalid("Pod", before["metadata"]["name"], [("spec", said)])


class LocalApi:
    """The API server as the node in the same process sees it; writes wait while the node is lost."""

    def __init__(self, registry: Registry, access: Access, reachable: asyncio.Event) -> None:
        self._registry = registry
        self._access = access
        self._reachable = reachable

    async def get(self, resource: str, namespace: str, name: str) -> Object | None:
        """Return an object, or None."""
        return self._registry.store.find(resource, namespace, name)

    async def token(self, namespace: str, account: str) -> str:
        """Return a token of a service account."""
        return self._access.token_for(namespace, account)

    async def set_status(self, pod: Object, status: Object) -> None:
        """Write the status of a pod."""
        await self._reachable.wait()

        def change(item: Object) -> Object:
            before = {each["type"]: each for each in item["status"].get("conditions") or []}
            conditions = [_condition(each, before) for each in status["conditions"]]
            item["status"] = strategic(item["status"], {**status, "conditions": conditions})
            return item

        with suppress(ApiError):
            self._registry.write("pods", pod, change)

    async def remove(self, pod: Object) -> None:
        """Remove a pod that has ended after its deletion."""
        await self._reachable.wait()
        with suppress(ApiError):
            self._registry.delete("pods", pod, 0)

    async def event(self, pod: Object, type: str, reason: str, message: str) -> None:
        """Record an event about a pod."""
        await self._reachable.wait()
        with suppress(ApiError):
            self._registry.event(pod, type, reason, message)

    def follow(self) -> AsyncIterator[Change]:
        """Yield all pods, then their changes."""
        return self._registry.store.follow("pods")


def _condition(condition: Object, before: dict[str, Object]) -> Object:
    """Keep the time of a condition that did not change."""
    old = before.get(condition["type"])
    if old is not None and old["status"] == condition["status"]:
        return condition | {"lastTransitionTime": old["lastTransitionTime"]}
    return condition
