"""So many runs of code of one caller at a time, so that one caller does not take all sandboxes."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from toolexec.errors import ConfigurationError, RateLimitedError
from toolexec.model.settings import checked
from toolexec.run.run_request import RunRequest

_RETRY_AFTER: Final = 1.0


@checked("CodeShares")
class CodeShares:
    """A part of a `Gate`: at most *per_caller* runs of code of one caller take place at a time, those that wait for a
    sandbox among them. All anonymous callers are one. Workflows, chains and skills need no sandbox and do not count.

    A run above the share raises RateLimitedError, with nothing done. Raises ConfigurationError for a share below 1.
    """

    def __init__(self, per_caller: int) -> None:
        if per_caller < 1:
            raise ConfigurationError(f"per_caller, the share of a caller, must be 1 run or more, not {per_caller}")
        self.per_caller = per_caller
        self._running: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()

    def take_over(self, before: CodeShares) -> None:
        """Count the runs that *before* counts, too; to be called before the first run."""
        self._running, self._lock = before._running, before._lock

    def count(self, run: RunRequest) -> int:
        """Return how many runs of code of its caller are under way."""
        return self._running[_caller_of(run)]

    @contextmanager
    def taken(self, run: RunRequest) -> Generator[None, None, None]:
        """Count the run as one of its caller's in the block. Raises RateLimitedError."""
        if run.kind != "code":
            yield
            return
        caller = _caller_of(run)
        self._begin(caller)
        try:
            yield
        finally:
            self._end(caller)

    def _begin(self, caller: tuple[str, str]) -> None:
        with self._lock:
            if self._running[caller] < self.per_caller:
                self._running[caller] += 1
                return
        raise RateLimitedError(
            f"{self.per_caller} runs of code of this caller are under way, which is its share; nothing was done: wait "
            "until one has ended, and run it again",
            op="execute",
            details={"limit": self.per_caller, "retry_after": _RETRY_AFTER},
        )

    def _end(self, caller: tuple[str, str]) -> None:
        with self._lock:
            self._running[caller] -= 1
            if not self._running[caller]:
                del self._running[caller]


def _caller_of(run: RunRequest) -> tuple[str, str]:
    return run.origin.caller.realm, run.origin.caller.id
