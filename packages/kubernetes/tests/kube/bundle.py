"""A container of a pod as runc reads it: what a kubelet and containerd make of a pod's container."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from packages.kubernetes.tests.kube.objects import Object, quantity

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PERIOD = 100_000
_CAPABILITIES = (
    "CHOWN DAC_OVERRIDE FSETID FOWNER MKNOD NET_RAW SETGID SETUID SETFCAP SETPCAP NET_BIND_SERVICE SYS_CHROOT KILL "
    "AUDIT_WRITE"
).split()
_SYSTEM = (
    ("/proc", "proc", "proc", ["nosuid", "noexec", "nodev"]),
    ("/dev", "tmpfs", "tmpfs", ["nosuid", "strictatime", "mode=755", "size=65536k"]),
    ("/dev/pts", "devpts", "devpts", ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"]),
    ("/dev/shm", "tmpfs", "shm", ["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"]),
    ("/dev/mqueue", "mqueue", "mqueue", ["nosuid", "noexec", "nodev"]),
    ("/sys", "sysfs", "sysfs", ["nosuid", "noexec", "nodev", "ro"]),
)
_MASKED = (
    "/proc/acpi /proc/asound /proc/interrupts /proc/kcore /proc/keys /proc/latency_stats /proc/timer_list "
    "/proc/timer_stats /proc/sched_debug /proc/scsi /sys/firmware /sys/devices/virtual/powercap"
).split()
_READ_ONLY = "/proc/bus /proc/fs /proc/irq /proc/sys /proc/sysrq-trigger".split()
_DEVICES = ((1, 3), (1, 5), (1, 7), (1, 8), (1, 9), (5, 0), (5, 2), (136, None))
_REFERENCE = re.compile(r"\$\$|\$\(([-._a-zA-Z][-._a-zA-Z0-9]*)\)")


@dataclass(frozen=True)
class Mounted:
    """A bind mount of a container."""

    target: str
    source: str
    read_only: bool


def expand(text: str, env: Mapping[str, str]) -> str:
    """Replace `$(NAME)` by the variable, where there is one, as kubelets do in commands."""

    def replace(found: re.Match[str]) -> str:
        return "$" if found[0] == "$$" else env.get(found[1], found[0])

    return _REFERENCE.sub(replace, text)


def user_of(pod: Object, container: Object) -> tuple[int, int, list[int]]:
    """Return user, group and further groups; raises ValueError for root where that is not allowed."""
    outer: Object = pod["spec"].get("securityContext") or {}
    own: Object = container.get("securityContext") or {}
    uid = own.get("runAsUser", outer.get("runAsUser", 0))
    gid = own.get("runAsGroup", outer.get("runAsGroup", 0))
    if not uid and own.get("runAsNonRoot", outer.get("runAsNonRoot")):
        what = "container has runAsNonRoot and image will run as root"
        raise ValueError(f'{what} (pod: "{pod["metadata"]["name"]}", container: {container["name"]})')
    groups = [*(outer.get("supplementalGroups") or [])]
    if "fsGroup" in outer:
        groups.append(outer["fsGroup"])
    return uid, gid, groups


def inside(root: Path, target: str) -> Path:
    """Return where *target* is in *root*: links stay within it."""
    parts, found = [*reversed(Path(target).parts[1:])], root
    for _ in range(200):
        if not parts:
            break
        part = parts.pop()
        if part == "..":
            found = found.parent if found != root else root
            continue
        step = found / part
        if step.is_symlink():
            link = Path(os.readlink(step))
            parts += [each for each in reversed(link.parts) if each != "/"]
            found = root if link.is_absolute() else found
        else:
            found = step
    return found


def bundle_config(
    pod: Object,
    container: Object,
    *,
    root: Path,
    args: list[str],
    env: Mapping[str, str],
    mounts: list[Mounted],
    cgroup: str,
    namespaces: Mapping[str, str],
) -> Object:
    """Return config.json. *namespaces* are those that are joined, kind → path. RuntimeDefault refuses nothing here: it
    is another filter with each runtime, and nothing may depend on it. Raises ValueError as `user_of`."""
    context: Object = container.get("securityContext") or {}
    kinds = ("pid", "network", "ipc", "uts", "mount", "cgroup")
    linux: Object = {
        "namespaces": [{"type": each} | ({"path": namespaces[each]} if each in namespaces else {}) for each in kinds],
        "resources": _resources(container),
        "cgroupsPath": cgroup,
    }
    if not context.get("privileged"):
        linux |= {"maskedPaths": _MASKED, "readonlyPaths": _READ_ONLY}
    kind = ((context.get("seccompProfile") or pod["spec"].get("securityContext", {}).get("seccompProfile")) or {}).get(
        "type"
    )
    if kind == "RuntimeDefault":
        linux["seccomp"] = {"defaultAction": "SCMP_ACT_ALLOW"}
    return {
        "ociVersion": "1.0.2",
        "hostname": pod["spec"].get("hostname") or pod["metadata"]["name"][:63],
        "root": {"path": str(root), "readonly": bool(context.get("readOnlyRootFilesystem"))},
        "process": _process(pod, container, args, env),
        "mounts": _mounts(mounts),
        "linux": linux,
    }


def _process(pod: Object, container: Object, args: list[str], env: Mapping[str, str]) -> Object:
    context: Object = container.get("securityContext") or {}
    uid, gid, groups = user_of(pod, container)
    bounding = _capabilities(context)
    kept = [] if uid else bounding
    sets = {"bounding": bounding, "permitted": kept, "effective": kept}
    escalates = context.get("allowPrivilegeEscalation")
    return {
        "terminal": False,
        "user": {"uid": uid, "gid": gid, "additionalGids": groups},
        "args": [expand(each, env) for each in args],
        "env": [f"{name}={value}" for name, value in {"PATH": _PATH, **env}.items()],
        "cwd": container.get("workingDir") or "/",
        "capabilities": sets,
        "noNewPrivileges": escalates is False,
        "oomScoreAdj": 100,
    }


def _capabilities(context: Object) -> list[str]:
    asked: Object = context.get("capabilities") or {}
    dropped = {*(asked.get("drop") or [])}
    kept = [] if "ALL" in dropped else [each for each in _CAPABILITIES if each not in dropped]
    return [f"CAP_{each}" for each in [*kept, *(asked.get("add") or [])]]


def _mounts(mounts: list[Mounted]) -> list[Object]:
    taken = {each.target for each in mounts}
    listed: list[Object] = [
        {"destination": target, "type": kind, "source": source, "options": options}
        for target, kind, source, options in _SYSTEM
        if target not in taken
    ]
    for each in sorted(mounts, key=lambda each: each.target.count("/")):
        access = "ro" if each.read_only else "rw"
        options = ["rbind", "rprivate", access]
        listed.append({"destination": each.target, "type": "bind", "source": each.source, "options": options})
    return listed


def _resources(container: Object) -> Object:
    limits: Object = (container.get("resources") or {}).get("limits") or {}
    requests: Object = (container.get("resources") or {}).get("requests") or {}
    devices: list[Object] = [{"allow": False, "access": "rwm"}]
    for major, minor in _DEVICES:
        rule = {"allow": True, "type": "c", "major": major, "access": "rwm"}
        devices.append(rule | ({"minor": minor} if minor is not None else {}))
    data: Object = {"devices": devices, "cpu": {"shares": max(2, int(quantity(requests.get("cpu", 0)) * 1024))}}
    if "memory" in limits:
        memory = int(quantity(limits["memory"]))
        data["memory"] = {"limit": memory, "swap": memory}
    if "cpu" in limits:
        data["cpu"] |= {"quota": max(1000, int(quantity(limits["cpu"]) * _PERIOD)), "period": _PERIOD}
    return data
