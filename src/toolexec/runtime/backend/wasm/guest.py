"""One guest as its host functions see it: what it was granted, what it holds, and whether it must stop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from toolexec.runtime.backend.wasm.clocks import Clock, Random
from toolexec.runtime.backend.wasm.files import MemoryFiles
from toolexec.runtime.backend.wasm.refused import GuestFaultError
from toolexec.runtime.backend.wasm.values import Handle

__all__ = ["MAX_HANDLES", "ExitCalled", "Guest", "Handles", "HostCalls", "OnOutput", "Output", "StopCalled", "Thing"]

MAX_HANDLES = 1024
"""How many files, streams and timers a guest may hold at once; the host has an object for each."""

_LAST_NUMBER = 2**32 - 1
_LAST_WORDS_BYTES = 4096

OnOutput = Callable[[str, bytes], None]
"""Gets "stdout" or "stderr" and what was written there; called in the guest's thread."""


class HostCalls(Protocol):
    """The way from a guest to the host. Both are called in the guest's thread."""

    def exchange(self, frame: str) -> str:
        """Answer *frame*. May block; whoever stops the guest must also end the wait. Raising ends the guest."""
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
        """The guest let go of it."""


class Handles:
    """What a guest holds handles to, by number. They outlive a run: its C library keeps the standard streams open."""

    def __init__(self) -> None:
        self._things: dict[int, Thing] = {}
        self._last = 0

    def is_full(self) -> bool:
        """Whether the guest holds all the handles that it may."""
        return len(self._things) >= MAX_HANDLES

    def own(self, thing: Thing) -> Handle:
        """A handle to give to the guest. Raises GuestFaultError over MAX_HANDLES."""
        if self.is_full():
            thing.close()
            raise GuestFaultError(f"the guest holds {MAX_HANDLES} handles and wants another")
        self._last = (self._last % _LAST_NUMBER) + 1
        while self._last in self._things:
            self._last = (self._last % _LAST_NUMBER) + 1
        self._things[self._last] = thing
        return Handle(self._last, RESOURCE_TYPES[thing.kind])

    def get(self, number: int) -> Thing:
        """What a handle stands for. Raises GuestFaultError for one that the guest does not hold."""
        try:
            return self._things[number]
        except KeyError:
            raise GuestFaultError("the guest used a handle that it does not hold") from None

    def drop(self, number: int) -> None:
        """The guest let go of a handle."""
        thing = self._things.pop(number, None)
        if thing is not None:
            thing.close()


@dataclass(slots=True, kw_only=True, eq=False)
class Guest:
    """What one guest was granted, and holds. All but `stopped` is for the guest's own thread."""

    clock: Clock
    random: Random
    files: MemoryFiles
    environment: Mapping[str, str]
    output: Output
    host: HostCalls
    handles: Handles
    stopped: threading.Event

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
"""Resource types by name. WASI names each once, so the name is enough to tell them apart."""
