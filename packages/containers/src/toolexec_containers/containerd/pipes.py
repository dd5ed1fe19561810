"""Stdin, stdout and stderr of a container that containerd runs: named pipes, whose other ends its shim opens.

The shim holds both ends of each pipe, so that our death does not end it. For us that means that no pipe breaks before
the container ends, and that a shim whose stdout is not read never exits: what still comes is read and discarded.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal, TypeAlias

_Name: TypeAlias = Literal["stdin", "stdout", "stderr"]
_NAMES: Final[tuple[_Name, ...]] = ("stdin", "stdout", "stderr")
_CHUNK: Final = 1 << 18
_ROOM: Final = 1 << 20
_KEPT: Final = 4000
_AT_ONCE: Final = _ROOM // _CHUNK
"""How many chunks are read before others get their turn: a pipe full."""


class Pipes:
    """The three pipes, as files in *directory*, which is made for them; a `Stream` over the first two.

    Making and `remove` block on the disk: call them in a thread. Raises OSError when they cannot be made.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ours: dict[_Name, int] = {}
        self._theirs: dict[_Name, int] = {}
        self._said = b""
        self._watched: set[int] = set()
        self._pending: dict[int, asyncio.Future[None]] = {}
        self._closed = False
        self.on_close: Callable[[], None] | None = None
        """Called when the stream is closed: the shim holds stdin open until it is notified."""
        directory.mkdir(mode=0o700)
        try:
            for name in _NAMES:
                self._make(name)
        except BaseException:
            self.remove()
            raise

    def path(self, name: _Name) -> str:
        """Return the file that is one of the three."""
        return str(self._directory / name)

    def started(self) -> None:
        """Note that the shim has opened its ends. From now on stdout and stderr end with the container, and stderr is
        read.
        """
        for name in ("stdout", "stderr"):
            os.close(self._theirs.pop(name))
        self._watch(self._ours["stderr"], self._hear)

    def ended(self) -> None:
        """Note that the container is gone: what is still being written to it fails."""
        held = self._theirs.pop("stdin", -1)
        if held >= 0:
            os.close(held)

    def said(self) -> str:
        """Return the end of what came from stderr."""
        if self._ours.get("stderr") in self._watched:
            self._hear()
        return self._said.decode("utf-8", "replace")

    async def read(self) -> bytes:
        """Implement `Stream.read`."""
        while True:
            self._check()
            try:
                return os.read(self._ours["stdout"], _CHUNK)
            except BlockingIOError:
                await self._ready(self._ours["stdout"], writing=False)

    async def write(self, data: bytes) -> None:
        """Implement `Stream.write`."""
        rest = memoryview(data)
        while rest:
            self._check()
            try:
                rest = rest[os.write(self._ours["stdin"], rest) :]
            except BlockingIOError:
                await self._ready(self._ours["stdin"], writing=True)

    def write_now(self, data: bytes) -> int:
        """Implement `QuickStream.write_now`."""
        self._check()
        try:
            return os.write(self._ours["stdin"], data)
        except BlockingIOError:
            return 0

    async def aclose(self) -> None:
        """Implement `Stream.aclose`; the program in the container finds its input at its end."""
        self.end()

    def end(self) -> None:
        """Do the same at once."""
        if self._closed:
            return
        self._closed = True
        for descriptor, waiting in [*self._pending.items()]:
            self._unwatch(descriptor)
            if not waiting.done():
                waiting.set_exception(_closed())
        self._watch(self._ours["stdout"], self._discard)
        os.close(self._ours.pop("stdin"))
        self.ended()
        if self.on_close is not None:
            self.on_close()

    def silence(self) -> None:
        """Read nothing more. On the event loop, before `remove`."""
        self._closed = True
        for descriptor in [*self._watched]:
            self._unwatch(descriptor)

    def remove(self) -> None:
        """Close and remove them; twice is fine. Raises OSError for files that cannot be removed."""
        for ends in (self._ours, self._theirs):
            while ends:
                os.close(ends.popitem()[1])
        with suppress(FileNotFoundError):
            shutil.rmtree(self._directory)

    def _make(self, name: _Name) -> None:
        path = self.path(name)
        os.mkfifo(path, 0o600)
        # A pipe can be opened for writing, without waiting, only while it has a reader; and one without a writer
        # is at its end. So both ends are opened here, and theirs is closed when the shim has opened its own.
        for mode in (os.O_RDONLY, os.O_WRONLY):
            end = os.open(path, mode | os.O_NONBLOCK | os.O_CLOEXEC)
            is_ours = (mode == os.O_WRONLY) == (name == "stdin")
            (self._ours if is_ours else self._theirs)[name] = end
        with suppress(OSError, AttributeError):  # there is a bound for all that a user has; and only Linux can
            fcntl.fcntl(self._ours[name], fcntl.F_SETPIPE_SZ, _ROOM)

    def _check(self) -> None:
        if self._closed:
            raise _closed()

    def _hear(self) -> None:
        descriptor = self._ours["stderr"]
        for _ in range(_AT_ONCE):
            try:
                data = os.read(descriptor, _CHUNK)
            except BlockingIOError:
                return
            if not data:
                self._unwatch(descriptor)
                return
            self._said = (self._said + data)[-_KEPT:]

    def _discard(self) -> None:
        descriptor = self._ours["stdout"]
        with suppress(BlockingIOError):
            if not os.read(descriptor, _CHUNK):
                self._unwatch(descriptor)

    def _watch(self, descriptor: int, ready: Callable[[], None], *, writing: bool = False) -> None:
        loop = asyncio.get_running_loop()
        (loop.add_writer if writing else loop.add_reader)(descriptor, ready)
        self._watched.add(descriptor)

    def _unwatch(self, descriptor: int) -> None:
        self._pending.pop(descriptor, None)
        if descriptor in self._watched:
            self._watched.discard(descriptor)
            loop = asyncio.get_running_loop()
            loop.remove_reader(descriptor)
            loop.remove_writer(descriptor)

    async def _ready(self, descriptor: int, *, writing: bool) -> None:
        """Wait until the pipe has room, or something in it."""
        ready = asyncio.get_running_loop().create_future()
        self._pending[descriptor] = ready
        self._watch(descriptor, lambda: None if ready.done() else ready.set_result(None), writing=writing)
        try:
            await ready
        finally:
            if self._pending.get(descriptor) is ready:
                self._unwatch(descriptor)


def _closed() -> OSError:
    return OSError(errno.EBADF, "the stream is closed")
