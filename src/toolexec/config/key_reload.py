"""Read the API keys of a server again when its files change."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from toolexec.errors import ToolExecError

if TYPE_CHECKING:
    from toolexec.server.auth import ApiKey, LiveKeys

__all__ = ["KeyReload"]

logger: logging.Logger = logging.getLogger(__name__)
_EVERY: Final = 0.3
_Signature: TypeAlias = tuple[tuple[int, int, int] | None, ...]


class KeyReload:
    """Replaces *keys* by what *read* returns, once one of *files* has changed, or `request` is called.

    A file that is still being written is left until it stays the same for a moment. All or nothing: when it cannot be
    read, the keys of before stay, and the log says why.
    """

    def __init__(self, files: Sequence[Path], read: Callable[[], Sequence[ApiKey]], keys: LiveKeys) -> None:
        self._files = files
        self._read = read
        self._keys = keys
        self._requested = asyncio.Event()

    def request(self) -> None:
        """Read the files now, whether they have changed or not."""
        self._requested.set()

    async def run(self) -> None:
        """Watch until cancelled; the files are read once at the beginning, as they may have changed since."""
        done: _Signature | None = None
        before = await asyncio.to_thread(self._signature)
        while True:
            is_requested = await self._next()
            now = await asyncio.to_thread(self._signature)
            if is_requested or now == before != done:
                await self._reload()
                done = now
            before = now

    async def _next(self) -> bool:
        """Wait for a request, or for the next look at the files; return whether it was a request."""
        try:
            await asyncio.wait_for(self._requested.wait(), _EVERY)
        except TimeoutError:
            return False
        self._requested.clear()
        return True

    async def _reload(self) -> None:
        try:
            keys = await asyncio.to_thread(self._read)
            gone = self._keys.replace(keys)
        except ToolExecError as error:
            logger.error("the API keys were not reloaded, those of before stay: %s", error)
        except Exception as error:
            logger.error("the API keys were not reloaded, those of before stay: %s", type(error).__name__)
        else:
            if gone:
                logger.warning("the API keys were reloaded; out or changed: %s", ", ".join(sorted(gone)))
            else:
                logger.info("the API keys were reloaded; there are %d", len(self._keys))

    def _signature(self) -> _Signature:
        return tuple(map(_signature_of, self._files))


def _signature_of(file: Path) -> tuple[int, int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
