"""Refuses containers that make no sense, or that would reach further than code in a sandbox may."""

from __future__ import annotations

import math
import posixpath
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, get_args

from toolexec.errors import InvalidRequestError, SandboxDeniedError
from toolexec.run.run_request import PROFILES
from toolexec.runtime.containers.spec import ContainerSpec, Mount, MountType, Network, Resources, Security

_Kind: TypeAlias = Literal["invalid", "denied"]
_Problem: TypeAlias = tuple[_Kind, str]

_MAX_ARGUMENT: Final = (128 << 10) - 1  # what the kernel takes as one argument or variable, with its final NUL
_MAX_ENVIRONMENT: Final = 1 << 20
_MAX_LABELS: Final = 64
_MAX_LABEL: Final = 1024
_MAX_IMAGE: Final = 4096
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_RUNTIME: Final = re.compile(r"[A-Za-z0-9/][A-Za-z0-9_./-]{0,255}")
_USER: Final = re.compile(r"([0-9]{1,10}|[a-z_][a-z0-9_-]{0,31})(:([0-9]{1,10}|[a-z_][a-z0-9_-]{0,31}))?")
_VOLUME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,254}")
_CAPABILITY: Final = re.compile(r"CAP_[A-Z_]{1,32}")

_PRIVATE: Final = (
    "/boot",
    "/dev",
    "/etc",
    "/proc",
    "/root",
    "/run",
    "/sys",
    "/var/lib/containerd",
    "/var/lib/containers",
    "/var/lib/docker",
    "/var/lib/kubelet",
    "/var/run",
)
"""Directories of the host that no container gets, nor anything in them or around them."""
_HOMES: Final = "/home"
_SOCKETS: Final = re.compile(r"(docker|dockerd|containerd|podman|crio|cri-dockerd|dockershim|buildkitd)\.sock.*")
_OWN: Final = ("/proc", "/sys", "/dev")
"""Directories of a container that belong to its engine."""
_SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - inside of a container


def check_spec(spec: ContainerSpec) -> None:
    """Refuse *spec* unless it makes sense and keeps to the rules of its profile.

    Under any profile but `dev` the root is read-only, there is no network, nothing can gain rights, and nothing has
    any. Under all profiles root as the user, privileged containers, the host's network, and mounts of the host's own
    directories and of the sockets of container engines are refused. Bind sources are looked at as they are written and
    as symbolic links on this machine resolve.

    Raises SandboxDeniedError if a rule forbids something, else InvalidRequestError if something makes no sense; both
    with all that was found in `details["problems"]`.
    """
    problems = [*_problems(spec)]
    if not problems:
        return
    strings = [text for _, text in problems]
    denied = [text for kind, text in problems if kind == "denied"]
    first, more = (denied or strings)[0], len(strings) - 1
    message = f"this container is refused: {first}" + (f" (and {more} more)" if more else "")
    error = SandboxDeniedError if denied else InvalidRequestError
    raise error(message, details={"problems": strings})


def _problems(spec: ContainerSpec) -> Iterator[_Problem]:
    yield from _program(spec)
    yield from _environment(spec.env)
    yield from _labels(spec.labels)
    if spec.profile not in PROFILES:
        yield "invalid", f"unknown security profile {spec.profile!r}; use {', '.join(PROFILES)}"
    for kind, text in _security(spec.security, dev=spec.profile == "dev"):
        yield kind, f"security: {text}"
    for text in _resources(spec.resources):
        yield "invalid", f"resources: {text}"
    targets: set[str] = set()
    for number, mount in enumerate(spec.mounts):
        for kind, text in _mount(mount):
            yield kind, f"mount[{number}]: {text}"
        if mount.target in targets:
            yield "invalid", f"mount[{number}]: something else is mounted at {mount.target!r}"
        targets.add(mount.target)


