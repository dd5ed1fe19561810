"""Measure how long the event loop of a server was held, and by what."""

from __future__ import annotations

import asyncio
import logging
import math
import sys
import threading
import traceback
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from time import process_time
from typing import Any, Final

from toolexec.model.redaction import redactor
from toolexec.server.rare_warnings import RareWarning

logger: logging.Logger = logging.getLogger(__name__)
LONG_PAUSE: Final = 0.1
"""From how many seconds on a pause is logged."""
_TICK: Final = 0.02
_IDLE_CPU: Final = 0.001
"""The process computes nothing when it takes less CPU time from one tick to the next, in seconds."""
_FRAMES: Final = 12


@asynccontextmanager
async def watch_loop(observe: Callable[[float], None]) -> AsyncGenerator[None, None]:
    """Measure the loop that runs the block, 50 times a second while it has work: *observe* receives how many seconds
    late each tick was.

    A tick follows from a turn of the loop, and goes before all that the turn does; without turns there are none, unless
    the process computes. A loop whose selector cannot be watched ticks all the time.

    A pause of more than `LONG_PAUSE` is logged, at most one in ten seconds, with what the loop was doing: a thread
    looks at it while it is held.
    """
    watch = _Watch(asyncio.get_running_loop(), observe)
    watching = threading.Thread(target=watch.look, name="toolexec-loop-watch", daemon=True)
    watching.start()
    watch.start()
    try:
        yield
    finally:
        watch.stop()


class _Watch:
    """One loop under observation. Its ticks are written by the loop, and read by a thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, observe: Callable[[float], None]) -> None:
        self._loop = loop
        self._observe = observe
        self._loop_thread = threading.get_ident()
        self._selector: Any = getattr(loop, "_selector", None)  # nothing public sees the turns
        self._select: Callable[..., Any] = getattr(self._selector, "select", _none)
        self._used = 0.0
        self._due = math.inf
        self._timer: asyncio.TimerHandle | None = None
        self._rests = False  # no tick is to come until the next turn
        self._sleeps = False  # the thread has nothing to look at until the signal
        self._signal = threading.Event()
        self._over = False
        self._stack = ""
        self._warning = RareWarning(logger)

    def start(self) -> None:
        """Begin to tick."""
        if self._selector is not None:
            self._selector.select = self._turn
        self._tick_after(_TICK)

    def stop(self) -> None:
        """Tick no more, and end the thread."""
        if self._selector is not None and vars(self._selector).get("select") == self._turn:
            self._selector.select = self._select
        if self._timer is not None:
            self._timer.cancel()
        self._over, self._rests = True, False
        self._signal.set()

    def _turn(self, timeout: float | None = None) -> Any:
        """Stand for the method of the selector in which the loop waits for its next turn."""
        events = self._select(timeout)
        if self._rests:
            self._rests = False
            self._tick_after(_TICK)
            if self._sleeps:
                self._signal.set()
        return events

    def _tick_after(self, seconds: float) -> None:
        self._due = self._loop.time() + seconds
        self._timer = self._loop.call_later(seconds, self._tick)

    def _tick(self) -> None:
        """Observe how late this tick is."""
        late = max(self._loop.time() - self._due, 0.0)
        stack, self._stack = self._stack, ""
        used = process_time() - self._used
        self._used += used
        if self._selector is not None and used < _IDLE_CPU:
            self._due, self._rests = math.inf, True
        else:
            self._tick_after(_TICK)
        self._observe(late)
        if late > LONG_PAUSE:
            self._log(late, stack)

    def look(self) -> None:
        """Keep what the loop is doing when a tick is overdue."""
        while not self._over:
            self._sleeps = self._rests
            if self._signal.wait(None if self._sleeps else _TICK * 2):
                self._signal.clear()
            elif not self._stack and self._loop.time() - self._due > LONG_PAUSE * 0.8:
                frames: Any = vars(sys)["_current_frames"]  # documented, in spite of its name
                frame = frames().get(self._loop_thread)
                if frame is not None:
                    self._stack = "".join(traceback.format_stack(frame, _FRAMES))

    def _log(self, late: float, stack: str) -> None:
        text = redactor.text(stack) or "what held it is not known"
        self._warning.log("the event loop was held for %.0f ms: %s", late * 1000, text)


def _none(timeout: float | None = None) -> Any:
    """Stand for the selector of a loop without one; it is never called."""
