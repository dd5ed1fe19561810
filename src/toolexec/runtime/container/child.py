"""A container that is a child process of ours: pipes as its stdio, known when it ends, killed with all it started."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from toolexec.process.child import die_with_us, to_the_end
from toolexec.process.stream import Pipes
from toolexec.process.tree import ProcessTree, signal_group
from toolexec.runtime.container.engine import Exit

__all__ = ["Child"]

logger = logging.getLogger(__name__)
_SAID: Final = 4 << 10
_FLOOD: Final = 1 << 16
_PAUSE: Final = 0.02
_POLL: Final = 0.02
_SET_PIPE_SIZE: Final = 1031
"""F_SETPIPE_SZ of Linux, for type checkers that look from elsewhere."""


class Child:
    """A child process as a `Container`: it leads a session of its own, and has only the descriptors it was given.

    *command* gets the environment *env* and nothing else of ours; *name* is its `id`, by default its number. It dies
    with this process, however that dies: the kernel kills its process group as soon as the other end of a socket that
    it inherits is closed. With *lifeline* false it is not given that socket, as it sees to that itself.
    Starting takes about a millisecond, so it is done at once, and a cancellation cannot come in between.

    Raises OSError when it cannot be started. Belongs to the event loop that it was started on.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        fds: Sequence[int] = (),
        name: str = "",
        lifeline: bool = True,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        opened: list[int] = []
        self._lifeline: socket.socket | None = None
        try:
            for _ in range(3):
                opened += os.pipe()
            theirs_in, ours_in, ours_out, theirs_out, ours_err, theirs_err = opened
            _enlarge(ours_in, ours_out)
            self._process = self._spawn(command, env, fds, (theirs_in, theirs_out, theirs_err), lifeline)
        except BaseException:
            for descriptor in opened:
                os.close(descriptor)
            self._cut()
            raise
        for descriptor in (theirs_in, theirs_out, theirs_err):
            os.close(descriptor)
        self._name = name or str(self._process.pid)
        self._exit: asyncio.Future[Exit] = self._loop.create_future()
        self._ending: asyncio.Task[None] | None = None
        self._poller: asyncio.Task[None] | None = None
        self._pipes = Pipes(ours_out, ours_in)
        self._tail = _Tail(ours_err)
        self._watch_exit()

    @property
    def id(self) -> str:
        """What it is called."""
        return self._name

    @property
    def pid(self) -> int:
        """Its process ID, which is also that of its group and session; its own until it has been closed."""
        return self._process.pid

    @property
    def stream(self) -> Pipes:
        """Its stdout and stdin."""
        return self._pipes

    def said(self) -> str:
        """The last few thousand characters of its stderr."""
        return self._tail.text()

    async def wait(self) -> Exit:
        """How it ended, once it has; a negative code is a signal. It is not reaped before `aclose`."""
        return await asyncio.shield(self._exit)

    async def cpu_seconds(self) -> float | None:
        """None: who starts processes in groups of the kernel can tell better."""
        return None

    def kill(self) -> None:
        """Kill it and its process group at once; what else there is ends with `aclose`."""
        if self._ending is None:
            signal_group(self.pid)

    async def aclose(self) -> None:
        """Kill it with all its descendants, take in what it said last, close the pipes.

        A cancellation waits until that is done; twice is fine.
        """
        if self._ending is None:
            self._ending = self._loop.create_task(self._end())
        await to_the_end(self._ending)

    async def _end(self) -> None:
        if not await asyncio.to_thread(ProcessTree(self.pid).kill):
            logger.error("some processes of the container %s cannot be ended", self._name)
        await self._exit
        if self._poller is not None:
            await asyncio.wait({self._poller})
        self._process.wait()  # it has ended already
        self._cut()
        self._pipes.close()
        self._tail.close()

    def _spawn(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        fds: Sequence[int],
        stdio: tuple[int, int, int],
        lifeline: bool,
    ) -> subprocess.Popen[bytes]:
        theirs: socket.socket | None = None
        if lifeline:
            self._lifeline, theirs = socket.socketpair()
            fds = (*fds, theirs.fileno())
        try:
            process = subprocess.Popen(  # noqa: S603 - to run programs is what this is for
                command,
                env=env,
                stdin=stdio[0],
                stdout=stdio[1],
                stderr=stdio[2],
                pass_fds=fds,
                start_new_session=True,
            )
            if theirs is not None:
                die_with_us(theirs.fileno(), process.pid)
            return process
        finally:
            if theirs is not None:
                theirs.close()

    def _cut(self) -> None:
        if self._lifeline is not None:
            self._lifeline.close()
            self._lifeline = None

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
            self._exit.set_result(_ended(self.pid) or Exit())

        self._loop.add_reader(descriptor, ended)

    async def _poll(self) -> None:
        """For systems that cannot tell."""
        while (found := _ended(self.pid)) is None:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(_POLL)
        self._exit.set_result(found)


class _Tail:
    """The end of what comes through a pipe. A flood is taken slowly, so that it does not keep the event loop busy."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._kept = b""
        self._loop = asyncio.get_running_loop()
        self._later: asyncio.TimerHandle | None = None
        self._loop.add_reader(descriptor, self._read)

    def text(self) -> str:
        if self._descriptor >= 0:
            self._take()
        return self._kept.decode("utf-8", "replace")

    def _take(self) -> int | None:
        """How much came; None when there is nothing now, 0 when nothing more comes."""
        try:
            data = os.read(self._descriptor, _FLOOD)
        except BlockingIOError:
            return None
        self._kept = (self._kept + data)[-_SAID:]
        return len(data)

    def _read(self) -> None:
        count = self._take()
        if count == 0:
            self._loop.remove_reader(self._descriptor)
        elif count is not None and count >= _SAID:
            self._loop.remove_reader(self._descriptor)
            self._later = self._loop.call_later(_PAUSE, self._loop.add_reader, self._descriptor, self._read)

    def close(self) -> None:
        if self._descriptor >= 0:
            if self._later is not None:
                self._later.cancel()
            self._loop.remove_reader(self._descriptor)
            for _ in range(4):  # what was written last; what still writes was killed, or would never end
                if not self._take():
                    break
            os.close(self._descriptor)
            self._descriptor = -1


def _ended(pid: int) -> Exit | None:
    """How a child of ours has ended, which stays to be reaped; None while it runs."""
    found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
    if found is None:
        return None
    return Exit(code=found.si_status if found.si_code == os.CLD_EXITED else -found.si_status)


def _enlarge(*pipes: int) -> None:
    """Larger pipes mean fewer turns for large messages. A user may have 64 MiB of them, shared by all processes."""
    size = 1 << 20 if os.geteuid() == 0 else 1 << 18
    for pipe in pipes if sys.platform == "linux" else ():
        with suppress(OSError):
            fcntl.fcntl(pipe, _SET_PIPE_SIZE, size)