def _program(spec: ContainerSpec) -> Iterator[_Problem]:
    if not spec.image:
        yield "invalid", "an image is required"
    elif spec.image.startswith("-") or len(spec.image) > _MAX_IMAGE or _CONTROL.search(spec.image) or " " in spec.image:
        yield "invalid", f"{spec.image[:100]!r} is not a name of an image"
    if not spec.command or not spec.command[0]:
        yield "invalid", "a command is required"
    for number, word in enumerate(spec.command):
        if "\0" in word:
            yield "invalid", f"command[{number}] contains NUL"
        if _size(word) > _MAX_ARGUMENT:
            yield "invalid", f"command[{number}] has more than {_MAX_ARGUMENT} bytes"
    if not _is_plain(spec.working_dir):
        yield "invalid", f"the working directory must be a plain absolute path, not {spec.working_dir!r}"
    if spec.runtime and not _RUNTIME.fullmatch(spec.runtime):
        yield "invalid", f"{spec.runtime!r} is not a name of a runtime"


def _environment(env: Mapping[str, str]) -> Iterator[_Problem]:
    for name, value in env.items():
        if not name or "=" in name or "\0" in name:
            yield "invalid", f"env: {name!r} is not a name of a variable"
        if "\0" in value:
            yield "invalid", f"env: the value of {name!r} contains NUL"
        if _size(name) + _size(value) + 1 > _MAX_ARGUMENT:
            yield "invalid", f"env: {name[:100]!r} has more than {_MAX_ARGUMENT} bytes"
    if sum(_size(name) + _size(value) + 2 for name, value in env.items()) > _MAX_ENVIRONMENT:
        yield "invalid", f"env: all together has more than {_MAX_ENVIRONMENT} bytes"


def _labels(labels: Mapping[str, str]) -> Iterator[_Problem]:
    if len(labels) > _MAX_LABELS:
        yield "invalid", f"labels: at most {_MAX_LABELS} are possible, not {len(labels)}"
    for name, value in labels.items():
        if not name or len(name) + len(value) > _MAX_LABEL or _CONTROL.search(name + value) or "=" in name:
            yield (
                "invalid",
                f"labels: {name[:100]!r} must have a plain name, and {_MAX_LABEL} characters with its value",
            )


def _security(security: Security, *, dev: bool) -> Iterator[_Problem]:
    if security.privileged:
        yield "denied", "a privileged container is not a sandbox"
    if security.network == "host":
        yield "denied", "the host's network is not allowed"
    elif security.network not in get_args(Network):
        yield "invalid", f"unknown network {security.network!r}; use none"
    elif security.network != "none" and not dev:
        yield "denied", f"the network {security.network!r} is for the profile dev only; use none"
    yield from _user(security.user)
    if not security.seccomp or "\0" in security.seccomp:
        yield "invalid", "seccomp must be default, or the path of a profile"
    if dev:
        wrong = [name for name in security.keep_capabilities if not _CAPABILITY.fullmatch(name)]
        if wrong:
            yield "invalid", f"unknown capabilities {', '.join(map(repr, wrong))}"
        return
    if security.seccomp == "unconfined":
        yield "denied", "a container without a seccomp filter is for the profile dev only"
    if not security.read_only_root:
        yield "denied", "a root that can be written is for the profile dev only"
    if not security.no_new_privileges:
        yield "denied", "no_new_privileges can be off under the profile dev only"
    if security.keep_capabilities:
        yield "denied", f"capabilities ({', '.join(security.keep_capabilities)}) are for the profile dev only"


def _user(user: str) -> Iterator[_Problem]:
    found = _USER.fullmatch(user)
    if found is None:
        yield "invalid", f"{user!r} is no user; use the numbers of a user and a group"
        return
    for what, name in (("user", found[1]), ("group", found[3] or "")):
        if name == "root" or (name.isdecimal() and int(name) == 0):
            yield "denied", f"root as the {what} is not allowed"
        elif name.isdecimal() and int(name) >= (1 << 32) - 1:
            yield "invalid", f"{name} is not a number of a {what}"


