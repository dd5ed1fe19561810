"""The volumes of a pod, as mounts of its containers, and the environment of a container."""

from __future__ import annotations

import base64
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from packages.kubernetes.tests.kube.bundle import Mounted, expand
from packages.kubernetes.tests.kube.linux import mount
from packages.kubernetes.tests.kube.objects import Object, quantity

Lookup = Callable[[str, str, str], Awaitable[Object | None]]
"""Gives an object by resource, namespace and name."""
Token = Callable[[str, str], Awaitable[str]]
"""Gives a token of a service account by namespace and name."""


class MountError(Exception):
    """A volume cannot be set up."""


class Volumes:
    """The volumes of one pod, in *directory*."""

    def __init__(self, pod: Object, directory: Path, lookup: Lookup, token: Token, ca: bytes) -> None:
        self._pod = pod
        self._directory = directory
        self._lookup = lookup
        self._token = token
        self._ca = ca
        self._by_name: dict[str, Object] = {each["name"]: each for each in pod["spec"].get("volumes") or []}

    async def prepare(self) -> None:
        """Make the directories; raises MountError for a kind of volume that this node does not have."""
        group = (self._pod["spec"].get("securityContext") or {}).get("fsGroup", -1)
        for name, volume in self._by_name.items():
            directory = self._directory / name
            if "persistentVolumeClaim" in volume:
                await self._claim(directory, volume["persistentVolumeClaim"]["claimName"])
                continue
            directory.mkdir(parents=True, exist_ok=True)
            if _is_memory(volume) and not directory.is_mount():
                mount("tmpfs", "tmpfs", directory, f"size={self._memory_of(volume):.0f}")
            if "emptyDir" in volume:
                directory.chmod(0o777 if group < 0 else 0o2777)
            else:
                await self._fill(directory, volume)
            if group >= 0:
                os.chown(directory, -1, group)

    async def _claim(self, directory: Path, name: str) -> None:
        """Have the directory of the node that a claim is bound to, as for PersistentVolumes of the kind hostPath."""
        namespace = self._pod["metadata"]["namespace"]
        claim = await self._lookup("persistentvolumeclaims", namespace, name)
        volume = await self._lookup("persistentvolumes", "", (claim or {"spec": {}})["spec"].get("volumeName", ""))
        if volume is None:
            raise MountError(f'persistentvolumeclaim "{name}" is not bound')
        if not directory.is_symlink():
            self._directory.mkdir(parents=True, exist_ok=True)
            directory.symlink_to(volume["spec"]["hostPath"]["path"])

    async def _fill(self, directory: Path, volume: Object) -> None:
        if "projected" in volume:
            for source in volume["projected"].get("sources") or []:
                await self._project(directory, source)
        elif "configMap" in volume or "secret" in volume:
            await self._project(directory, volume)
        elif "downwardAPI" in volume:
            await self._project(directory, volume)
        else:
            raise MountError(f"no volume plugin matched name: {volume['name']}")

    async def _project(self, directory: Path, source: Object) -> None:
        namespace = self._pod["metadata"]["namespace"]
        files: dict[str, bytes] = {}
        if wanted := source.get("serviceAccountToken"):
            account = self._pod["spec"].get("serviceAccountName", "default")
            files[wanted["path"]] = (await self._token(namespace, account)).encode()
            files["ca.crt"] = self._ca
        if wanted := source.get("configMap"):
            found = await self._object("configmaps", wanted, wanted.get("name", ""))
            files |= {key: value.encode() for key, value in (found.get("data") or {}).items()}
        if wanted := source.get("secret"):
            found = await self._object("secrets", wanted, wanted.get("secretName") or wanted.get("name", ""))
            files |= {key: base64.b64decode(value) for key, value in (found.get("data") or {}).items()}
            files |= {key: value.encode() for key, value in (found.get("stringData") or {}).items()}
        if wanted := source.get("downwardAPI"):
            for item in wanted.get("items") or []:
                files[item["path"]] = str(_field(self._pod, item["fieldRef"]["fieldPath"])).encode()
        for name, content in files.items():
            (directory / name).write_bytes(content)

    async def _object(self, resource: str, wanted: Object, name: str) -> Object:
        found = await self._lookup(resource, self._pod["metadata"]["namespace"], name)
        if found is None and not wanted.get("optional"):
            raise MountError(f'{resource.removesuffix("s")} "{name}" not found')
        return found or {}

    def _memory_of(self, volume: Object) -> float:
        """Return the bytes of a volume in memory: its limit, or that of all containers; 0 for none."""
        limits = [(each.get("resources") or {}).get("limits") or {} for each in self._pod["spec"]["containers"]]
        containers = sum(quantity(each.get("memory", 0)) for each in limits)
        stated = quantity(volume["emptyDir"].get("sizeLimit") or 0)
        return min(stated, containers) if stated and containers else stated or containers

    def mounts(self, container: Object) -> list[Mounted]:
        """Return the mounts of a container."""
        found: list[Mounted] = []
        for each in container.get("volumeMounts") or []:
            kinds = self._by_name[each["name"]].keys() & {"emptyDir", "persistentVolumeClaim"}
            is_fixed = bool(each.get("readOnly")) or not kinds
            source = (self._directory / each["name"]).resolve() / (each.get("subPath") or "")
            found.append(Mounted(each["mountPath"].rstrip("/"), str(source), is_fixed))
        return found

    def on_disk(self) -> list[tuple[str, Path, float]]:
        """Return name, directory and limit (0: none) of the volumes that count as ephemeral storage."""
        found: list[tuple[str, Path, float]] = []
        for name, volume in self._by_name.items():
            if "emptyDir" in volume and not _is_memory(volume):
                found.append((name, self._directory / name, quantity(volume["emptyDir"].get("sizeLimit") or 0)))
        return found


