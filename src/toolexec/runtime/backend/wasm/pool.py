"""Guests made ahead, each used once."""

from __future__ import annotations

import json
import threading
from collections import deque

from toolexec.runtime.backend.wasm.instance import Instance, InstanceSettings, Program

__all__ = ["GuestPool"]

_WARM = json.dumps({"type": "warm", "id": "0", "payload": {"cwd": "/workspace"}})


class GuestPool:
    """At most *size* fresh guests of a program, ready to run; safe to use from several threads.

    A guest made ahead has taken its first steps already. `hits` and `misses` count what `take` found.
    """

    def __init__(self, program: Program, size: int) -> None:
        self.program = program
        self.size = size
        self.hits: int = 0
        self.misses: int = 0
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
        """A new guest, cold; takes a millisecond."""
        return Instance(self.program)

    def _make_warm(self) -> Instance:
        instance = self.make()
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
            instance = self._make_warm()
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
    """The host of a guest that takes its first steps: it answers whatever is asked with 1."""

    def exchange(self, frame: str) -> str:
        messages = json.loads(frame)
        answers = [{"type": "response", "id": message["id"], "payload": {"structured": 1}} for message in messages]
        return json.dumps(answers)

    def post(self, frame: str) -> None:
        """There is nobody to read it."""


def _ignore(stream: str, data: bytes) -> None:
    """Output of a guest that has no program yet."""
