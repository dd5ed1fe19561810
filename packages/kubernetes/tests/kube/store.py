"""Objects with versions, as etcd and the watch cache keep them: conflicts, watches, deletion in steps, owners."""

from __future__ import annotations

import asyncio
import copy
import secrets
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from packages.kubernetes.tests.kube.objects import ApiError, Object, conflict, not_found, now
from packages.kubernetes.tests.kube.resources import RESOURCES, Resource

_HISTORY = 2000
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_BY_KEY = {each.key: each for each in RESOURCES}


@dataclass(frozen=True)
class Change:
    """One change of an object: `type` is ADDED, MODIFIED or DELETED; `before` is what it was, None for a new one."""

    version: int
    key: str
    type: str
    item: Object
    before: Object | None = None


class Gone(Exception):
    """Raised in a watch whose version is too old."""


@dataclass(eq=False)
class Watch:
    """The changes of one resource from a version on."""

    key: str
    namespace: str | None
    changes: asyncio.Queue[Change | Gone | None] = field(default_factory=asyncio.Queue)

    def offer(self, change: Change) -> None:
        """Queue *change* if it is of this watch."""
        if change.key == self.key and self.namespace in (None, change.item["metadata"].get("namespace", "")):
            self.changes.put_nowait(change)


class Store:
    """All objects. Every item that it gives out is a copy, or not to be changed."""

    def __init__(self) -> None:
        self.version = 1000
        self._items: dict[str, dict[tuple[str, str], Object]] = {each.key: {} for each in RESOURCES}
        self._history: deque[Change] = deque(maxlen=_HISTORY)
        self._floor = self.version
        self._watches: set[Watch] = set()

    def get(self, resource: Resource, namespace: str, name: str) -> Object:
        """Return the object; raises ApiError if there is none."""
        found = self._items[resource.key].get((namespace, name))
        if found is None:
            raise not_found(resource.plural, name, resource.group)
        return found

    def find(self, key: str, namespace: str, name: str) -> Object | None:
        """Return the object, or None."""
        return self._items[key].get((namespace, name))

    def all(self, key: str, namespace: str | None = None) -> list[Object]:
        """Return all objects of a resource, of one namespace or of all."""
        return [item for (space, _), item in self._items[key].items() if namespace in (None, space)]

    def create(self, resource: Resource, namespace: str, item: Object) -> Object:
        """Add *item*; it gets a name where only a prefix is given. Raises ApiError when the name is taken."""
        item = copy.deepcopy(item)
        metadata = item.setdefault("metadata", {})
        if not metadata.get("name"):
            suffix = "".join(secrets.choice(_LETTERS) for _ in range(5))
            metadata["name"] = f"{metadata.get('generateName', '')}{suffix}"
        if resource.namespaced:
            metadata["namespace"] = namespace
        place = (namespace if resource.namespaced else "", metadata["name"])
        if place in self._items[resource.key]:
            full = resource.key
            raise ApiError(409, f'{full} "{place[1]}" already exists', reason="AlreadyExists")
        for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"):
            metadata.pop(name, None)
        metadata |= {"uid": str(uuid.uuid4()), "creationTimestamp": now()}
        if resource.kind in ("Job", "Pod", "NetworkPolicy") or not resource.model:
            metadata["generation"] = 1
        item |= {"apiVersion": resource.api_version, "kind": resource.kind}
        self._write("ADDED", resource.key, place, item, None)
        return item

    def update(self, resource: Resource, namespace: str, name: str, change: Callable[[Object], Object]) -> Object:
        """Replace an object by what *change* makes of a copy of it.

        Raises ApiError where there is none, or where the result has another version than the one that is there. An
        object that is the same afterwards keeps its version; one in deletion without finalizers goes.
        """
        place = (namespace if resource.namespaced else "", name)
        before = self.get(resource, *place)
        item = change(copy.deepcopy(before))
        asked = item["metadata"].get("resourceVersion")
        if asked and asked != before["metadata"]["resourceVersion"]:
            raise conflict(resource.plural, name, resource.group)
        if item["metadata"].get("uid") != before["metadata"]["uid"]:
            raise conflict(resource.plural, name, resource.group)
        item["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"]
        if item == before:
            return before
        if "generation" in before["metadata"] and item.get("spec") != before.get("spec"):
            item["metadata"]["generation"] = before["metadata"]["generation"] + 1
        self._write("MODIFIED", resource.key, place, item, before)
        if item["metadata"].get("deletionTimestamp") and self._may_go(resource, item):
            return self.remove(resource, *place)
        return item

    def _may_go(self, resource: Resource, item: Object) -> bool:
        return not item["metadata"].get("finalizers") and resource.plural not in ("pods", "namespaces")

    def delete(
        self, resource: Resource, namespace: str, name: str, grace: int | None = None, *, orphan: bool = False
    ) -> tuple[Object, bool]:
        """Delete an object, and return it, and whether it is gone: a pod with a node is given its grace period.

        With *orphan* what it owns stays.
        """
        place = (namespace if resource.namespaced else "", name)
        item = self.get(resource, *place)
        seconds = _grace(resource, item, grace)
        metadata = item["metadata"]
        finalizers = metadata.get("finalizers") or (item.get("spec") or {}).get(
            "finalizers"
        )  # the latter of a namespace
        if not seconds and not finalizers:
            return self.remove(resource, *place, orphan=orphan), True
        if "deletionTimestamp" in metadata and metadata.get("deletionGracePeriodSeconds", 0) <= seconds:
            return item, False

        def mark(item: Object) -> Object:
            item["metadata"] |= {"deletionTimestamp": now(), "deletionGracePeriodSeconds": seconds}
            if resource.plural == "namespaces":
                item["status"] = {"phase": "Terminating"}
            return item

        return self.update(resource, *place, mark), False

    def remove(self, resource: Resource, namespace: str, name: str, *, orphan: bool = False) -> Object:
        """Remove an object at once, and all that it owns unless that is to stay as an *orphan*."""
        before = self.get(resource, namespace, name)
        item = copy.deepcopy(before)
        del self._items[resource.key][namespace, name]
        self._write("DELETED", resource.key, (namespace, name), item, before)
        if not orphan:
            self._collect(item["metadata"]["uid"])
        return item

    def _collect(self, owner: str) -> None:
        """Delete what *owner* was the last owner of."""
        for key, items in self._items.items():
            for (namespace, name), item in [*items.items()]:
                owners = item["metadata"].get("ownerReferences") or []
                if [each["uid"] for each in owners] == [owner]:
                    self.delete(_BY_KEY[key], namespace, name)

    def _write(self, type: str, key: str, place: tuple[str, str], item: Object, before: Object | None) -> None:
        self.version += 1
        item["metadata"]["resourceVersion"] = str(self.version)
        if type != "DELETED":
            self._items[key][place] = item
        change = Change(self.version, key, type, item, before)
        if len(self._history) == _HISTORY:
            self._floor = self._history[0].version
        self._history.append(change)
        for watch in self._watches:
            watch.offer(change)

    def open_watch(self, key: str, namespace: str | None = None, since: int | None = None) -> Watch:
        """Return a watch of what comes after the version *since*, or from now on; raises Gone. `close_watch` ends it."""
        watch = Watch(key, namespace)
        if since is not None and since < self._floor:
            raise Gone
        if since is not None:
            for change in self._history:
                if change.version > since:
                    watch.offer(change)
        self._watches.add(watch)
        return watch

    def close_watch(self, watch: Watch) -> None:
        """End a watch."""
        self._watches.discard(watch)

    async def follow(self, key: str) -> AsyncIterator[Change]:
        """Yield an ADDED for each object that there is, then all changes: what a controller works from."""
        watch = self.open_watch(key)
        try:
            for item in self.all(key):
                yield Change(self.version, key, "ADDED", item)
            while True:
                change = await watch.changes.get()
                if isinstance(change, Change):
                    yield change
        finally:
            self.close_watch(watch)

    def end_watches(self, *, gone: bool) -> None:
        """Close all watches of clients; *gone* makes all versions until now too old."""
        if gone:
            self._floor = self.version
            self._history.clear()
        for watch in self._watches:
            watch.changes.put_nowait(Gone() if gone else None)


def _grace(resource: Resource, item: Object, asked: int | None) -> int:
    """Return the seconds that a pod has to end; one that does not run, or has ended, gets none."""
    if resource.plural != "pods":
        return 0
    if not item["spec"].get("nodeName") or item.get("status", {}).get("phase") in ("Succeeded", "Failed"):
        return 0
    return item["spec"].get("terminationGracePeriodSeconds", 30) if asked is None else asked