def _is_memory(volume: Object) -> bool:
    return (volume.get("emptyDir") or {}).get("medium") == "Memory"


async def environment(pod: Object, container: Object, given: dict[str, str], lookup: Lookup) -> dict[str, str]:
    """Return the variables of a container: those of the image and the node in *given*, then its own.

    Raises ValueError for a reference to what is not there.
    """
    env = dict(given)
    namespace = pod["metadata"]["namespace"]
    for each in container.get("envFrom") or []:
        for resource, key in (("configmaps", "configMapRef"), ("secrets", "secretRef")):
            if key in each:
                found = await lookup(resource, namespace, each[key]["name"])
                env |= {each.get("prefix", "") + name: value for name, value in _data(found).items()}
    for each in container.get("env") or []:
        if "valueFrom" in each:
            env[each["name"]] = await _referenced(pod, container, each["valueFrom"], lookup)
        else:
            env[each["name"]] = expand(each.get("value") or "", env)
    return env


async def _referenced(pod: Object, container: Object, source: Object, lookup: Lookup) -> str:
    if wanted := source.get("fieldRef"):
        return str(_field(pod, wanted["fieldPath"]))
    if wanted := source.get("resourceFieldRef"):
        kind, _, name = wanted["resource"].partition(".")
        return str(int(quantity((container["resources"].get(kind) or {}).get(name, 0))))
    for resource, key in (("configmaps", "configMapKeyRef"), ("secrets", "secretKeyRef")):
        if wanted := source.get(key):
            found = _data(await lookup(resource, pod["metadata"]["namespace"], wanted["name"]))
            if wanted["key"] not in found and not wanted.get("optional"):
                raise ValueError(f'{resource.removesuffix("s")} "{wanted["name"]}" not found')
            return found.get(wanted["key"], "")
    raise ValueError(f"an unknown source of a variable: {source}")


def _data(found: Object | None) -> dict[str, str]:
    data: dict[str, str] = {}
    if found is not None and found.get("kind") == "Secret":
        data = {key: base64.b64decode(value).decode() for key, value in (found.get("data") or {}).items()}
        data |= found.get("stringData") or {}
    elif found is not None:
        data = found.get("data") or {}
    return data


def _field(pod: Object, path: str) -> Any:
    if path.startswith("metadata.labels['"):
        return pod["metadata"].get("labels", {}).get(path[17:-2], "")
    value: Any = {**pod, "status": {**pod.get("status", {})}}
    for name in path.split("."):
        value = value.get(name, "") if isinstance(value, dict) else ""
    return value
