"""The clock of a program that can be made again, and whose timers are steps of its run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from toolexec.runtime.protocol.recorded_calls import RecordedCalls
from toolexec.runtime.protocol.server import RequestServer
from toolexec.runtime.wasm.guest import STEP_NANOSECONDS, VirtualClock

if TYPE_CHECKING:
    from toolexec.code.types import ExecuteRequest
    from toolexec.runtime.protocol.hostcalls import HostCalls

_SECOND: Final = 1_000_000_000
_LAST: Final = 253_402_300_799 * _SECOND
"""The end of the year 9999, the last moment that datetime knows."""


class RecordedClock(VirtualClock):
    """A clock of a program that can be made again. It goes on by what the program's calls and timers have taken, which
    is recorded, and by 1 us at each reading; it never goes back. A sleep is a timer: *sleep* lets so many seconds pass,
    and records that.
    """

    def __init__(self, start: float, sleep: Callable[[float], None]) -> None:
        super().__init__(start)
        self._sleep = sleep

    def peek(self) -> int:
        """Return the monotonic clock; not a reading."""
        return self._passed

    def skip_to(self, monotonic: int) -> None:
        """Go on to *monotonic*, unless that is past; to the end of the year 9999 at most."""
        self._passed = max(self._passed, min(monotonic, _LAST - self._start))

    def sleep_until(self, monotonic: int, stopped: threading.Event) -> None:
        """Wait, as a step of the run."""
        left = monotonic - self._passed
        if left > STEP_NANOSECONDS and not stopped.is_set():
            self._sleep(left / _SECOND)
        self.skip_to(monotonic)


class SessionClock(RecordedClock):
    """The clock of a session whose programs can be made again: each begins at its own time, or where the last ended."""

    def __init__(self, start: float) -> None:
        super().__init__(start, self._sleep_in_run)
        self._calls: RecordedCalls | None = None

    def begin(self, request: ExecuteRequest, calls: HostCalls) -> None:
        """Go on to the time at which a program begins, whose sleeps *calls* records."""
        if isinstance(calls, RecordedCalls):
            self._calls = calls
            calls.clock = self
        if request.now is not None:
            self.skip_to(round(request.now * _SECOND) - self._start)

    def _sleep_in_run(self, seconds: float) -> None:
        assert self._calls is not None
        self._calls.sleep(seconds)


def session_clock(request: ExecuteRequest) -> SessionClock | None:
    """Return the clock of a session whose programs record their timers; None for any other session."""
    if request.now is None or request.gateway is None or not RequestServer(request.gateway).keeps_time:
        return None
    return SessionClock(request.now)


def recorded_clock(request: ExecuteRequest, calls: HostCalls | None) -> RecordedClock | None:
    """Return the clock of a program whose timers *calls* records as steps of its run; None for any other program."""
    if not isinstance(calls, RecordedCalls) or not calls.keeps_time or request.now is None:
        return None
    clock = RecordedClock(request.now, calls.sleep)
    calls.clock = clock
    return clock
