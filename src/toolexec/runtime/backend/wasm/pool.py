"""Guests made ahead, each used once."""

from __future__ import annotations

import json
import threading
from collections import deque

from toolexec.errors import ProtocolError
from toolexec.runtime.backend.wasm.instance import Instance, InstanceSettings, Program

__all__ = ["GuestPool"]

_WARM = json.dumps({"type": "warm", "id": "0", "payload": {}})


class GuestPool:
    """At most *size* fresh guests of a program, ready to run; safe to use from several threads.

    Every guest, made ahead or not, has taken the same first steps, so that two runs that are alike meet alike guests.
    `hits` and `misses` count what `take` found.
    """

    def __init__(self, program: Program, size: int) -> None:
        self.program = program
        self.size = size
        self.hits = 0
        self.misses = 0
        self._ready: deque[Instance] = deque()
        self._making = 0
        self._closed = False
        self._lock = threading.Lock()

    def take(self) -> Instance | None:
        """A guest that is ready, or None: then `make` one, in the thread where it will run."""
        with self._lock:
            if self._ready:
                self.hits += 1
                return self._ready.popleft()
            self.misses += 1
            return None

    def make(self) -> Instance:
        """A new guest; takes a millisecond or two."""
        instance = Instance(self.program)
        try:
            instance.prepare(InstanceSettings(), _Nothing(), _ignore)
            instance.run(_WARM)
        except BaseException:
            instance.close()
            raise
        return instance

    def refill(self) -> bool:
        """Make one guest if there is room for it; whether there was."""
        with self._lock:
            if self._closed or len(self._ready) + self._making >= self.size:
                return False
            self._making += 1
        try:
            instance = self.make()
        except BaseException:
            with self._lock:
                self._making -= 1
            raise
        with self._lock:
            self._making -= 1
            keep = not self._closed
            if keep:
                self._ready.append(instance)
        if not keep:
            instance.close()
        return keep

    @property
    def ready(self) -> int:
        """How many guests are ready."""
        return len(self._ready)

    def close(self) -> None:
        """Free the guests that are ready, and make no more."""
        with self._lock:
            self._closed = True
            left = [*self._ready]
            self._ready.clear()
        for instance in left:
            instance.close()


class _Nothing:
    """The host of a guest that nobody has given a program yet."""

    def exchange(self, frame: str) -> str:
        raise ProtocolError("a guest called the host before it was given a program")

    def post(self, frame: str) -> None:
        raise ProtocolError("a guest called the host before it was given a program")


def _ignore(stream: str, data: bytes) -> None:
    """Output of a guest that has no program yet."""
