"""How the host fares while a hostile program runs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Self

from toolexec.process.tree import descendants

_TICK_SECONDS = 0.02
_LOOKS_AT_CHILDREN = 10
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_MAX_STALL_SECONDS = 4.0
_MAX_GROWTH_BYTES = 640 << 20


class Watch:
    """Measures, as `async with`, how long the event loop stood still and how much memory this process and its
    descendants took on top of what they had. Where there is no /proc, only the peak of this process counts."""

    def __init__(self) -> None:
        self._stall = 0.0
        self._before = self._most = _resident(os.getpid()) + _children()
        self._peak_before = _peak()

    async def __aenter__(self) -> Self:
        self._task = asyncio.get_running_loop().create_task(self._look())
        await asyncio.sleep(0)  # so that it looks before anything else runs
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _look(self) -> None:
        last, turn = _own_time(), 0
        children = 0
        try:
            while True:
                await asyncio.sleep(_TICK_SECONDS)
                now = _own_time()
                self._stall, last = max(self._stall, now - last - _TICK_SECONDS), now
                if turn % _LOOKS_AT_CHILDREN == 0:
                    children = _children()
                turn += 1
                self._most = max(self._most, _resident(os.getpid()) + children)
        finally:
            self._stall = max(self._stall, _own_time() - last - _TICK_SECONDS)

    def seen(self) -> list[str]:
        """Return what is more than any program may do to the host, each a sentence."""
        found: list[str] = []
        growth = max(self._most - self._before, _peak() - self._peak_before)
        if growth > _MAX_GROWTH_BYTES:
            found.append(f"the host took {growth >> 20} MiB of memory for it")
        if self._stall > _MAX_STALL_SECONDS:
            found.append(f"the host's event loop stood still for {self._stall:.1f} s")
        return found


def _own_time() -> float:
    """Return a clock in seconds that stands still while this thread could run but has no processor.

    On a busy machine it waits for seconds, whatever the program does: 4.4 s once. Linux counts that wait; see
    Documentation/scheduler/sched-stats.rst of the kernel.
    """
    with contextlib.suppress(OSError, ValueError, IndexError):
        return monotonic() - int(Path("/proc/thread-self/schedstat").read_text("ascii").split()[1]) / 1e9
    return monotonic()


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _children() -> int:
    """Return how much memory the descendants have; where that seems too much, what they share counts once.

    A hundred forks of one Python share nearly all of their 9 MB each. To read the shares of many takes long, so they
    are asked for only then.
    """
    pids = descendants(os.getpid())
    total = sum(map(_resident, pids))
    return total if total <= _MAX_GROWTH_BYTES else sum(map(_share, pids))


def _share(pid: int) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines()
        return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
    return _resident(pid)


def _resident(pid: int) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    return 0
