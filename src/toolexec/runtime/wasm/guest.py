"""One guest as its host functions see it: its time and chance, what it was granted, what it holds, when it may
begin, how it may end."""

from __future__ import annotations

import hashlib
import math
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias

from toolexec.errors import ConfigurationError
from toolexec.runtime.wasm.files import DEFAULT_BYTES, MemoryFiles
from toolexec.runtime.wasm.refused import GuestFaultError

Reason: TypeAlias = Literal["memory", "fuel", "stack", "exit", "trap", "host"]

STEP_NANOSECONDS = 1000
"""How far a virtual clock goes on at each reading, so that code that waits for time to pass ends."""

_SECOND = 1_000_000_000
_FIRST_MOMENT = 3600 * _SECOND  # of the monotonic clocks: later than any that a component saw when it was built
_LAST_SECOND = 253_402_300_799  # the end of the year 9999, the last that datetime knows

PATIENCE_SECONDS: Final = 0.02
"""How long a guest waits for another one that computes before it begins beside it."""

MAX_HANDLES = 1024
"""How many files, streams and timers a guest may hold at once; the host has an object for each."""

_LAST_NUMBER = 2**32 - 1
_LAST_WORDS_BYTES = 4096

OnOutput = Callable[[str, bytes], None]
"""Gets "stdout" or "stderr" and what was written there; called in the guest's thread."""


class Clock(Protocol):
    """A wall clock and a monotonic clock, in nanoseconds."""

    def wall(self) -> int:
        """Return the time since 1970, UTC; a reading."""
        ...

    def monotonic(self) -> int:
        """Return the time since some moment; a reading."""
        ...

    def stamp(self) -> int:
        """Return the time since 1970 for a file's date; not a reading."""
        ...

    def sleep_until(self, monotonic: int, stopped: threading.Event) -> None:
        """Let the time pass up to *monotonic*, or until *stopped* is set."""
        ...


class RealClock:
    """The host's clocks; the monotonic one starts at a fixed value, so as not to reveal how long the host is up."""

    def __init__(self) -> None:
        self._start = time.monotonic_ns() - _FIRST_MOMENT

    def wall(self) -> int:
        """Return the host's time."""
        return time.time_ns()

    def monotonic(self) -> int:
        """Return the time since an hour before this clock was made."""
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
        """Return the start and what has passed since."""
        return self._start + self.monotonic()

    def monotonic(self) -> int:
        """Return what has passed since an hour before the start."""
        self._passed += STEP_NANOSECONDS
        return self._passed

    def stamp(self) -> int:
        """Return the start and what has passed since; the clock stays."""
        return self._start + self._passed

    def sleep_until(self, monotonic: int, stopped: threading.Event) -> None:
        """Jump there."""
        self._passed = max(self._passed, monotonic)


def make_clock(start: float | Clock | None) -> Clock:
    """Return the real clock, or a virtual one that starts at *start*, in seconds since 1970; a clock as it is.

    Raises ConfigurationError for a start before 1970 or after 9999.
    """
    if start is not None and not isinstance(start, int | float):
        return start
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
        """Return the next *count* bytes."""
        ...


class SystemRandom:
    """The operating system's random bytes."""

    def take(self, count: int) -> bytes:
        """Return the next *count* bytes."""
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
        """Return the next *count* bytes."""
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
    """Return the operating system's random bytes, or the stream of *seed*."""
    return SystemRandom() if seed is None else SeededRandom(seed)


def _no_files() -> Mapping[str, bytes]:
    return MappingProxyType({})


def _no_environment() -> Mapping[str, str]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceSettings:
    """What one run is granted.

    `memory_bytes` bounds the linear memory, `fuel` the instructions; None sets no bound of its own (the memory then
    ends at 4 GiB). `clock` is a clock, or where a virtual one starts, in seconds since 1970, and `seed` that of the
    random stream; None is the real clock and the system's random bytes. `files` are put into `/workspace`, where
    `disk_bytes` bounds the content (None: 64 MiB). `output_bytes` bounds what stdout and stderr pass on. Nothing else
    of the host can be granted.
    """

    memory_bytes: int | None = None
    fuel: int | None = None
    env: Mapping[str, str] = field(default_factory=_no_environment)
    clock: float | Clock | None = None
    seed: int | None = None
    files: Mapping[str, bytes] = field(default_factory=_no_files)
    disk_bytes: int | None = None
    output_bytes: int = 1024 * 1024


class HostCalls(Protocol):
    """The way from a guest to the host. Both are called in the guest's thread."""

    def exchange(self, frame: str) -> str:
        """Answer *frame*. May block; the code that stops the guest must also end the wait. Raising ends the guest."""
        ...

    def post(self, frame: str) -> None:
        """Take *frame*; there is no answer. Raising ends the guest."""
        ...


class StopCalled(Exception):  # noqa: N818 - it ends a guest, and is not an error
    """The guest is being stopped."""


