"""The sending half of a talk with a guest: messages and frames in order, none of them in one go if it is large."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import Final

from toolexec.process.stream import QuickStream, Stream
from toolexec.runtime.guest.python.protocol import MAX_FRAME_BYTES

PIECE: Final = 1 << 20
"""How many bytes go into the stream in one go: the event loop does nothing else meanwhile."""

_ROOM: Final = 4 * PIECE


class Sender:
    """Sends messages in order; those that are ready at the same time travel in one frame."""

    def __init__(self, stream: Stream) -> None:
        self.unsent: int = 0
        """In bytes."""
        self._stream = stream
        self._quick = stream.write_now if isinstance(stream, QuickStream) else None
        self._ready: deque[str | bytes] = deque()
        self._task: asyncio.Task[None] | None = None
        self._lost = False
        self._moved = asyncio.Event()

    def put(self, message: str | bytes) -> None:
        """Send *message* (JSON, in ASCII) soon, or bytes that are whole frames; does nothing when the guest is gone."""
        if self._lost:
            return
        self._ready.append(message)
        self.unsent += len(message)
        if self._task is None:
            self._task = asyncio.create_task(self._send())

    def put_alone(self, message: str) -> None:
        """Put a message that no other will come to travel with: at once, if the guest takes it, else as `put` does."""
        if self._quick is not None and self._task is None and not self._lost and len(message) < PIECE:
            [frame] = _frame([message])
            try:
                sent = self._quick(frame)
            except OSError:
                self.give_up()
                return
            if sent == len(frame):
                return
            self.put(frame[sent:])
        else:
            self.put(message)

    async def put_when_room(self, frames: bytes) -> None:
        """Put as `put` does, then let others have their turn, and wait until there is room for more."""
        self.put(frames)
        await asyncio.sleep(0)
        while self.unsent > _ROOM and not self._lost:
            self._moved.clear()
            await self._moved.wait()

    def give_up(self) -> None:
        """Note that the guest is gone: no task waits for it any more."""
        self._lost = True
        self._ready.clear()
        self._moved.set()

    async def aclose(self) -> None:
        """Send what is left if the guest takes it at once."""
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=0.1)
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        self.give_up()

    async def _send(self) -> None:
        try:
            while self._ready:
                first = self._ready.popleft()
                if isinstance(first, bytes):
                    await self._stream.write(first)
                    self.unsent -= len(first)
                else:
                    batch = self._batch(first)
                    for piece in _frame(batch):
                        await self._stream.write(piece)
                    self.unsent -= sum(map(len, batch))
                self._moved.set()
        except OSError:  # who reads from the guest will notice, too
            self.give_up()
        finally:
            self._task = None

    def _batch(self, first: str) -> list[str]:
        """*first* and as much of what is ready after it as fits into one frame."""
        batch = [first]
        size = len(first) + 2
        while self._ready and isinstance(text := self._ready[0], str) and size + len(text) + 1 <= MAX_FRAME_BYTES:
            self._ready.popleft()
            size += len(text) + 1
            batch.append(text)
        return batch


def _frame(batch: list[str]) -> Iterator[bytes]:
    """Yield the frame of some messages, in pieces; JSON from here is ASCII, so that characters are bytes."""
    size = sum(map(len, batch)) + len(batch) + 1
    head = size.to_bytes(4, "big")
    if size <= PIECE:
        yield head + f"[{','.join(batch)}]".encode()
        return
    between = "["
    for text in batch:
        yield head + between.encode()
        for start in range(0, len(text), PIECE):
            yield text[start : start + PIECE].encode()
        head, between = b"", ","
    yield b"]"
