"""What the processes of a tree use together, looked at from outside.

A kernel limit on each process does not limit all of them together: a program that starts many could use its memory or
CPU time many times over, and the limit on processes counts those of the user, and none of root's. So without control
groups the sums are checked at intervals.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Literal, NamedTuple

from toolexec.process.tree import Member, ProcessTree

_PROC: Final = Path("/proc")
_PERIOD: Final = 0.05


class Watch:
    """Looks every *period* seconds at what the processes of *tree* use together; 0 means unbounded.

    *own* processes do not count. With *from_now* neither does what there is now, but for the root of the tree, nor the
    memory and CPU time that it uses or has used; then making this blocks for a look. With *shared_once* memory that
    processes share counts once; reading that of many takes too long where nothing else stops a fork bomb.
    """

    def __init__(
        self,
        tree: ProcessTree,
        *,
        memory_bytes: int = 0,
        cpu_seconds: float = 0,
        pids: int = 0,
        own: int = 0,
        shared_once: bool = False,
        from_now: bool = False,
        period: float = _PERIOD,
    ) -> None:
        self._tree = tree
        self._bounds = _Used(memory_bytes, cpu_seconds, 0, pids)
        self._shared_once = shared_once
        self._period = period
        self._seen: dict[tuple[int, int], float] = {}
        self._cpu = 0.0
        self.before = _Used(0, 0.0, 0.0, own)
        """What does not count."""
        if from_now:
            used, _ = self._used()
            self.before: _Used = used._replace(processes=used.processes - 1)

    async def cpu_seconds(self) -> float:
        """Return the CPU time used, where it was seen."""
        return (await asyncio.to_thread(self._look)).cpu

    async def broken(self) -> Literal["memory", "cpu", "pids"]:
        """Wait until a bound is broken and return which; without end otherwise."""
        bounds = self._bounds
        while True:
            await asyncio.sleep(self._period)
            now = await asyncio.to_thread(self._look)
            if 0 < bounds.memory < now.memory:
                return "memory"
            if 0 < bounds.cpu < now.cpu:
                return "cpu"
            if 0 < bounds.processes < now.processes:
                return "pids"

    def _look(self) -> _Used:
        """Return what counts."""
        now, members = self._used()
        before, memory = self.before, now.memory - self.before.memory
        if self._shared_once and 0 < self._bounds.memory < memory:
            memory = _shares(members) - before.memory
        self._cpu = max(self._cpu, now.cpu - before.cpu, now.seen_cpu - before.seen_cpu)
        return _Used(memory, self._cpu, 0, now.processes - before.processes)

    def _used(self) -> tuple[_Used, list[Member]]:
        members = self._tree.members()
        for member in members:
            self._seen[member.pid, member.started] = member.own_cpu
        memory = sum(member.memory for member in members)
        cpu = sum(member.own_cpu + member.children_cpu for member in members)
        return _Used(memory, cpu, sum(self._seen.values()), len(members)), members


class _Used(NamedTuple):
    """What processes use.

    CPU time is known in two ways, each of which misses some: what those that live and their ended children have used,
    and what all that were ever seen had used when they were last seen.
    """

    memory: int
    cpu: float
    seen_cpu: float
    processes: int


def _shares(members: Iterable[Member]) -> int:
    """Return what they use in bytes, each counted with its share of what it has in common with others."""
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
