"""Admission by the host's memory: sandboxes with memory of their own start only while the host has enough of it."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Final, Protocol, runtime_checkable

from toolexec.errors import SandboxUnavailableError
from toolexec.process.memory import available_memory
from toolexec.runtime.containers.spec import ContainerSpec

RESERVE: Final = 256 << 20
"""Bytes that are left to everything else on the host."""
_PAUSE: Final = 0.1
_MIB: Final = 1 << 20


@runtime_checkable
class SizedEngine(Protocol):
    """A `ContainerEngine` whose containers may take memory of this host that they do not give back while they run."""

    def host_memory(self, spec: ContainerSpec) -> int:
        """Return how many bytes of this host a container may take at most; 0 if that is not bounded, or not here."""
        ...

    @property
    def memory_reserve(self) -> int:
        """How many bytes of this host stay free beside its containers."""
        ...


class MemoryShare:
    """The memory that was admitted for one sandbox, until it is released."""

    def __init__(self, release: Callable[[], None]) -> None:
        self._release: Callable[[], None] | None = release

    def release(self) -> None:
        """Return it. From any thread; twice is fine."""
        release, self._release = self._release, None
        if release is not None:
            release()


class HostMemory:
    """Decides which sandboxes the memory of this host has room for; one for the process, for any thread and event loop.

    A sandbox is admitted when what it may take, and a reserve (*reserve* bytes, unless it has one of its own), fit both
    into what *measure* says is available now and, with all that was promised to others, into what was available while
    none of them ran: those that run may not have touched all their memory yet. Who waits is admitted in the order of
    arrival. Where *measure* returns None, all are admitted. *pause* is how many seconds pass between two measures while
    a sandbox waits.
    """

    def __init__(
        self,
        measure: Callable[[], int | None] = available_memory,
        *,
        reserve: int = RESERVE,
        pause: float = _PAUSE,
    ) -> None:
        self.promised: int = 0
        self._measure = measure
        self._reserve = reserve
        self._pause = pause
        self._most = 0
        self._queue: deque[object] = deque()
        self._lock = threading.Lock()

    async def admit(self, size: int, ends: float, kind: str = "", *, reserve: int | None = None) -> MemoryShare:
        """Return the share of a sandbox of *kind* that may take *size* bytes, once it fits beside *reserve* bytes that
        stay free; to be released.

        Raises SandboxUnavailableError, retryable, when it did not fit until *ends* (of `monotonic()`), with the
        numbers in its message and details. Cancelling gives up the place in the queue.
        """
        ticket, reserve = object(), self._reserve if reserve is None else reserve
        with self._lock:
            self._queue.append(ticket)
        try:
            while True:
                available = await asyncio.to_thread(self._measure)
                if self._fits(ticket, size, reserve, available):
                    return MemoryShare(lambda: self._give_back(size))
                left = ends - monotonic()
                if left <= 0:
                    raise self._refusal(size, reserve, available, kind)
                await asyncio.sleep(min(self._pause, left))
        finally:
            with self._lock:
                self._queue.remove(ticket)

    def _fits(self, ticket: object, size: int, reserve: int, available: int | None) -> bool:
        with self._lock:
            if available is not None:
                self._most = available if not self.promised else max(self._most, available)
                if self._queue[0] is not ticket:
                    return False
                if size + reserve > min(available, self._most - self.promised):
                    return False
            self.promised += size
            return True

    def _give_back(self, size: int) -> None:
        with self._lock:
            self.promised -= size

    def _refusal(self, size: int, reserve: int, available: int | None, kind: str) -> SandboxUnavailableError:
        available = available or 0
        return SandboxUnavailableError(
            f"the host has too little memory for another sandbox: it may take {size // _MIB} MiB, and "
            f"{reserve // _MIB} MiB stay free, but {available // _MIB} MiB are available now, and "
            f"sandboxes that run were promised {self.promised // _MIB} of {self._most // _MIB} MiB; try again later, "
            "lower the memory limit or max_running, or raise the time limit",
            backend=kind,
            retryable=True,
            details={
                "reason": "host_memory",
                "needed_bytes": size,
                "reserve_bytes": reserve,
                "available_bytes": available,
                "promised_bytes": self.promised,
            },
        )


HOST_MEMORY: Final = HostMemory()
"""That of this process, which all sandboxes ask."""
