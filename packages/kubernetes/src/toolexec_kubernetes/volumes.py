"""The volumes that an operator gives to pods: claims that outlive them, and places of their own on a disk. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from posixpath import normpath
from typing import Any, Final

from toolexec.containers import JSONDict
from toolexec.errors import ConfigurationError

_CLAIM: Final = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_TARGET: Final = re.compile(r"(/[A-Za-z0-9._-]{1,100}){1,8}")
_SUB_PATH: Final = re.compile(r"[A-Za-z0-9._-]{1,100}(/[A-Za-z0-9._-]{1,100}){0,7}")
_SIZE: Final = re.compile(r"([0-9]{1,15})(Ki|Mi|Gi|Ti|k|M|G|T)?")
_UNITS: Final = {
    "": 1,
    **{f"{unit}i": 1 << 10 * power for power, unit in enumerate("KMGT", 1)},
    **{unit: 10 ** (3 * power) for power, unit in enumerate("kMGT", 1)},
}
_LEAST: Final = 1 << 20
_MOST: Final = 1 << 44
_MOST_VOLUMES: Final = 16
_KEYS: Final = ("target", "claim", "size", "storage_class", "read_only", "sub_path")
_TAKEN: Final = tuple(
    f"/{name}"
    for name in (
        *("bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "root", "run", "sbin", "sys", "tmp"),
        *("toolexec", "usr", "var", "work"),
    )
)
"""Where programs come from, and what a guest has of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """One volume at *target*: the claim of that name, or of *size* bytes and as long-lived as its pod, by a storage
    class or (without one) on the disk of the node."""

    target: str
    claim: str = ""
    size: int = 0
    storage_class: str = ""
    read_only: bool = False
    sub_path: str = ""


def read_volumes(given: Sequence[Mapping[str, Any]]) -> tuple[Volume, ...]:
    """Return the volumes of the setting `volumes`. Raises ConfigurationError, with the number of the wrong one, for
    what is not a volume, for paths that a sandbox has, and for two at one place."""
    if len(given) > _MOST_VOLUMES:
        raise ConfigurationError(f"volumes: {len(given)} are too many; {_MOST_VOLUMES} are allowed")
    found: list[Volume] = []
    for number, each in enumerate(given):
        where = f"volumes[{number}]"
        volume = _read(each, where)
        for other in found:
            if f"{volume.target}/".startswith(f"{other.target}/") or f"{other.target}/".startswith(f"{volume.target}/"):
                raise ConfigurationError(f"{where}: {volume.target} and {other.target} are at the same place")
        found.append(volume)
    return tuple(found)


def _read(given: Mapping[str, Any], where: str) -> Volume:
    for key in given:
        if key.lower().replace("_", "") in ("hostpath", "path", "source", "bind"):
            raise ConfigurationError(f"{where}: {key}: a pod has no files of its node; name a claim")
        if key not in _KEYS:
            raise ConfigurationError(f"{where}: there is no {key[:80]!r}; there are {', '.join(_KEYS)}")
    text = {key: given.get(key, "") for key in ("target", "claim", "storage_class", "sub_path")}
    for key, value in text.items():
        if not isinstance(value, str):
            raise ConfigurationError(f"{where}: {key} must be text, not {value!r:.80}")
    read_only = given.get("read_only", False)
    if not isinstance(read_only, bool):
        raise ConfigurationError(f"{where}: read_only must be true or false, not {read_only!r:.80}")
    size = read_size(given["size"], where) if "size" in given else 0
    _check_paths(text["target"], text["sub_path"], where)
    if bool(text["claim"]) == bool(size):
        raise ConfigurationError(f"{where}: name either a claim or a size")
    for key in ("claim", "storage_class"):
        if text[key]:
            check_name(text[key], f"{where}: {key}")
    if text["claim"] and text["storage_class"]:
        raise ConfigurationError(f"{where}: a claim has its storage_class already")
    if size and (read_only or text["sub_path"]):
        raise ConfigurationError(f"{where}: read_only and sub_path are for claims; a new volume is empty")
    return Volume(size=size, read_only=read_only, **text)


def check_name(given: Any, where: str) -> None:
    """Raise ConfigurationError for what is not the name of a claim or of a storage class."""
    if not isinstance(given, str) or not _CLAIM.fullmatch(given):
        raise ConfigurationError(f"{where}: {given!r:.80} is not a name of an object of Kubernetes")


def _check_paths(target: str, sub_path: str, where: str) -> None:
    check_target(target, where, taken=_TAKEN)
    if sub_path and (not _SUB_PATH.fullmatch(sub_path) or normpath(sub_path) != sub_path or sub_path.startswith("..")):
        raise ConfigurationError(f"{where}: sub_path must be a plain relative path, not {sub_path[:80]!r}")


def check_target(path: Any, where: str, *, taken: Sequence[str]) -> None:
    """Raise ConfigurationError for what is not a plain absolute path, or is at or below one of *taken*."""
    if not isinstance(path, str) or not _TARGET.fullmatch(path) or normpath(path) != path:
        raise ConfigurationError(f"{where}: target must be a plain absolute path, not {path!r:.80}")
    if any(f"{path}/".startswith(f"{each}/") for each in taken):
        raise ConfigurationError(f"{where}: the sandbox has {path} itself; choose another place, such as /data")


def read_size(given: Any, where: str, *, least: int = _LEAST) -> int:
    """Return how many bytes a number, or a text such as `2Gi`, means. Raises ConfigurationError for anything else, and
    for fewer than *least* or more than 16 TiB."""
    found = _SIZE.fullmatch(str(given)) if isinstance(given, str | int) and not isinstance(given, bool) else None
    size = int(found[1]) * _UNITS[found[2] or ""] if found is not None else 0
    if not least <= size <= _MOST:
        raise ConfigurationError(f"{where}: size must be from {least} bytes to 16Ti, such as 2Gi, not {given!r:.80}")
    return size


def volume_bodies(volumes: Sequence[Volume]) -> list[JSONDict]:
    """Return what a pod has as its `volumes`."""
    return [{"name": f"volume-{number}", **_source(each)} for number, each in enumerate(volumes)]


def _source(volume: Volume) -> JSONDict:
    if volume.claim:
        return {"persistentVolumeClaim": {"claimName": volume.claim, "readOnly": volume.read_only}}
    if not volume.storage_class:
        return {"emptyDir": {"sizeLimit": str(volume.size)}}
    spec: JSONDict = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": volume.storage_class,
        "resources": {"requests": {"storage": str(volume.size)}},
    }
    return {"ephemeral": {"volumeClaimTemplate": {"spec": spec}}}


def volume_mounts(volumes: Sequence[Volume]) -> list[JSONDict]:
    """Return what a container has as its `volumeMounts` for them."""
    return [
        {
            "name": f"volume-{number}",
            "mountPath": each.target,
            **({"readOnly": True} if each.read_only else {}),
            **({"subPath": each.sub_path} if each.sub_path else {}),
        }
        for number, each in enumerate(volumes)
    ]


def node_bytes(volumes: Sequence[Volume]) -> int:
    """Return how much of them is on the disk of the node, which counts as the ephemeral storage of a pod."""
    return sum(each.size for each in volumes if not each.claim and not each.storage_class)
