"""Lines to another process: at once where it takes them, in their order where it does not."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import anyio

_Done: TypeAlias = Callable[[], None]


class LineWriter:
    """Writes lines in the order in which they are sent.

    `send` itself writes what *write_now* takes, which returns how many bytes that was; `run`, a task of its own, hands
    the rest to *write*, so that a line is whole though its sender is cancelled. While *most* lines wait, senders wait,
    too. *lost* is called with the OSError of a write that fails; all that is sent after it is dropped.
    """

    def __init__(
        self,
        write_now: Callable[[bytes], int],
        write: Callable[[bytes], Awaitable[None]],
        lost: Callable[[OSError], None],
        most: int,
    ) -> None:
        self._write_now = write_now
        self._write = write
        self._lost = lost
        self._places = asyncio.Semaphore(most)
        self._waiting: deque[tuple[bytes, _Done | None]] = deque()  # the first one is being written
        self._more = asyncio.Event()
        self._is_closed = False
        self._is_lost = False

    async def send(self, line: bytes, done: _Done | None = None) -> None:
        """Write a line, with its newline, or have it written; *done* is called once all of it is out. Raises
        ClosedResourceError when the writer is closed."""
        await self._places.acquire()
        if self._is_closed:
            self._places.release()
            raise anyio.ClosedResourceError
        if self._is_lost:
            self._places.release()
            return
        if not self._waiting:
            try:
                line = line[self._write_now(line) :]
            except OSError as error:
                self._places.release()
                self._lose(error)
                return
            if not line:
                self._places.release()
                if done is not None:
                    done()
                return
        self._waiting.append((line, done))
        self._more.set()

    async def run(self) -> None:
        """Write what waits, until the writer is closed and all is out, or a write fails."""
        while not self._is_lost:
            if not self._waiting:
                if self._is_closed:
                    return
                self._more.clear()
                await self._more.wait()
                continue
            line, done = self._waiting[0]
            try:
                await self._write(line)
            except OSError as error:
                self._lose(error)
                return
            self._waiting.popleft()
            self._places.release()
            if done is not None:
                done()

    def close(self) -> None:
        """Take no more lines; `run` ends after those that wait. Closing twice is fine."""
        self._is_closed = True
        self._more.set()

    def _lose(self, error: OSError) -> None:
        self._is_lost = True
        while self._waiting:
            self._waiting.popleft()
            self._places.release()
        self._more.set()
        self._lost(error)
