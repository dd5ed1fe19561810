"""Measure how long the event loop of a server was held, and by what."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import traceback
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any, Final

from toolexec.model.redaction import redactor
from toolexec.server.rare_warnings import RareWarning

logger: logging.Logger = logging.getLogger(__name__)
LONG_PAUSE: Final = 0.1
"""From how many seconds on a pause is logged."""
_TICK: Final = 0.02
_FRAMES: Final = 12


@asynccontextmanager
async def watch_loop(observe: Callable[[float], None]) -> AsyncGenerator[None, None]:
    """Measure the loop that runs the block, 50 times a second: *observe* receives how many seconds late each tick was.

    A pause of more than `LONG_PAUSE` is logged, at most one in ten seconds, with what the loop was doing: a thread
    looks at it while it is held.
    """
    watch = _Watch(observe)
    ticking = asyncio.create_task(watch.tick(), name="toolexec-loop-watch")
    watching = threading.Thread(target=watch.look, name="toolexec-loop-watch", daemon=True)
    watching.start()
    try:
        yield
    finally:
        ticking.cancel()
        watch.over.set()


class _Watch:
    """One loop under observation. Its ticks are written by the loop, and read by a thread."""

    def __init__(self, observe: Callable[[float], None]) -> None:
        self.over = threading.Event()
        self._observe = observe
        self._loop_thread = threading.get_ident()
        self._due = monotonic() + _TICK
        self._stack = ""
        self._warning = RareWarning(logger)

    async def tick(self) -> None:
        """Observe how late each tick is."""
        while True:
            self._due = monotonic() + _TICK
            await asyncio.sleep(_TICK)
            late = max(monotonic() - self._due, 0.0)
            stack, self._stack = self._stack, ""
            self._observe(late)
            if late > LONG_PAUSE:
                self._log(late, stack)

    def look(self) -> None:
        """Keep what the loop is doing when a tick is overdue."""
        while not self.over.wait(_TICK * 2):
            if not self._stack and monotonic() - self._due > LONG_PAUSE * 0.8:
                frames: Any = vars(sys)["_current_frames"]  # documented, in spite of its name
                frame = frames().get(self._loop_thread)
                if frame is not None:
                    self._stack = "".join(traceback.format_stack(frame, _FRAMES))

    def _log(self, late: float, stack: str) -> None:
        text = redactor.text(stack) or "what held it is not known"
        self._warning.log("the event loop was held for %.0f ms: %s", late * 1000, text)
