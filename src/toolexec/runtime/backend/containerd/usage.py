"""What the processes of a container use and have run into, as the kernel counts it in their cgroup. Blocks on it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = ["Usage", "controllers"]

_MOUNTED: Final = Path("/sys/fs/cgroup")


class Usage:
    """The cgroup at *path* (as in `cgroupsPath` of an OCI bundle) of version 1 or 2; it need not be there."""

    def __init__(self, path: str, *, mounted: Path = _MOUNTED) -> None:
        self._path = path.lstrip("/")
        self._mounted = mounted

    def cpu_seconds(self) -> float | None:
        """The CPU time used by all that is or was in it; None if that is not counted."""
        nanoseconds = self._read("cpuacct", "cpuacct.usage").strip()
        if nanoseconds.isdecimal():
            return int(nanoseconds) / 1e9
        microseconds = self._counted("", "cpu.stat", "usage_usec")
        return None if microseconds is None else microseconds / 1e6

    def oom(self) -> bool:
        """Whether the kernel has killed a process for its memory."""
        return bool(
            self._counted("memory", "memory.oom_control", "oom_kill") or self._counted("", "memory.events", "oom_kill")
        )

    def pids(self) -> bool:
        """Whether a process was refused for their number."""
        return bool(self._counted("pids", "pids.events", "max") or self._counted("", "pids.events", "max"))

    def _counted(self, controller: str, file: str, name: str) -> int | None:
        for line in self._read(controller, file).splitlines():
            key, _, value = line.partition(" ")
            if key == name and value.strip().isdecimal():
                return int(value)
        return None

    def _read(self, controller: str, file: str) -> str:
        with suppress(OSError):
            return (self._mounted / controller / self._path / file).read_text("ascii", "replace")
        return ""


def controllers(mounted: Path = _MOUNTED) -> frozenset[str]:
    """The controllers that there are, of version 1 and 2: "memory", "pids", "cpu", "cpuacct", …"""
    found: set[str] = set()
    with suppress(OSError):
        found.update((mounted / "cgroup.controllers").read_text("ascii").split())
        found.add("cpuacct")  # always part of version 2
    with suppress(OSError):
        found.update(name for folder in mounted.iterdir() for name in folder.name.split(",") if folder.is_dir())
    return frozenset(found)
