"""What the calls of a backend have come to, for its status."""

from __future__ import annotations

import time
from collections import deque
from typing import Final

from toolexec.model.json_value import JSONDict

_LATENCIES: Final = 100


class CallFigures:
    """Counts calls and failures, and keeps the times of the last 100 calls that were answered."""

    __slots__ = ("_calls", "_errors", "_latencies", "last_error")

    def __init__(self) -> None:
        self._calls = self._errors = 0
        self._latencies: deque[float] = deque(maxlen=_LATENCIES)
        self.last_error: str = ""
        """The message of the last failure."""

    def answered(self, begun: float) -> None:
        """Count a call that was answered; *begun* is when it began, as `time.perf_counter` has it."""
        self._calls += 1
        self._latencies.append(time.perf_counter() - begun)

    def failed(self, message: str) -> None:
        """Count a call that failed."""
        self._calls += 1
        self._errors += 1
        self.last_error = message

    def info(self) -> JSONDict:
        """Return `calls`, `errors`, `latency_ms` (the median) and `last_error`, without what is not there."""
        found: JSONDict = {"calls": self._calls, "errors": self._errors, "last_error": self.last_error}
        if self._latencies:
            found["latency_ms"] = round(sorted(self._latencies)[len(self._latencies) // 2] * 1000, 1)
        return {name: value for name, value in found.items() if value or name == "latency_ms"}
