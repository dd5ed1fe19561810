"""A killable tool: each call goes to a worker process and back."""

from __future__ import annotations

from time import perf_counter

from benchmarks.meter import Meter, run_program
from benchmarks.programs.echo import ARGS
from toolexec import Exec, tool


@tool("bench:killable", killable=True)
def killable(text: str, count: int, loud: bool) -> dict[str, str | int | bool]:
    """Runs in a worker process."""
    return {"text": text, "count": count, "loud": loud}


async def main(meter: Meter) -> None:
    """The first call, which starts the process, and the calls after it."""
    async with Exec() as ex:
        ex.add(killable)
        started = perf_counter()
        result = await ex.run_tool("bench:killable", ARGS)
        meter.record("worker.first_call", perf_counter() - started)
        assert result.raise_for_error().value == ARGS
        await meter.awaited("worker.call", ex.run_tool, "bench:killable", ARGS)


if __name__ == "__main__":
    run_program(main)
