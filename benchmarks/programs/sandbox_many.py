"""Five hundred runs in a row in one kind of container sandbox, and what is left of them; what a waiting guest takes."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path

import psutil

from benchmarks.meter import Meter, run_program
from benchmarks.programs.sandbox import ONE_CALL, opened, run
from benchmarks.sandboxes import Place, place
from toolexec.process.owner import this_owner

GUESTS = 8


async def main(meter: Meter) -> None:
    """Both for the kind that the command line names."""
    kind = sys.argv[1]
    with tempfile.TemporaryDirectory(prefix="tx") as folder, place(kind) as here:
        tempfile.tempdir = folder  # so that nobody else's folders are in it
        await many(meter, kind, here, 20 if meter.quick else 500)
        await memory(meter, kind, here)


async def many(meter: Meter, kind: str, here: Place, count: int) -> None:
    """Run after run, each in a new container; then a look at everything that one could have left."""
    async with opened(here) as ex:
        await run(ex, ONE_CALL)
        before = await settled(ex, here)
        for _ in range(count):
            await run(ex, ONE_CALL)
        after = await settled(ex, here)
    left = {what: sorted(after[what] - before[what]) for what in after}
    meter.record(f"sandbox.{kind}.left", sum(map(len, left.values())))
    meter.facts[f"sandbox.{kind}.left"] = {"runs": count, **{what: names[:9] for what, names in left.items() if names}}


async def settled(ex: object, here: Place) -> dict[str, set[str]]:
    """What there is on this machine, once the last container has been removed and idle connections are closed."""
    backend = ex.runtime.backends[0]  # type: ignore[attr-defined]
    while backend.running:
        await asyncio.sleep(0.05)
    await asyncio.sleep(32)  # connections to a daemon are kept for 15 s, and looked at as often
    return traces(here)


def traces(here: Place) -> dict[str, set[str]]:
    """By kind: the names of things that containers are made of."""
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    own = here.folder or tempfile.gettempdir()
    found: dict[str, set[str]] = {
        "processes": set(),
        "control groups": {str(path) for path in Path("/sys/fs/cgroup").glob(f"**/toolexec*/*{this_owner()}*")},
        "mounts": {mount for mount in mounts if mount.startswith(own)},
        "temp folders": {str(path) for path in Path(tempfile.gettempdir()).glob("toolexec-*")},
        "descriptors": {f"{number} {target}" for number in os.listdir("/proc/self/fd") if (target := _target(number))},
    }
    for process in psutil.process_iter():
        try:
            words = " ".join(process.cmdline())
        except psutil.Error:
            continue
        if "config" not in words and (own in words or process.ppid() == os.getpid()):  # and not the daemon
            found["processes"].add(f"{process.pid} {words[:80]}")
    return found


def _target(number: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{number}")
    except OSError:  # the one that the folder was read with
        return ""


async def memory(meter: Meter, kind: str, here: Place) -> None:
    """How much less memory the machine has for each guest that waits."""
    async with opened(here) as ex:
        await run(ex, ONE_CALL)  # so that what all share is there
        await settled(ex, here)
    before = psutil.virtual_memory().available
    async with opened(here, warm=GUESTS) as ex:
        await run(ex, ONE_CALL)
        backend = ex.runtime.backends[0]
        while backend.warm_stats.idle < GUESTS or backend.running:  # type: ignore[attr-defined]
            await asyncio.sleep(0.05)
        await asyncio.sleep(1)
        meter.record(f"sandbox.{kind}.memory", max(before - psutil.virtual_memory().available, 0) / GUESTS / (1 << 20))


if __name__ == "__main__":
    run_program(main)
