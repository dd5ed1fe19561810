"""Act when files have changed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final, TypeAlias

_EVERY: Final = 1.0
_SOON: Final = 0.3
"""After how many seconds files that have changed are looked at again."""
_Signature: TypeAlias = tuple[tuple[int, int, int] | None, ...]


class FileWatch:
    """Has *act* awaited once one of *files* has changed, or `request` is called; never twice at a time.

    A file that is still being written is left until it stays the same for a moment. *files* is asked at each look.
    """

    def __init__(self, files: Callable[[], Sequence[Path]], act: Callable[[], Awaitable[object]]) -> None:
        self._files = files
        self._act = act
        self._requested = asyncio.Event()

    def request(self) -> None:
        """Act now, whether the files have changed or not; if that is going on already, once more after it."""
        self._requested.set()

    async def run(self) -> None:
        """Watch until cancelled; acts once at the beginning, as the files may have changed since they were read."""
        done: _Signature | None = None
        before = await asyncio.to_thread(self._signature)
        while True:
            is_requested = await self._next(_EVERY if before == done else _SOON)
            now = await asyncio.to_thread(self._signature)
            if is_requested or now == before != done:
                await self._act()
                done = now
            before = now

    async def _next(self, seconds: float) -> bool:
        """Wait for a request, or for the next look at the files; return whether it was a request."""
        try:
            async with asyncio.timeout(seconds):  # `wait_for` would lose a cancellation that comes with a request
                await self._requested.wait()
        except TimeoutError:
            return False
        self._requested.clear()
        return True

    def _signature(self) -> _Signature:
        return tuple(map(_signature_of, self._files()))


def _signature_of(file: Path) -> tuple[int, int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
