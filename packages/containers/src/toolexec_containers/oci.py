"""A container as an OCI runtime reads it: config.json of a bundle, by version 1.0.2 of the runtime specification."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from toolexec.containers import (
    CORE_BYTES,
    CPU_PERIOD,
    DEFAULT_PATH,
    DEVICES,
    HOSTNAME,
    MASKED,
    NAMESPACES,
    READ_ONLY,
    SHARED_MEMORY,
    JSONDict,
    Mount,
    cpu_quota,
    oci_seccomp,
    seccomp_profile,
)
from toolexec.errors import InvalidRequestError
from toolexec.sandbox import ContainerSpec

OCI_VERSION: Final = "1.0.2"

_DEFAULT_SHARED_MEMORY: Final = 64 << 20
_CAPABILITY_SETS: Final = ("bounding", "effective", "inheritable", "permitted", "ambient")
_PRIVATE: Final = ("nosuid", "nodev")
_SYSTEM_MOUNTS: Final[tuple[JSONDict, ...]] = (
    {"destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid", "noexec", "nodev"]},
    {
        "destination": "/dev",
        "type": "tmpfs",
        "source": "tmpfs",
        "options": ["nosuid", "strictatime", "mode=755", "size=65536k"],
    },
    {
        "destination": "/dev/pts",
        "type": "devpts",
        "source": "devpts",
        "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"],
    },
)
_PSEUDO_TERMINALS: Final = 136


def oci_config(
    spec: ContainerSpec,
    root: str,
    *,
    cgroups_path: str = "",
    hostname: str = HOSTNAME,
    uid_mappings: Sequence[tuple[int, int, int]] = (),
    gid_mappings: Sequence[tuple[int, int, int]] = (),
    annotations: Mapping[str, str] | None = None,
    machine: str = "",
) -> JSONDict:
    """Return the content of config.json for *spec*, which `check_spec` has let pass, over the root file system *root*.

    The process has no capability, cannot gain any, and leads no terminal; there is no `/sys`. Memory and swap
    together have the one bound. `cgroups_path` is where its cgroup goes, by default where the runtime puts it. With
    mappings, each (number inside, number outside, how many), it gets a user namespace. The seccomp filter is ours, or
    that of the profile's file, which is read here; *machine* is what the container runs on, by default as this one.

    A runtime makes a mount's target in *root* if it is not there: an image that several containers share had better
    have `/work`.

    Raises InvalidRequestError for a user that is not a number, for volumes and for a network, none of which a bundle
    can have, and ConfigurationError for a seccomp profile that cannot be used.
    """
    if spec.security.network != "none":
        raise InvalidRequestError(f"an OCI bundle has no network {spec.security.network!r}; use none")
    uid, gid = _user(spec.security.user)
    linux: JSONDict = {
        "namespaces": [{"type": kind} for kind in NAMESPACES],
        "resources": _resources(spec),
        "maskedPaths": [f"/proc/{name}" for name in MASKED],
        "readonlyPaths": [f"/proc/{name}" for name in READ_ONLY],
    }
    if cgroups_path:
        linux["cgroupsPath"] = cgroups_path
    if uid_mappings or gid_mappings:
        linux["namespaces"].append({"type": "user"})
        linux["uidMappings"] = _mappings(uid_mappings)
        linux["gidMappings"] = _mappings(gid_mappings)
    profile = seccomp_profile(spec.security.seccomp, machine)
    if profile is not None:
        linux["seccomp"] = oci_seccomp(profile, machine)
    return {
        "ociVersion": OCI_VERSION,
        "hostname": hostname,
        "root": {"path": root, "readonly": spec.security.read_only_root},
        "process": _process(spec, uid, gid),
        "mounts": [*_SYSTEM_MOUNTS, *_mounts(spec, uid, gid)],
        "annotations": {**spec.labels, **(annotations or {})},
        "linux": linux,
    }


def _process(spec: ContainerSpec, uid: int, gid: int) -> JSONDict:
    env = {"PATH": DEFAULT_PATH, **spec.env}
    kept = [*spec.security.keep_capabilities]
    limits = [("RLIMIT_CORE", CORE_BYTES)]
    if spec.resources.open_files:
        limits.append(("RLIMIT_NOFILE", spec.resources.open_files))
    return {
        "terminal": False,
        "user": {"uid": uid, "gid": gid, "umask": 0o022},
        "args": [*spec.command],
        "env": [f"{name}={value}" for name, value in env.items()],
        "cwd": spec.working_dir,
        "capabilities": dict.fromkeys(_CAPABILITY_SETS, kept),
        "noNewPrivileges": spec.security.no_new_privileges,
        "rlimits": [{"type": kind, "soft": bound, "hard": bound} for kind, bound in limits],
    }


def _mounts(spec: ContainerSpec, uid: int, gid: int) -> list[JSONDict]:
    mounts = [*spec.mounts]
    if all(mount.target != SHARED_MEMORY for mount in mounts):
        mounts.append(Mount(type="tmpfs", target=SHARED_MEMORY, size_bytes=_DEFAULT_SHARED_MEMORY))
    return [_mount(mount, uid, gid) for mount in mounts]


def _mount(mount: Mount, uid: int, gid: int) -> JSONDict:
    """Programs may be run from all of them: compilers put theirs there."""
    access = "ro" if mount.read_only else "rw"
    match mount.type:
        case "tmpfs":
            options = [*_PRIVATE, access, "mode=1777", f"uid={uid}", f"gid={gid}", f"size={mount.size_bytes}"]
            return {"destination": mount.target, "type": "tmpfs", "source": "tmpfs", "options": options}
        case "bind":
            options = ["rbind", "rprivate", *_PRIVATE, access]
            return {"destination": mount.target, "type": "bind", "source": mount.source, "options": options}
        case _:
            raise InvalidRequestError(f"an OCI bundle has no volumes, such as {mount.source!r}; use a bind mount")


def _resources(spec: ContainerSpec) -> JSONDict:
    asked = spec.resources
    devices: list[JSONDict] = [{"allow": False, "access": "rwm"}]
    devices += [{"allow": True, "type": "c", "major": a, "minor": b, "access": "rwm"} for a, b in DEVICES.values()]
    devices.append({"allow": True, "type": "c", "major": _PSEUDO_TERMINALS, "access": "rwm"})
    data: JSONDict = {"devices": devices}
    if asked.memory_bytes:
        data["memory"] = {"limit": asked.memory_bytes, "swap": asked.memory_bytes}  # memory and swap together
    if asked.pids:
        data["pids"] = {"limit": asked.pids}
    if asked.cpus:
        data["cpu"] = {"quota": cpu_quota(asked.cpus), "period": CPU_PERIOD}
    return data


def _mappings(mappings: Sequence[tuple[int, int, int]]) -> list[dict[str, int]]:
    return [{"containerID": inside, "hostID": outside, "size": size} for inside, outside, size in mappings]


def _user(user: str) -> tuple[int, int]:
    """Return the numbers; the group is by default that of the same number."""
    uid, _, gid = user.partition(":")
    if not uid.isdecimal() or not (gid or uid).isdecimal():
        raise InvalidRequestError(f"an OCI bundle needs the numbers of a user and a group, not {user!r}")
    return int(uid), int(gid or uid)
