"""Progress of a reply: it begins at 0, only grows, and ends once."""

from __future__ import annotations

import math

from toolexec.model.call import Progress, ProgressCallback, tell

__all__ = ["Notices"]


class Notices:
    """Passes progress on to who asked for it, in the order and with the numbers that MCP wants: each one greater than
    the one before. Nothing is passed on before `start` and after `end`; all is quiet when nobody asked."""

    def __init__(self, callback: ProgressCallback | None) -> None:
        self._callback = callback
        self._last = -1.0
        self._total: float | None = None
        self._open = False

    @property
    def callback(self) -> ProgressCallback | None:
        """What to give to who reports progress; None when nobody asked."""
        return self.hear if self._callback is not None else None

    def start(self, total: float | None = None) -> None:
        """Say that work begins."""
        self._open = True
        self.hear(Progress(done=0, total=total, message="started"))

    def hear(self, progress: Progress) -> None:
        """Pass *progress* on if it is one."""
        if self._callback is None or not self._open:
            return
        if progress.done > self._last and math.isfinite(progress.done):
            self._last, self._total = progress.done, progress.total
            tell(self._callback, progress)

    def step(self, message: str) -> None:
        """Say that one more of who knows how many is done."""
        self.hear(Progress(done=self._last + 1, message=message))

    def end(self, message: str = "finished") -> None:
        """Say that the work is over, unless the last notice said so; what comes later is dropped."""
        done = self._last + 1 if self._total is None else self._total
        self.hear(Progress(done=done, total=done, message=message))
        self._open = False
