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

logger: logging.Logger = logging.getLogger(__name__)
LONG_PAUSE: Final = 0.1
"""From how many seconds on a pause is logged."""
_TICK: Final = 0.02
_LOG_EVERY: Final = 10.0
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
        self._logged = -_LOG_EVERY
        self._left_out = 0

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
        now = monotonic()
        if now - self._logged < _LOG_EVERY:
            self._left_out += 1
            return
        more = f" ({self._left_out} more were not logged)" if self._left_out else ""
        self._logged, self._left_out = now, 0
        text = redactor.text(stack) or "what held it is not known"
        logger.warning("the event loop was held for %.0f ms%s:\n%s", late * 1000, more, text)
