"""What the processes of a container use, looked at from outside: for where there are no control groups.

A bound of the kernel on each process is none on all of them together, so the sums are looked at now and then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from toolexec.process.tree import Member, ProcessTree
from toolexec.runtime.container.spec import Resources

__all__ = ["Watch"]

_PROC: Final = Path("/proc")
_PERIOD: Final = 0.05
_OWN: Final = 2  # bwrap itself, and the first process in the container


class Watch:
    """Looks at the container whose outermost process is *pid*. Nothing in it can leave its namespace of processes, so
    all that it starts stays below that process."""

    def __init__(self, pid: int, resources: Resources) -> None:
        self._tree = ProcessTree(pid)
        self._resources = resources
        self._seen: dict[tuple[int, int], float] = {}
        self._cpu = 0.0

    async def cpu_seconds(self) -> float:
        """The CPU time used, as far as it was seen."""
        return (await asyncio.to_thread(self._look)).cpu

    async def broken(self) -> str:
        """Which of memory and pids is over its bound, as soon as one is; without end otherwise."""
        while True:
            await asyncio.sleep(_PERIOD)
            now = await asyncio.to_thread(self._look)
            bounds = self._resources
            if bounds.memory_bytes and now.memory > bounds.memory_bytes:
                return "memory"
            if bounds.pids and now.processes > bounds.pids + _OWN:
                return "pids"

    def _look(self) -> _Used:
        members = self._tree.members()
        for member in members:
            self._seen[member.pid, member.started] = member.own_cpu
        memory = sum(member.memory for member in members)
        if 0 < self._resources.memory_bytes < memory:  # what is shared was counted more than once
            memory = _shares(members)
        told = sum(member.own_cpu + member.children_cpu for member in members)
        self._cpu = max(self._cpu, told, sum(self._seen.values()))
        return _Used(memory, self._cpu, len(members))


class _Used(NamedTuple):
    memory: int
    cpu: float
    processes: int


def _shares(members: Iterable[Member]) -> int:
    """What they use in bytes, each counted with its share of what it has in common with others."""
    total = 0
    for member in members:
        try:
            lines = (_PROC / str(member.pid) / "smaps_rollup").read_bytes().splitlines()
        except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            continue
        except OSError:
            total += member.memory
        else:
            total += sum(int(line.split()[1]) << 10 for line in lines if line.startswith(b"Pss:"))
    return total
