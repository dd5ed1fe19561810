"""What servers of sandboxes, and their caller, take of processors: counted by the kernel, whatever else the machine
does."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from time import process_time

import psutil


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds of processor time: of this process and of those that it started, of the event loops of the servers, and
    of all else of the servers."""

    caller: float
    loop: float
    rest: float

    @property
    def server(self) -> float:
        """All of the servers."""
        return self.loop + self.rest

    def since(self, before: Spent, runs: int) -> Spent:
        """Return what each of so many runs has taken since *before*."""
        pairs = ((self.caller, before.caller), (self.loop, before.loop), (self.rest, before.rest))
        return Spent(*((now - then) / runs for now, then in pairs))


def spent() -> Spent:
    """Return what was taken until now; the servers are the children of this process that `serve`."""
    ours, loops, all_of_them = process_time(), 0.0, 0.0
    for child in psutil.Process().children():
        tree = sum(sum(each.cpu_times()[:2]) for each in (child, *child.children(recursive=True)))
        if "serve" in child.cmdline():
            loops += loop_times(child.pid)[0]
            all_of_them += tree
        else:
            ours += tree
    return Spent(ours, loops, all_of_them - loops)


def loop_times(pid: int) -> tuple[float, float]:
    """Return the seconds that the main thread of a process, where its event loop is, has had a core and waited for one,
    by the scheduler, which counts nanoseconds."""
    had, waited, *_ = Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()
    return int(had) / 1e9, int(waited) / 1e9
