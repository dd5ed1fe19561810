"""The containers that an operator puts beside the guest of each pod, such as a database for one program. Pure.

They share the network of the pod, which leads from one to another and nowhere else; their rights are the guest's.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from toolexec.containers import JSONDict, parse_reference
from toolexec.errors import ConfigurationError, ToolExecError
from toolexec_kubernetes.volumes import check_target, read_size

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,40}[a-z0-9])?")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,200}")
_KEYS: Final = ("name", "image", "command", "env", "memory", "cpus", "scratch")
_MOST: Final = 8
_MOST_BYTES: Final = 32 << 10
_MOST_CPUS: Final = 1024
_LEAST_MEMORY: Final = 4 << 20
_TMP: Final = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Sidecar:
    """One container: *memory* in bytes and *cpus* (a rate) are its limits, *scratch* has the sizes of its empty
    directories in memory, by their paths; `/tmp` is always one. Its root cannot be written."""

    name: str
    image: str
    memory: int
    cpus: float = 0.0
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    scratch: Mapping[str, int] = field(default_factory=dict[str, int])


def read_sidecars(given: Sequence[Mapping[str, Any]], *, taken: Collection[str]) -> tuple[Sidecar, ...]:
    """Return the containers of the setting `sidecars`. Raises ConfigurationError, with the number of the wrong one, for
    what is not a container, for one without a bound on its memory, and for a name that is *taken* or is
    there twice."""
    if len(given) > _MOST:
        raise ConfigurationError(f"sidecars: {len(given)} are too many; {_MOST} are allowed")
    found: list[Sidecar] = []
    for number, each in enumerate(given):
        sidecar = _read(each, f"sidecars[{number}]")
        if sidecar.name in taken or sidecar.name in [other.name for other in found]:
            raise ConfigurationError(f"sidecars[{number}]: the name {sidecar.name} is taken")
        found.append(sidecar)
    return tuple(found)


def _read(given: Mapping[str, Any], where: str) -> Sidecar:
    for key in given:
        if key not in _KEYS:
            raise ConfigurationError(f"{where}: there is no {key[:80]!r}; there are {', '.join(_KEYS)}")
    name, image = given.get("name"), given.get("image")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigurationError(f"{where}: name must be a name of a container, not {name!r:.80}")
    if not isinstance(image, str) or not image:
        raise ConfigurationError(f"{where}: image must be a name of an image, not {image!r:.80}")
    try:
        parse_reference(image)
    except ToolExecError as error:
        raise ConfigurationError(f"{where}: image: {error.message}") from error
    if "memory" not in given:
        raise ConfigurationError(f"{where}: memory must be set, such as 256Mi: it is the bound of the container")
    cpus = given.get("cpus", 0)
    if not isinstance(cpus, int | float) or isinstance(cpus, bool) or not 0 <= cpus <= _MOST_CPUS:
        raise ConfigurationError(f"{where}: cpus must be a rate from 0 to {_MOST_CPUS}, not {cpus!r:.80}")
    return Sidecar(
        name=name,
        image=image,
        memory=read_size(given["memory"], f"{where}: memory", least=_LEAST_MEMORY),
        cpus=float(cpus),
        command=_words(given.get("command", ()), where),
        env=_env(given.get("env", {}), where),
        scratch=_scratch(given.get("scratch", {}), where),
    )


def _words(given: Any, where: str) -> tuple[str, ...]:
    words: list[Any] = [*given] if isinstance(given, list | tuple) else [None]
    if any(not isinstance(word, str) or "\0" in word for word in words) or len(str(words)) > _MOST_BYTES:
        raise ConfigurationError(f"{where}: command must be a list of words, not {given!r:.80}")
    return tuple(words)


def _env(given: Any, where: str) -> dict[str, str]:
    pairs = {**given} if isinstance(given, Mapping) else {"": ""}
    for name, value in pairs.items():
        if not isinstance(name, str) or not _VARIABLE.fullmatch(name) or not isinstance(value, str) or "\0" in value:
            raise ConfigurationError(f"{where}: env must have text by names of variables, not {name!r:.80}")
    if sum(len(name) + len(value) for name, value in pairs.items()) > _MOST_BYTES:
        raise ConfigurationError(f"{where}: env is too large; {_MOST_BYTES} characters are allowed")
    return pairs


def _scratch(given: Any, where: str) -> dict[str, int]:
    if not isinstance(given, Mapping) or len(given) > _MOST:
        raise ConfigurationError(f"{where}: scratch must have sizes by paths, {_MOST} at most, not {given!r:.80}")
    paths = [*given]
    for path in paths:
        check_target(path, where, taken=("/proc", "/sys", "/dev", "/tmp"))  # noqa: S108 - in a container
        if any(f"{path}/".startswith(f"{other}/") for other in paths if other != path):
            raise ConfigurationError(f"{where}: {path} is within another scratch")
    return {path: read_size(size, f"{where}: scratch", least=4096) for path, size in given.items()}


def _directories(sidecar: Sidecar) -> list[tuple[str, str, int]]:
    """Return name, path and size of the volumes of one."""
    sizes = {"/tmp": _TMP, **sidecar.scratch}  # noqa: S108 - in a container
    return [(f"{sidecar.name}-{number}", path, size) for number, (path, size) in enumerate(sizes.items())]


def sidecar_volumes(sidecars: Sequence[Sidecar]) -> list[JSONDict]:
    """Return what a pod has as its `volumes` for them."""
    return [
        {"name": f"side-{name}", "emptyDir": {"medium": "Memory", "sizeLimit": str(size)}}
        for each in sidecars
        for name, _, size in _directories(each)
    ]


def sidecar_bodies(sidecars: Sequence[Sidecar], rights: JSONDict, pull: str) -> list[JSONDict]:
    """Return what a pod has as its other `containers`, each with *rights* as its security context."""
    return [_body(each, rights, pull) for each in sidecars]


def _body(sidecar: Sidecar, rights: JSONDict, pull: str) -> JSONDict:
    limits = {"memory": str(sidecar.memory), **({"cpu": f"{sidecar.cpus:.3f}"} if sidecar.cpus else {})}
    body: JSONDict = {
        "name": sidecar.name,
        "image": sidecar.image,
        "imagePullPolicy": pull,
        "env": [{"name": name, "value": value.replace("$", "$$")} for name, value in sidecar.env.items()],
        "resources": {"limits": limits, "requests": dict(limits)},
        "securityContext": rights,
        "volumeMounts": [{"name": f"side-{name}", "mountPath": path} for name, path, _ in _directories(sidecar)],
    }
    if sidecar.command:
        body["command"] = [word.replace("$", "$$") for word in sidecar.command]
    return body


def sidecar_memory(sidecars: Sequence[Sidecar]) -> int:
    """Return the bounds of their memory together."""
    return sum(each.memory for each in sidecars)
