"""Pipes to a container, with the test in the place of the shim, which opens both ends of each."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from toolexec_containers.containerd.pipes import Pipes

pytestmark = pytest.mark.anyio


class Shim:
    """The other ends."""

    def __init__(self, pipes: Pipes) -> None:
        # as the shim does: for stdin both ends, for the others both, too
        self.stdin = os.open(pipes.path("stdin"), os.O_RDWR | os.O_NONBLOCK)
        self.stdout = os.open(pipes.path("stdout"), os.O_RDWR | os.O_NONBLOCK)
        self.stderr = os.open(pipes.path("stderr"), os.O_RDWR | os.O_NONBLOCK)

    def close(self) -> None:
        """The container is gone, and the shim lets go."""
        for end in (self.stdin, self.stdout, self.stderr):
            if end >= 0:
                os.close(end)
        self.stdin = self.stdout = self.stderr = -1


@pytest.fixture
async def pipes(tmp_path: Path) -> AsyncIterator[Pipes]:
    """Pipes in a directory of their own, which is gone in the end."""
    made = Pipes(tmp_path / "p")
    yield made
    made.silence()
    made.remove()
    made.remove()
    assert not (tmp_path / "p").exists()


@pytest.fixture
async def shim(pipes: Pipes) -> AsyncIterator[Shim]:
    """A shim that has opened its ends."""
    made = Shim(pipes)
    pipes.started()
    yield made
    made.close()


async def test_both_ways(pipes: Pipes, shim: Shim) -> None:
    """Both directions carry what is written, whichever side comes first."""
    await pipes.write(b"in")
    assert os.read(shim.stdin, 10) == b"in"
    reading = asyncio.create_task(pipes.read())
    await asyncio.sleep(0)
    os.write(shim.stdout, b"out")
    assert await reading == b"out"


async def test_not_at_an_end_before_the_shim_is_there(pipes: Pipes) -> None:
    """A pipe whose other end is not open yet is not closed."""
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(pipes.read(), 0.05)
    shim = Shim(pipes)
    os.write(shim.stdout, b"x")
    pipes.started()
    assert await pipes.read() == b"x"
    shim.close()
    assert await pipes.read() == b""


async def test_waits_while_nobody_reads(pipes: Pipes, shim: Shim) -> None:
    """More than the pipe takes waits for the reader."""
    writing = asyncio.create_task(pipes.write(b"x" * (3 << 20)))
    got = 0
    while got < 3 << 20:
        await asyncio.sleep(0.001)
        try:
            got += len(os.read(shim.stdin, 1 << 20))
        except BlockingIOError:
            continue
    await writing


async def test_writing_ends_with_the_container(pipes: Pipes, shim: Shim) -> None:
    """A writer is notified when the container is gone."""
    writing = asyncio.create_task(pipes.write(b"x" * (3 << 20)))
    await asyncio.sleep(0.01)
    shim.close()
    pipes.ended()
    with pytest.raises(BrokenPipeError):
        await writing


async def test_closing_wakes_who_waits(pipes: Pipes, shim: Shim) -> None:
    """A reader and a writer that wait when it is closed are told, and closing is reported once."""
    calls: list[int] = []
    pipes.on_close = lambda: calls.append(1)
    waiting = [asyncio.create_task(pipes.read()), asyncio.create_task(pipes.write(b"x" * (3 << 20)))]
    await asyncio.sleep(0.01)
    await pipes.aclose()
    await pipes.aclose()
    for task in waiting:
        with pytest.raises(OSError, match="closed"):
            await task
    with pytest.raises(OSError, match="closed"):
        await pipes.read()
    assert calls == [1]


async def test_closed_stream_lets_the_program_go_on(pipes: Pipes, shim: Shim) -> None:
    """Later output is thrown away, so that nothing waits for a reader."""
    await pipes.aclose()
    sent = 0
    while sent < 3 << 20:
        await asyncio.sleep(0)
        try:
            sent += os.write(shim.stdout, b"x" * 65536)
        except BlockingIOError:
            await asyncio.sleep(0.001)
    shim.close()
    await asyncio.sleep(0.05)


async def test_stderr_is_kept_to_its_end(pipes: Pipes, shim: Shim) -> None:
    """The last 4000 bytes of it, whether or not the event loop has had its turn."""
    os.write(shim.stderr, b"first ")
    assert pipes.said() == "first "
    os.write(shim.stderr, b"y" * 5000 + b"\xff")
    await asyncio.sleep(0.01)
    assert len(pipes.said()) == 4000
    assert pipes.said().endswith("y\ufffd")
    shim.close()
    await asyncio.sleep(0.01)
    assert len(pipes.said()) == 4000


async def test_cancelled_reader(pipes: Pipes, shim: Shim) -> None:
    """A cancelled read takes nothing away from the next."""
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(pipes.read(), 0.01)
    os.write(shim.stdout, b"x")
    assert await pipes.read() == b"x"


async def test_directory_that_cannot_be_made(tmp_path: Path) -> None:
    """Nothing is left open."""
    (tmp_path / "p").touch()
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError):
        Pipes(tmp_path / "p")
    assert len(os.listdir("/proc/self/fd")) == before


async def test_pipe_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are removed again."""
    original = os.mkfifo

    def mkfifo(path: str, mode: int) -> None:
        if path.endswith("stderr"):
            raise OSError(28, "No space left on device")
        original(path, mode)

    monkeypatch.setattr(os, "mkfifo", mkfifo)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="space"):
        Pipes(tmp_path / "p")
    assert len(os.listdir("/proc/self/fd")) == before
    assert not (tmp_path / "p").exists()
