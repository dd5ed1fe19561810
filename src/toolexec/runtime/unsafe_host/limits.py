"""Limits on the processes of a run: the kernel's for each process, and a watch on all of them together."""

from __future__ import annotations

import math
import sys
from typing import Any, Final

from toolexec.code.limits import Limits
from toolexec.process.tree import ProcessTree
from toolexec.process.watch import Watch

_CAN_WATCH: Final = sys.platform == "linux"
"""Whether sums over processes can be had here."""

_PERIOD: Final = 0.05
_NEVER: Final = 3600.0
_HUNGRY: Final = frozenset({"javascript", "go"})
"""Languages whose runtimes reserve far more addresses than memory."""


def watch_limits(tree: ProcessTree, limits: Limits, language: str, *, last: bool) -> Watch:
    """Hold the processes of a guest to *limits* during one run; gives what watches the sums. Blocks for a look.

    Memory and CPU time that the guest has used before, such as for its own start, do not count. *last* says that
    there is no other run after this one, so that the kernel's limits may be final.
    """
    asked = _CAN_WATCH and bool(limits.memory_bytes or limits.cpu_ms or limits.pids)
    watch = Watch(
        tree,
        memory_bytes=limits.memory_bytes,
        cpu_seconds=limits.cpu_ms / 1000,
        pids=limits.pids,
        from_now=asked,
        period=_PERIOD if asked else _NEVER,
    )
    if _CAN_WATCH:
        _set_kernel_limits(tree.root, limits, language, last, watch.before.cpu)
    return watch


def _set_kernel_limits(pid: int, limits: Limits, language: str, last: bool, used_cpu: float) -> None:
    import resource

    forever = resource.RLIM_INFINITY
    bounds: dict[int, int] = {resource.RLIMIT_CORE: 0}
    if limits.cpu_ms:
        bounds[resource.RLIMIT_CPU] = math.ceil(used_cpu + limits.cpu_ms / 1000)
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


def _addresses(pid: int) -> int:
    """Return the bytes of address space that a process has now."""
    import resource

    try:
        with open(f"/proc/{pid}/statm", "rb") as file:  # noqa: PTH123 - a file of the kernel's
            return int(file.read().split()[0]) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        return 0


def _least(one: int, other: int) -> Any:
    """Return the smaller of two bounds; -1 means no bound."""
    return max(one, other) if -1 in (one, other) else min(one, other)
