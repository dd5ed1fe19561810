"""From the start of a process to the answer of a tool: `toolexec run` of a Python file, and an `Exec` in a program."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

from benchmarks.meter import Meter, run_program

TOOLS = "from toolexec import tool\n\n\n@tool\ndef add(a: int, b: int) -> int:\n    return a + b\n"
PROGRAM = """
import asyncio
from toolexec import Exec

async def main():
    async with Exec() as ex:
        ex.add(lambda a, b: a + b, "math:add")
        assert (await ex.run_tool("math:add", {"a": 5, "b": 3})).value == 8

asyncio.run(main())
"""


def start(meter: Meter, name: str, *command: str) -> None:
    """Record the seconds of a process, and its processor time."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), perf_counter()
    subprocess.run([sys.executable, *command], check=True, env=env, capture_output=True)
    taken, after = perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    meter.record(name, taken)
    meter.record(f"{name}@cpu", after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


async def main(meter: Meter) -> None:
    """Each in turn; the first round writes the byte code."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tools.py"
        path.write_text(TOOLS)
        run = ("-m", "toolexec", "run", "add", "a=1", "b=2", "-c", str(path))
        for command in (run, ("-c", PROGRAM)):
            start(Meter(quick=True), "", *command)
        for _ in range(5 if meter.quick else 20):
            start(meter, "starting.interpreter", "-c", "pass")
            start(meter, "starting.run", *run)
            start(meter, "starting.call", "-c", PROGRAM)
            start(meter, "starting.libraries", "-c", "import pydantic.main, rich.console, typer.main")


if __name__ == "__main__":
    run_program(main)