def _resources(resources: Resources) -> Iterator[str]:
    for name in ("memory_bytes", "pids", "disk_bytes", "open_files"):
        value: Any = getattr(resources, name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            yield f"{name} must be 0 (no bound) or more, not {value!r}"
    cpus: Any = resources.cpus
    if not isinstance(cpus, int | float) or isinstance(cpus, bool) or not math.isfinite(cpus) or cpus < 0:
        yield f"cpus must be 0 (no bound) or more, not {cpus!r}"


def _mount(mount: Mount) -> Iterator[_Problem]:
    if mount.type not in get_args(MountType):
        yield "invalid", f"unknown type {mount.type!r}; use {', '.join(get_args(MountType))}"
    if not mount.target:
        yield "invalid", "a target is required"
    elif not _is_plain(mount.target) or mount.target == "/":
        yield "invalid", f"the target must be a plain absolute path, not {mount.target!r}"
    elif any(_is_in(mount.target, own) for own in _OWN) and (mount.type, mount.target) != ("tmpfs", _SHARED_MEMORY):
        yield "denied", f"the target {mount.target} belongs to the engine"
    if mount.type == "tmpfs":
        if mount.source:
            yield "invalid", "a tmpfs has no source"
        if mount.size_bytes <= 0:
            yield "invalid", f"a tmpfs needs a size in bytes, not {mount.size_bytes!r}"
    elif mount.size_bytes:
        yield "invalid", f"only a tmpfs has a size, not a {mount.type}"
    if mount.type == "bind":
        yield from _bind(mount.source)
    if mount.type == "volume" and not _VOLUME.fullmatch(mount.source):
        what = f"{mount.source!r} is not a name of a volume" if mount.source else "a source is required for a volume"
        yield "invalid", what


def _bind(source: str) -> Iterator[_Problem]:
    if not source:
        yield "invalid", "a source is required for a bind"
        return
    if not _is_plain(source):
        yield "invalid", f"the source must be a plain absolute path, not {source!r}"
        return
    try:
        resolved = str(Path(source).resolve())
    except (OSError, RuntimeError):  # a circle of links, or directories of another user
        resolved = source
    problem = _is_not_for_containers(source) or _is_not_for_containers(resolved)
    if problem:
        yield "denied", f"{source} {problem}"


def why_not_shared(source: Path) -> str:
    """Return why the operator cannot give a container *source*, as it is written or as its links resolve; "" if they
    can. They can give what is in their own home, but not all of it."""
    for path in (source, source.resolve()):
        if not _is_plain(str(path)):
            return "is not a plain absolute path"
        own = Path.home()
        if own in path.parents and str(own) != "/":
            if any(_SOCKETS.fullmatch(part) for part in path.parts):
                return "is the socket of a container engine, which would give away the host"
        elif problem := _is_not_for_containers(str(path)):
            return problem
    return ""


def _is_not_for_containers(path: str) -> str:
    if any(_SOCKETS.fullmatch(part) for part in path.split("/")):
        return "is the socket of a container engine, which would give away the host"
    if any(_is_in(path, directory) or _is_in(directory, path) for directory in _PRIVATE) or _is_home(path):
        return "belongs to the host, and is not for containers"
    return ""


def _is_home(path: str) -> bool:
    """Return whether *path* is the directory of all homes or the whole home of a user: keys are there."""
    return path == _HOMES or posixpath.dirname(path) == _HOMES or (_is_in(_HOMES, path))


def _is_in(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def _is_plain(path: str) -> bool:
    """Absolute, without `.`, `..` or empty parts, and without what is a sign to some engine."""
    normal = posixpath.normpath(path)
    return (
        path.startswith("/")
        and not path.startswith("//")
        and path == normal
        and not re.search(r"[\x00-\x1f\x7f:,]", path)
    )


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
