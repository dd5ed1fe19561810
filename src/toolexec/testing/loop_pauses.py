"""Fail a test that holds the event loop."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def loop_not_held(seconds: float = 0.1) -> AsyncGenerator[None, None]:
    """Raise AssertionError at the end of the block if one turn of the event loop took more than *seconds*.

    What counts is the CPU time of the loop's thread, so that a busy machine does not fail a test. Garbage is not
    collected in the block: a collection falls on any thread. Works with asyncio's own event loops.
    """
    loop: Any = asyncio.get_running_loop()
    turn: Callable[[], None] = loop._run_once  # noqa: SLF001 - nothing public sees the turns
    longest = 0.0

    def measured() -> None:
        nonlocal longest
        began = time.thread_time()
        try:
            turn()
        finally:
            longest = max(longest, time.thread_time() - began)

    was_collecting = gc.isenabled()
    gc.disable()
    loop._run_once = measured  # noqa: SLF001
    await asyncio.sleep(0)  # the turn that began before is not measured
    try:
        yield
        await asyncio.sleep(0)  # so that the last one is
    finally:
        del loop._run_once  # noqa: SLF001
        if was_collecting:
            gc.enable()
    assert longest <= seconds, f"the event loop was held for {longest * 1000:.0f} ms of CPU time"
