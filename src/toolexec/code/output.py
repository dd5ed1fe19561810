"""What code prints, kept on the host within a bound."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

__all__ = ["Output", "Stream"]

Stream: TypeAlias = Literal["stdout", "stderr"]
_MARK = "\n... output limit reached: {} more characters were dropped\n"


class Output:
    """The captured output of one run: at most *limit* characters for each stream, the rest is dropped and counted.

    Safe to use from several threads. *tell* hears of each text that is kept.
    """

    def __init__(self, limit: int = 1 << 20, tell: Callable[[Stream, str], None] | None = None) -> None:
        self.limit = limit
        self._tell = tell
        self._parts: dict[Stream, list[str]] = {"stdout": [], "stderr": []}
        self._sizes: dict[Stream, int] = {"stdout": 0, "stderr": 0}
        self._dropped: dict[Stream, int] = {"stdout": 0, "stderr": 0}
        self._lock = threading.Lock()

    def write(self, text: str, stream: Stream = "stdout") -> None:
        """Keep *text*, or as much of it as there is room for."""
        if not text:
            return
        with self._lock:
            room = self.limit - self._sizes[stream]
            kept = text[:room] if room > 0 else ""
            self._dropped[stream] += len(text) - len(kept)
            if kept:
                self._parts[stream].append(kept)
                self._sizes[stream] += len(kept)
        if kept and self._tell is not None:
            self._tell(stream, kept)

    def drop(self, characters: Any, stream: Stream = "stdout") -> None:
        """Count what the sandbox itself has dropped; a number that makes no sense counts as none."""
        if isinstance(characters, int) and characters > 0:
            with self._lock:
                self._dropped[stream] += min(characters, 1 << 62)

    def text(self, stream: Stream = "stdout") -> str:
        """All that was kept of *stream*; its end says how much was dropped, if anything was."""
        with self._lock:
            dropped = self._dropped[stream]
            return "".join(self._parts[stream]) + (_MARK.format(dropped) if dropped else "")

    @property
    def dropped(self) -> int:
        """How many characters of both streams did not fit."""
        return self._dropped["stdout"] + self._dropped["stderr"]
