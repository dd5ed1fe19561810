"""Timers of durable code on Temporal: those of its workflow."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from toolexec import Exec, Tool
from toolexec.errors import RunWaitingError
from toolexec_temporal import TemporalEngine, TemporalSettings

SHORT = """
import asyncio, time
began = time.monotonic()
await asyncio.sleep(0.3)
slept = time.monotonic() - began >= 0.3
try:
    async with asyncio.timeout(0.3):
        late = await tools.run("run:signal", {"name": "never"})
except TimeoutError:
    late = "late"
async with asyncio.timeout(60):
    early = await tools.t.count()
return [slept, late, early]
"""
LONG = """
import time
before = tools.t.count()
time.sleep(8)
return [before, tools.t.count()]
"""


@asynccontextmanager
async def opened(settings: TemporalSettings) -> AsyncGenerator[Exec]:
    """Open a worker with a tool that counts its calls."""
    counted: list[int] = []

    def count(args: dict[str, Any]) -> int:
        counted.append(1)
        return len(counted)

    async with Exec(journal=TemporalEngine(settings)) as ex:
        ex.add(Tool(name="count", namespace="t", input_schema={"type": "object"}), handler=count)
        async with ex.worker():
            yield ex


async def test_short_timers_keep_the_sandbox(settings: TemporalSettings) -> None:
    """A sleep takes its time, and a time limit fires or is called off."""
    async with opened(settings) as ex:
        result = await ex.execute_code(SHORT, durable="run")
        assert (result.value, result.error) == ([True, "late", 1], None)
        slept = [call.step for call in await ex.runs.calls("run") if call.tool == "run:sleep" and call.state == "done"]
        assert slept == ["t1", "t2"]


async def test_a_long_sleep_stops_the_sandbox(settings: TemporalSettings) -> None:
    """The run waits with the time when it is due, and goes on by itself then."""
    async with opened(replace(settings, timer_linger=0)) as ex:
        result = await ex.execute_code(LONG, durable="run")
        assert isinstance(result.error, RunWaitingError), result.error
        [wait] = result.error.waits
        assert (wait["kind"], wait["step"], wait["due"] is not None) == ("time", "t1", True)
        while isinstance(result.error, RunWaitingError):
            result = await ex.runs.resume("run")
        assert (result.value, result.error) == ([1, 2], None)
