"""The process of a guest: started apart from everything else, heard, and ended with all that it has started."""

from __future__ import annotations

import asyncio
import codecs
import fcntl
import logging
import os
import secrets
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, TypeAlias

from toolexec.process.tree import MARK, ProcessTree

__all__ = ["GuestProcess", "Heard", "die_with_us", "to_the_end"]

logger = logging.getLogger(__name__)
_CHUNK = 1 << 16
_POLL = 0.02

_Channel: TypeAlias = Literal["stdout", "stderr"]
Heard: TypeAlias = Callable[[str, _Channel], None]
"""Gets text that a process writes, and whether to stdout or stderr."""


class GuestProcess:
    """A running process and all that it starts. Belongs to the event loop that it was started on.

    It leads a session of its own. It has no stdin, of file descriptors only those it was given, and of environment
    variables only those it was given, and a mark. What it writes to stdout and stderr goes to *heard* as it comes; what
    *heard* does not keep is gone, so that a flood neither fills memory nor blocks the process.
    """

    def __init__(
        self, command: Sequence[str], *, folder: Path, env: Mapping[str, str], heard: Heard, fds: Sequence[int] = ()
    ) -> None:
        """Start *command* in *folder*; raises OSError when that is not possible."""
        self._heard = heard
        self._loop = asyncio.get_running_loop()
        mark = secrets.token_hex(8)
        pipes = [os.pipe(), os.pipe()]
        self._lifeline, theirs = socket.socketpair()
        try:
            self._process = subprocess.Popen(  # noqa: S603 - to run programs is what this is for
                command,
                cwd=folder,
                env={**env, MARK: mark},
                stdin=subprocess.DEVNULL,
                stdout=pipes[0][1],
                stderr=pipes[1][1],
                pass_fds=(*fds, theirs.fileno()),
                start_new_session=True,
            )
            die_with_us(theirs.fileno(), self._process.pid)
        except BaseException:
            self._lifeline.close()
            for reading, _ in pipes:
                os.close(reading)
            raise
        finally:
            theirs.close()
            for _, writing in pipes:
                os.close(writing)
        self.tree = ProcessTree(self._process.pid, mark)
        self._gone: asyncio.Future[int] = self._loop.create_future()
        self._killer: threading.Thread | None = None
        self._ending: asyncio.Task[None] | None = None
        self._poller: asyncio.Task[None] | None = None
        self._watch_exit()
        self._pipes = [_Pipe(pipes[0][0], "stdout", self), _Pipe(pipes[1][0], "stderr", self)]

    @property
    def pid(self) -> int:
        """Its process ID, which is also that of its group and session."""
        return self._process.pid

    def hear(self, text: str, stream: _Channel) -> None:
        """Pass on what the process wrote."""
        self._heard(text, stream)

    def listen(self, heard: Heard) -> None:
        """From now on, what the process writes goes to *heard*."""
        self.drain()
        self._heard = heard

    def drain(self) -> None:
        """Take in what has been written until now."""
        for pipe in self._pipes:
            pipe.drain()

    async def wait(self) -> int:
        """The exit code of the first process, once it has ended; negative is a signal. It is not reaped before
        `aclose`."""
        return await asyncio.shield(self._gone)

    def kill(self) -> None:
        """Begin to kill all that runs, whatever the event loop does. From any thread, once, and not after `aclose`."""
        self._killer = threading.Thread(target=self.tree.kill, name="toolexec-kill", daemon=True)
        self._killer.start()

    async def aclose(self) -> None:
        """Kill what runs, take in what was written last, close the pipes. A cancellation waits until that is done."""
        if self._ending is None:
            self._ending = self._loop.create_task(self._end())
        await to_the_end(self._ending)

    async def _end(self) -> None:
        if not await asyncio.to_thread(self.tree.kill):
            logger.error("some processes that code has started cannot be ended; the first one was %d", self.pid)
        code = await self._gone
        if self._killer is not None:  # until it is done, the number of the process must stay its own
            await asyncio.to_thread(self._killer.join)
        if self._poller is not None:
            await asyncio.wait({self._poller})
        self._process.returncode = code
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)  # noqa: ASYNC222 - it has ended already
        self._lifeline.close()
        for pipe in self._pipes:
            pipe.drain()
            pipe.close()

    def _watch_exit(self) -> None:
        """Hear of the exit without reaping the process: as long as it is not reaped, its number is its own."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except (AttributeError, OSError):
            self._poller = self._loop.create_task(self._poll())
            return

        def ended() -> None:
            self._loop.remove_reader(descriptor)
            os.close(descriptor)
            found = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
            assert found is not None
            self._gone.set_result(found.si_status if found.si_code == os.CLD_EXITED else -found.si_status)

        self._loop.add_reader(descriptor, ended)

    async def _poll(self) -> None:
        """For systems that cannot tell of an exit without reaping."""
        while (code := self._process.poll()) is None:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(_POLL)
        self._gone.set_result(code)


async def to_the_end(task: asyncio.Task[None]) -> None:
    """Wait for *task* even if that is cancelled meanwhile; the cancellation then takes effect."""
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    task.result()


def die_with_us(lifeline: int, group: int) -> None:
    """Have the system kill the process group as soon as the other end of the lifeline is closed: when this process
    dies, however it dies. Where the system cannot do it, guests have to notice by themselves."""
    if hasattr(fcntl, "F_SETSIG"):
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, -group)
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)


class _Pipe:
    """The reading end of a pipe that a process writes text to."""

    def __init__(self, descriptor: int, name: _Channel, process: GuestProcess) -> None:
        self._descriptor = descriptor
        self._name: _Channel = name
        self._process = process
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._loop = asyncio.get_running_loop()
        os.set_blocking(descriptor, False)
        self._loop.add_reader(descriptor, self._read)

    def _read(self) -> bool:
        """Take in what there is, up to a pipe full; False when there is nothing for now, or for ever."""
        if self._descriptor < 0:
            return False
        try:
            data = os.read(self._descriptor, _CHUNK)
        except BlockingIOError:
            return False
        text = self._decode(data, final=not data)
        if text:
            self._process.hear(text, self._name)
        if not data:
            self.close()
        return bool(data)

    def drain(self) -> None:
        """Take in what was written until now; what a flood writes meanwhile is left, it would never end."""
        for _ in range(64):
            if not self._read():
                return

    def close(self) -> None:
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1
