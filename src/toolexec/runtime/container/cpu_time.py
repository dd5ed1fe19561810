"""The CPU time of a container, straight from the kernel: some daemons take a second or two to tell it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

__all__ = ["cgroup_cpu_seconds"]

_PROC: Final = Path("/proc")
_CGROUPS: Final = Path("/sys/fs/cgroup")
_CONTROLLERS: Final = ("cpuacct", "cpu,cpuacct", "cpuacct,cpu")


def cgroup_cpu_seconds(pid: int, container: str, proc: Path = _PROC, cgroups: Path = _CGROUPS) -> float | None:
    """What the control group of the container with the first process *pid* has used.

    None where it cannot be told: the container is gone, or of another machine, whose process numbers mean nothing here;
    so the control group must have the ID of the *container* in its name.
    """
    try:
        lines = (proc / str(pid) / "cgroup").read_text("ascii").splitlines()
    except (OSError, ValueError):
        return None
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if container not in path:
            continue
        if "cpuacct" in controllers.split(","):
            for mounted in _CONTROLLERS:
                used = _number(cgroups / mounted / path.lstrip("/") / "cpuacct.usage")
                if used is not None:
                    return used / 1e9
        elif not controllers:
            used = _usage_usec(cgroups / path.lstrip("/") / "cpu.stat")
            if used is not None:
                return used / 1e6
    return None


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text("ascii"))
    except (OSError, ValueError):
        return None


def _usage_usec(path: Path) -> int | None:
    try:
        for line in path.read_text("ascii").splitlines():
            name, _, value = line.partition(" ")
            if name == "usage_usec":
                return int(value)
    except (OSError, ValueError):
        pass
    return None
