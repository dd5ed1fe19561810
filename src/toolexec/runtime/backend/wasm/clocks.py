"""What a guest knows of time and chance: the real thing, or a version that can be replayed exactly."""

from __future__ import annotations

import hashlib
import math
import os
import threading
import time
from typing import Protocol

from toolexec.errors import ConfigurationError

__all__ = ["Clock", "Random", "RealClock", "SeededRandom", "SystemRandom", "VirtualClock", "make_clock", "make_random"]

STEP_NANOSECONDS = 1000
"""How far a virtual clock goes on at each reading, so that code that waits for time to pass ends."""

_SECOND = 1_000_000_000
_FIRST_MOMENT = 3600 * _SECOND  # of the monotonic clocks: later than any that a component saw when it was built
_LAST_SECOND = 253_402_300_799  # the end of the year 9999, the last that datetime knows


class Clock(Protocol):
    """A wall clock and a monotonic clock, in nanoseconds."""

    def wall(self) -> int:
        """The time since 1970, UTC; a reading."""
        ...

    def monotonic(self) -> int:
        """The time since some moment; a reading."""
        ...

    def stamp(self) -> int:
        """The time since 1970 for a file's date; not a reading."""
        ...

    def sleep_until(self, monotonic: int, stopped: threading.Event) -> None:
        """Let the time pass up to *monotonic*, or until *stopped* is set."""
        ...


class RealClock:
    """The host's clocks; the monotonic one starts anew, so that it does not tell how long the host is up."""

    def __init__(self) -> None:
        self._start = time.monotonic_ns() - _FIRST_MOMENT

    def wall(self) -> int:
        """The host's time."""
        return time.time_ns()

    def monotonic(self) -> int:
        """The time since an hour before this clock was made."""
        return time.monotonic_ns() - self._start

    stamp = wall

    def sleep_until(self, monotonic: int, stopped: threading.Event) -> None:
        """Wait."""
        left = monotonic - self.monotonic()
        if left > 0:
            stopped.wait(min(left / _SECOND, threading.TIMEOUT_MAX))


class VirtualClock:
    """A clock that starts at *start* (seconds since 1970), goes on by 1 us at each reading, and by exactly the time
    asked for at each sleep, without waiting. Two runs that do the same see the same times.
    """

    def __init__(self, start: float) -> None:
        self._start = round(start * _SECOND) - _FIRST_MOMENT
        self._passed = _FIRST_MOMENT

    def wall(self) -> int:
        """The start and what has passed since."""
        return self._start + self.monotonic()

    def monotonic(self) -> int:
        """What has passed since an hour before the start."""
        self._passed += STEP_NANOSECONDS
        return self._passed

    def stamp(self) -> int:
        """The start and what has passed since; the clock stays."""
        return self._start + self._passed

    def sleep_until(self, monotonic: int, stopped: threading.Event) -> None:
        """Jump there."""
        self._passed = max(self._passed, monotonic)


def make_clock(start: float | None) -> Clock:
    """The real clock, or a virtual one that starts at *start*, in seconds since 1970.

    Raises ConfigurationError for a start before 1970 or after 9999.
    """
    if start is None:
        return RealClock()
    if not math.isfinite(start) or not 0 <= start <= _LAST_SECOND:
        raise ConfigurationError(
            f"a clock cannot start at {start}; give seconds since 1970, UTC, up to the year 9999",
            details={"clock": str(start)},
        )
    return VirtualClock(start)


class Random(Protocol):
    """A stream of random bytes."""

    def take(self, count: int) -> bytes:
        """The next *count* bytes."""
        ...


class SystemRandom:
    """The operating system's random bytes."""

    def take(self, count: int) -> bytes:
        """The next *count* bytes."""
        return os.urandom(count)


class SeededRandom:
    """A stream that depends on the seed alone: SHA-256 of `toolexec:<seed>:<n>` for n = 0, 1, 2, …, joined.

    Not for secrets: who knows the seed knows the stream.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._block = 0
        self._rest = b""

    def take(self, count: int) -> bytes:
        """The next *count* bytes."""
        blocks = [self._rest]
        have = len(self._rest)
        while have < count:
            blocks.append(hashlib.sha256(b"toolexec:%d:%d" % (self._seed, self._block)).digest())
            self._block += 1
            have += len(blocks[-1])
        stream = b"".join(blocks)
        self._rest = stream[count:]
        return stream[:count]


def make_random(seed: int | None) -> Random:
    """The operating system's random bytes, or the stream of *seed*."""
    return SystemRandom() if seed is None else SeededRandom(seed)