class ExitCalled(Exception):  # noqa: N818 - it ends a guest, and is not an error
    """The guest asked to end its process."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(f"the guest exited with code {exit_code}")
        self.exit_code = exit_code


class InstanceStopped(Exception):  # noqa: N818 - an outcome that the backend judges, not an error of toolexec
    """`stop` was called, and the guest ended because of it."""


class InstanceFailed(Exception):  # noqa: N818 - an outcome that the backend judges, not an error of toolexec
    """The guest ended without an answer.

    `reason` is `memory` (it could not go on without more), `fuel` (its CPU budget is used up), `stack` (too deep),
    `exit` (it ended its process, with `exit_code`), `host` (a host call raised; `__cause__` is the exception) or
    `trap` (anything else, such as an abort). `report` is what wasmtime says, for logs.
    """

    def __init__(self, reason: Reason, message: str, *, exit_code: int | None = None, report: str = "") -> None:
        super().__init__(message)
        self.reason: Reason = reason
        self.message = message
        self.exit_code = exit_code
        self.report = report


class Output:
    """What the guest writes to stdout and stderr: passed on up to *limit* bytes in all, then dropped and counted."""

    def __init__(self, limit: int, on_output: OnOutput) -> None:
        self._left = limit
        self._on_output = on_output
        self.dropped: int = 0
        self.last_words = b""

    def write(self, stream: str, data: bytes) -> None:
        """Pass on what is within the limit; remember the last of stderr, where CPython says why it cannot go on."""
        if stream == "stderr":
            self.last_words: bytes = (self.last_words + data)[-_LAST_WORDS_BYTES:]
        kept = data[: self._left]
        self._left -= len(kept)
        self.dropped += len(data) - len(kept)
        if kept:
            self._on_output(stream, kept)


class Thing:
    """Something of the host that a guest can hold a handle to: a file, a stream, a timer."""

    kind: str  # the name of its resource type

    def close(self) -> None:
        """Release it: the guest has dropped its handle."""


class Handle(NamedTuple):
    """An owned handle to give to the guest: the host's number for the object, and its resource type."""

    number: int
    resource_type: int


class Handles:
    """What a guest holds handles to, by number. They outlive a run: its C library keeps the standard streams open."""

    def __init__(self) -> None:
        self._things: dict[int, Thing] = {}
        self._last = 0

    def is_full(self) -> bool:
        """Return whether the guest holds all the handles that it may."""
        return len(self._things) >= MAX_HANDLES

    def own(self, thing: Thing) -> Handle:
        """Make a handle for the guest. Raises GuestFaultError over MAX_HANDLES."""
        if self.is_full():
            thing.close()
            raise GuestFaultError(f"the guest holds {MAX_HANDLES} handles and wants another")
        self._last = (self._last % _LAST_NUMBER) + 1
        while self._last in self._things:
            self._last = (self._last % _LAST_NUMBER) + 1
        self._things[self._last] = thing
        return Handle(self._last, RESOURCE_TYPES[thing.kind])

    def get(self, number: int) -> Thing:
        """Return what a handle stands for. Raises GuestFaultError for one that the guest does not hold."""
        try:
            return self._things[number]
        except KeyError:
            raise GuestFaultError("the guest used a handle that it does not hold") from None

    def drop(self, number: int) -> None:
        """Release a handle that the guest drops."""
        thing = self._things.pop(number, None)
        if thing is not None:
            thing.close()


@dataclass(slots=True, kw_only=True, eq=False)
class Guest:
    """What one guest was granted, and holds. All but `stopped` is for the guest's own thread.

    `disk` is None until the guest uses its files, as most programs use none.
    """

    clock: Clock
    random: Random
    disk: MemoryFiles | None = None
    disk_bytes: int = DEFAULT_BYTES
    environment: Mapping[str, str]
    output: Output
    host: HostCalls
    handles: Handles
    stopped: threading.Event

    @property
    def files(self) -> MemoryFiles:
        """Its disk; an empty one is made at the first use."""
        if self.disk is None:
            self.disk = MemoryFiles(max_bytes=self.disk_bytes, now=self.clock.stamp)
        return self.disk

    def exchange(self, frame: str) -> str:
        """Have the host answer *frame*; raises StopCalled."""
        reply = self.host.exchange(frame)
        if self.stopped.is_set():
            self.check_stopped()
        return reply

    def post(self, frame: str) -> None:
        """Have the host take *frame*; raises StopCalled."""
        self.host.post(frame)
        self.check_stopped()

    def check_stopped(self) -> None:
        """Raise StopCalled if the guest must stop."""
        if self.stopped.is_set():
            raise StopCalled("the guest was stopped")


RESOURCE_TYPES: dict[str, int] = {
    name: number
    for number, name in enumerate(
        [
            "pollable",
            "error",
            "input-stream",
            "output-stream",
            "descriptor",
            "directory-entry-stream",
            "terminal-input",
            "terminal-output",
            "network",
            "tcp-socket",
            "udp-socket",
            "incoming-datagram-stream",
            "outgoing-datagram-stream",
            "resolve-address-stream",
        ],
        start=1,
    )
}
"""Resource types by name. WASI names each once, so the name is enough to distinguish them."""


class Starts:
    """Has few guests begin at once, as many as there are processors and one more; the others follow in turn.

    Guests that begin together contend for the interpreter's lock and for the address space: of 64 at once each took 14
    ms of CPU, in turn 9. A guest that waits for the host, or has ended, makes room for the next. One that computes
    holds that up for PATIENCE_SECONDS at most.
    """

    def __init__(self, count: int = 0) -> None:
        self._free = threading.Semaphore(count or _processors() + 1)
        self._first = threading.Lock()

    def enter(self) -> Callable[[], None]:
        """Wait until it is this thread's turn; return what makes room for the next, once, in the same thread."""
        with self._first:  # one after the other loses patience
            entered = self._free.acquire(timeout=PATIENCE_SECONDS)
        left = not entered

        def leave() -> None:
            nonlocal left
            if not left:
                left = True
                self._free.release()

        return leave


def _processors() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        return os.cpu_count() or 1
