"""Limits on the processes of a run: the kernel's for each process, and a look every 50 ms at all of them together.

The kernel counts every process by itself, so a program that starts many could use its memory or CPU time many times
over; and its bound on processes counts those of the user, and none of root's. So the sums are looked at from outside.
"""

from __future__ import annotations

import asyncio
import math
import sys
from typing import Any, Final, NamedTuple

from toolexec.code.limits import Limits
from toolexec.process.tree import ProcessTree
from toolexec.runtime.outcome import Stopped

__all__ = ["Watch"]

_CAN_WATCH: Final = sys.platform == "linux"
"""Whether sums over processes can be had here."""

_PERIOD: Final = 0.05
_HUNGRY: Final = frozenset({"javascript", "go"})
"""Languages whose runtimes reserve far more addresses than memory."""


class Watch:
    """Holds the processes of a guest to *limits* during one run.

    Memory and CPU time that the guest has used before, such as for its own start, do not count. *last* says that
    there is no other run after this one, so that the kernel's limits may be final.
    """

    def __init__(self, tree: ProcessTree, limits: Limits, language: str, *, last: bool) -> None:
        self._tree = tree
        self._limits = limits
        self._asked = _CAN_WATCH and bool(limits.memory_bytes or limits.cpu_ms or limits.pids)
        self._seen: dict[tuple[int, int], float] = {}
        self._before = self._used() if self._asked else _Used(0, 0.0, 0.0, 0)
        if _CAN_WATCH:
            self._set_kernel_limits(language, last)

    async def run(self) -> Stopped:
        """Which limit is broken, as soon as one is; without end otherwise."""
        limits, before = self._limits, self._before
        while True:
            await asyncio.sleep(_PERIOD if self._asked else 3600)
            now = await asyncio.to_thread(self._used)
            if limits.memory_bytes and now.memory - before.memory > limits.memory_bytes:
                return "memory"
            if limits.cpu_ms and max(now.cpu - before.cpu, now.seen_cpu - before.seen_cpu) * 1000 > limits.cpu_ms:
                return "cpu"
            if limits.pids and now.processes - before.processes >= limits.pids:
                return "pids"

    def _used(self) -> _Used:
        members = self._tree.members()
        for member in members:
            self._seen[member.pid, member.started] = member.own_cpu
        return _Used(
            memory=sum(member.memory for member in members),
            cpu=sum(member.own_cpu + member.children_cpu for member in members),
            seen_cpu=sum(self._seen.values()),
            processes=len(members),
        )

    def _set_kernel_limits(self, language: str, last: bool) -> None:
        import resource

        pid, limits = self._tree.root, self._limits
        forever = resource.RLIM_INFINITY
        bounds: dict[int, int] = {resource.RLIMIT_CORE: 0}
        if limits.cpu_ms:
            bounds[resource.RLIMIT_CPU] = math.ceil(self._before.cpu + limits.cpu_ms / 1000)
        if limits.memory_bytes and language not in _HUNGRY:
            bounds[resource.RLIMIT_AS] = _addresses(pid) + limits.memory_bytes
        if limits.disk_bytes:
            bounds[resource.RLIMIT_FSIZE] = limits.disk_bytes
        for kind in (resource.RLIMIT_CPU, resource.RLIMIT_AS, resource.RLIMIT_FSIZE, resource.RLIMIT_CORE):
            bound = bounds.get(kind, forever)
            try:
                now = resource.prlimit(pid, kind)
                hard = now[1] if not last or bound == forever else bound
                resource.prlimit(pid, kind, (_least(bound, now[1]), _least(hard, now[1])))
            except (OSError, ValueError):  # it is gone already, and the run with it
                return


class _Used(NamedTuple):
    """What the processes of a guest use.

    CPU time is known in two ways, each of which misses some: what those that live and their ended children have used,
    and what all that were ever seen had used when they were last seen.
    """

    memory: int
    cpu: float
    seen_cpu: float
    processes: int


def _addresses(pid: int) -> int:
    """The bytes of address space that a process has now."""
    import resource

    try:
        with open(f"/proc/{pid}/statm", "rb") as file:  # noqa: PTH123 - a file of the kernel's
            return int(file.read().split()[0]) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        return 0


def _least(one: int, other: int) -> Any:
    """The smaller of two bounds; -1 is no bound."""
    return max(one, other) if -1 in (one, other) else min(one, other)
