"""Lines that are sent to another process, however slowly it reads."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import anyio
import pytest

from toolexec.backend.mcp.line_writer import LineWriter
from toolexec.process.stream import Pipes

LONG = b"x" * 300_000 + b"\n"  # a pipe takes 64 KiB


class Ends:
    """A writer into a pipe, and the pipe's other end."""

    def __init__(self, most: int) -> None:
        reading, self._far = os.pipe()
        self._near, writing = os.pipe()
        self._other = Pipes(self._near, os.dup(self._far))
        self._stream = Pipes(reading, writing)
        self.lost: list[OSError] = []
        self.writer = LineWriter(self._stream.write_now, self._stream.write, self.lost.append, most)

    async def read(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            found += await self._other.read()
        return found

    def hang_up(self) -> None:
        self._other.close()

    def close(self) -> None:
        self._other.close()
        self._stream.close()
        os.close(self._far)


@asynccontextmanager
async def ends(most: int = 4) -> AsyncGenerator[Ends, None]:
    both = Ends(most)
    running = asyncio.create_task(both.writer.run())
    try:
        yield both
        both.writer.close()
        async with asyncio.timeout(10):
            await running
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        both.close()


async def test_a_line_that_is_taken_at_once_is_out_when_send_returns():
    """No other task is needed for a short line: it and its notice are done when `send` returns."""
    async with ends() as both:
        done: list[str] = []
        await both.writer.send(b"one\n", lambda: done.append("one"))
        assert done == ["one"]
        assert await both.read(4) == b"one\n"


async def test_lines_keep_their_order_behind_a_long_one():
    """Lines that are sent while a long one goes out come after it, whole and in their order."""
    async with ends() as both:
        done: list[int] = []
        await both.writer.send(LONG, lambda: done.append(0))
        await both.writer.send(b"1\n", lambda: done.append(1))
        await both.writer.send(b"2\n", lambda: done.append(2))
        assert done == []
        assert await both.read(len(LONG) + 4) == LONG + b"1\n2\n"
    assert done == [0, 1, 2]


async def test_a_cancelled_sender_tears_no_line():
    """A sender that is cancelled while its line is half written, or waits for a place, leaves whole lines only."""
    async with ends(most=1) as both:
        await both.writer.send(LONG)
        late = asyncio.create_task(both.writer.send(b"never\n"))
        await asyncio.sleep(0)
        assert not late.done()
        late.cancel()
        with pytest.raises(asyncio.CancelledError):
            await late
        assert await both.read(len(LONG)) == LONG
        await both.writer.send(b"next\n")
        assert await both.read(5) == b"next\n"


async def test_senders_wait_while_the_other_side_does_not_read():
    """With as many lines as may wait, a further sender waits for its turn, and those that wait keep their order."""
    async with ends(most=1) as both:
        await both.writer.send(LONG)
        tasks = [asyncio.create_task(both.writer.send(b"%d\n" % number)) for number in range(5)]
        await asyncio.sleep(0)
        assert not any(task.done() for task in tasks)
        assert await both.read(len(LONG) + 10) == LONG + b"0\n1\n2\n3\n4\n"
        await asyncio.gather(*tasks)


async def test_a_lost_reader_is_reported_once():
    """A reader that is gone is reported once, to lines that are half written, too, and what follows is dropped."""
    async with ends(most=1) as both:
        await both.writer.send(LONG)
        waiting = asyncio.create_task(both.writer.send(b"1\n"))
        both.hang_up()
        await waiting
        await both.writer.send(b"2\n")
        assert [type(error) for error in both.lost] == [BrokenPipeError]


async def test_a_closed_writer_takes_no_line():
    """After `close` what waits still goes out, and a further line is refused."""
    async with ends() as both:
        await both.writer.send(LONG)
        both.writer.close()
        with pytest.raises(anyio.ClosedResourceError):
            await both.writer.send(b"late\n")
        assert await both.read(len(LONG)) == LONG
