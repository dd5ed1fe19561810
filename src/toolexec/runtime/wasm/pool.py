"""Fresh guests of one program: in slots of memory that is used again, and some of them pre-warmed."""

from __future__ import annotations

import json
import logging
import threading
from collections import deque

from wasmtime import WasmtimeError

from toolexec.errors import ConfigurationError
from toolexec.runtime.wasm.engine import SLOT_BYTES
from toolexec.runtime.wasm.guest import InstanceSettings
from toolexec.runtime.wasm.instance import Instance, Program

logger: logging.Logger = logging.getLogger(__name__)
_WARM = json.dumps({"type": "warm", "id": "0", "payload": {"cwd": "/workspace"}})


class _Slots:
    """Makes guests that run in *count* slots of memory: each leaves its slot, reset, to the next one."""

    def __init__(self, program: Program, count: int) -> None:
        self._program = program
        self._free = count
        self._lock = threading.Lock()

    def make(self) -> Instance | None:
        """Make a guest; None when every slot is in use. Raises WasmtimeError when none fits into a slot."""
        with self._lock:
            if not self._free:
                return None
            self._free -= 1
        try:
            return Instance(self._program, self._release)
        except BaseException:
            self._release()
            raise

    def _release(self) -> None:
        with self._lock:
            self._free += 1


def _open_slots(program: Program, count: int) -> _Slots | None:
    """Return slots for guests of *program*; None where there are not any, and each guest then maps its own memory."""
    try:
        roomy = program.with_slots(count)
    except (ConfigurationError, WasmtimeError) as error:
        logger.warning("guests map memory of their own: %s", error)
        return None
    return None if roomy is None else _Slots(roomy, count)


class GuestPool:
    """Makes fresh guests of a program, and has at most *size* of them ready; safe to use from several threads.

    Guests run in slots of memory that is used again, as many as *idle_memory_bytes* have room for, and beyond them in
    memory that is mapped for each. The slots are given back by `close`, once the last guest has ended. A pre-warmed
    guest has taken its first steps already. `hits` and `misses` count what `take` found.
    """

    def __init__(self, program: Program, size: int, idle_memory_bytes: int = 0) -> None:
        self.program = program
        self.size = size
        self.hits: int = 0
        self.misses: int = 0
        self._slots = _open_slots(program, idle_memory_bytes // SLOT_BYTES)
        self._ready: deque[Instance] = deque()
        self._making = 0
        self._closed = False
        self._lock = threading.Lock()

    def take(self) -> Instance | None:
        """Return a guest that is ready, or None: then `make` one, in the thread where it will run."""
        with self._lock:
            if self._ready:
                self.hits += 1
                return self._ready.popleft()
            self.misses += 1
            return None

    def make(self, *, lasting: bool = False) -> Instance:
        """Make a guest, cold; takes a millisecond. One that is *lasting* takes no slot from the others."""
        slots = self._slots
        if slots is not None and not lasting:
            try:
                instance = slots.make()
            except WasmtimeError as error:  # a component of another builder may need more than a slot has
                logger.warning("guests map memory of their own: %s", error)
                self._slots, instance = None, None
            if instance is not None:
                return instance
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

    def fill(self) -> None:
        """Make as many as there is room for."""
        while self.refill():
            continue

    @property
    def is_full(self) -> bool:
        """Check that a further guest would not be kept."""
        return len(self._ready) + self._making >= self.size

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
        self._slots = None


class _Nothing:
    """The host of a guest that takes its first steps: it answers whatever is asked with 1."""

    def exchange(self, frame: str) -> str:
        messages = json.loads(frame)
        answers = [{"type": "response", "id": message["id"], "payload": {"structured": 1}} for message in messages]
        return json.dumps(answers)

    def post(self, frame: str) -> None:
        """Discard it: it has no reader."""


def _ignore(stream: str, data: bytes) -> None:
    """Output of a guest that has no program yet."""
