"""From the start of a process to the first result of its code, with the sandbox built; and how long building takes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from time import perf_counter

from benchmarks.meter import Meter, run_program
from toolexec.process.private import PrivateDirectory

PROGRAM = """
import asyncio
from toolexec import Exec

async def main():
    async with Exec() as ex:
        ex.add(lambda a, b: a + b, "math:add")
        assert (await ex.execute_code("tools.math.add(a=1, b=2)")).value == 3

asyncio.run(main())
"""


def start(**env: str) -> float:
    """Seconds that a process took that runs the program."""
    started = perf_counter()
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, env={**os.environ, **env}, capture_output=True)
    return perf_counter() - started


def interpreter() -> float:
    """Seconds that an interpreter takes to start and end."""
    started = perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return perf_counter() - started


def await_optimising(directory: Path) -> None:
    """Wait until the process that optimises the sandbox is done: it would take the CPU from what is measured next."""
    time.sleep(1)
    with PrivateDirectory(directory) as private:
        while True:
            with private.claimed("optimise") as ours:
                if ours:
                    return
            time.sleep(0.2)


async def main(meter: Meter) -> None:
    """Once to build what is missing, then warm starts; then a first use with an empty cache."""
    start()
    for _ in range(3 if meter.quick else 7):
        meter.record("code.process_start", start())
        meter.record("code.interpreter", interpreter())
    if not meter.quick:
        with tempfile.TemporaryDirectory() as folder:
            meter.record("code.first_use", start(TOOLEXEC_CACHE=folder))
            await_optimising(Path(folder) / "sandbox")


if __name__ == "__main__":
    run_program(main)
