"""The time limits of the programs of one run, which are for each stretch between waits: these may take days."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self


class Limits:
    """Makes time limits that stand still while the run waits, and begin again after a wait of *linger* seconds."""

    def __init__(self, linger: float) -> None:
        self._linger = linger
        self._open: list[_Limit] = []
        self._paused = 0.0

    def limit(self, seconds: float) -> _Limit:
        """Return a time limit, for `async with`."""
        return _Limit(self._open, seconds)

    def pause(self) -> None:
        """Let no time count from now on."""
        self._paused = _now()
        for each in self._open:
            each.pause()

    def go_on(self) -> None:
        """Let time count again: what was left, or all of it where the run was at rest for so long."""
        whole = _now() - self._paused >= self._linger
        for each in self._open:
            each.go_on(whole=whole)


class _Limit:
    """Ends its block with TimeoutError. Implements `ProgramLimit`."""

    def __init__(self, others: list[_Limit], seconds: float) -> None:
        self._seconds = seconds
        self._left = seconds
        self._others = others
        self._timeout = asyncio.timeout(seconds)

    def expired(self) -> bool:
        """Return whether its time was over."""
        return self._timeout.expired()

    def pause(self) -> None:
        """Have it stand still."""
        when = self._timeout.when()
        if when is not None and not self._timeout.expired():
            self._left = max(when - _now(), 0.0)
            self._timeout.reschedule(None)

    def go_on(self, *, whole: bool) -> None:
        """Give it what was left of its time, or the *whole* of it."""
        if not self._timeout.expired():
            self._timeout.reschedule(_now() + (self._seconds if whole else self._left))

    async def __aenter__(self) -> Self:
        await self._timeout.__aenter__()
        self._others.append(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        self._others.remove(self)
        return await self._timeout.__aexit__(kind, error, traceback)


def _now() -> float:
    return asyncio.get_running_loop().time()
