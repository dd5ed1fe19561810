"""smolagents' local executor: an interpreter in Python within the process, no isolation by a sandbox."""

from __future__ import annotations

from importlib.metadata import version
from time import perf_counter

from smolagents.local_python_executor import LocalPythonExecutor

from benchmarks.meter import Meter, run_program

CALLS = 200


def add(a: int, b: int = 0) -> int:
    """Add."""
    return a + b


async def main(meter: Meter) -> None:
    """A fresh executor with one call; what a call adds."""

    def timed(code: str) -> float:
        started = perf_counter()
        executor = LocalPythonExecutor(additional_authorized_imports=[])
        executor.send_tools({"add": add})
        executor(code)
        return perf_counter() - started

    code = "n = 0\nfor i in range({}):\n    n = add(i, 2)\nn"

    async def one_call() -> None:
        timed("add(1, 2)")

    await meter.runs("peers.smolagents_one_call", one_call)
    for _ in range(3 if meter.quick else 15):
        without = timed(code.format(0))
        meter.record("peers.smolagents_call", (timed(code.format(CALLS)) - without) / CALLS)
    meter.facts["smolagents"] = version("smolagents")


if __name__ == "__main__":
    run_program(main)
