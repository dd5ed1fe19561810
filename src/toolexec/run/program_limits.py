"""The time limit of a whole program: by the clock, or by that of the engine which repeats the program."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from types import TracebackType
from typing import Final, Protocol


class ProgramLimit(Protocol):
    """Ends its block with TimeoutError when its time is over, as `asyncio.timeout` does."""

    def expired(self) -> bool:
        """Return whether it has."""
        ...

    async def __aenter__(self) -> object: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> bool | None: ...


PROGRAM_LIMITS: Final[ContextVar[Callable[[float], ProgramLimit] | None]] = ContextVar(
    "toolexec_program_limits", default=None
)
"""Makes the time limits of programs whose waits do not count; None: all of their time does."""


def program_limit(seconds: float) -> ProgramLimit:
    """Return the time limit of a program that has so many seconds."""
    make = PROGRAM_LIMITS.get()
    return asyncio.timeout(seconds) if make is None else make(seconds)
