"""Child processes: started apart from everything else, with their output, and ended with all that they have started."""

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
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Final, Literal, TypeAlias, TypeVar

from toolexec.process.settling import to_the_end
from toolexec.process.stream import Pipes
from toolexec.process.tree import MARK, ProcessTree, signal_group

T = TypeVar("T")
logger: logging.Logger = logging.getLogger(__name__)
STDERR_TAIL: Final = 4 << 10
"""The most bytes of stderr that are kept."""

_MOST_OUTPUT: Final = 100_000
_CHUNK: Final = 1 << 16
_FLOOD: Final = 4 << 10
_PAUSE: Final = 0.005
_POLL: Final = 0.02
_SET_PIPE_SIZE: Final = 1031
"""F_SETPIPE_SZ of Linux, for type checkers that look from elsewhere."""

_Channel: TypeAlias = Literal["stdout", "stderr"]
OnOutput: TypeAlias = Callable[[str, _Channel], None]
"""Gets the strings that a process writes, and whether to stdout or stderr."""


class Child:
    """A running process and all that it starts. Belongs to the event loop that it was started on.

    It leads a session of its own, and has of descriptors and environment variables only those it was given. Its stdout
    and stdin are `stream`; the end of its stderr is kept.

    With *on_output* it has no stdin, and what it writes to stdout and stderr goes there as it comes; what that does not
    keep is gone, so that a flood neither fills memory nor blocks the process. It then has a mark, too, so that nothing
    that it starts can hide (see `ProcessTree`); without, it has one if it is to be *marked*.

    It dies with this process, however that dies: the kernel kills its process group as soon as the other end of a
    socket that it inherits is closed. With *lifeline* false it is not given that socket.
    Starting takes about a millisecond, so it is done at once, and a cancellation cannot come in between. Raises OSError
    when it cannot be started.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str | os.PathLike[str] | None = None,
        fds: Sequence[int] = (),
        on_output: OnOutput | None = None,
        lifeline: bool = True,
        marked: bool = False,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_output = on_output
        self._lifeline: socket.socket | None = None
        self._mark = secrets.token_hex(8) if marked or on_output is not None else ""
        env = {**env, MARK: self._mark} if self._mark else env
        ours = self._spawn(command, env, cwd, fds, lifeline=lifeline)
        self._exit: asyncio.Future[int] = self._loop.create_future()
        self._killer: threading.Thread | None = None
        self._ending: asyncio.Task[None] | None = None
        self._poller: asyncio.Task[None] | None = None
        self._watch_exit()
        self._stream = Pipes(ours[0], ours[-1]) if on_output is None else None
        self._tail = b""
        self._outputs: list[_Output] = []
        if on_output is not None:
            self._outputs += [
                _Output(ours[0], self._passing_on("stdout")),
                _Output(ours[1], self._passing_on("stderr")),
            ]
        else:
            self._outputs.append(_Output(ours[1], self._keep, pause=_PAUSE))

    @property
    def pid(self) -> int:
        """Its process ID, which is also that of its group and session; its own until it has been closed."""
        return self._process.pid

    @cached_property
    def tree(self) -> ProcessTree:
        """It and all that it has started, for those who look at them or kill them."""
        return ProcessTree(self._process.pid, self._mark)

    @property
    def stream(self) -> Pipes:
        """Its stdout and stdin; not with *on_output*."""
        assert self._stream is not None
        return self._stream

    @property
    def exit_code(self) -> int | None:
        """How it ended, a negative code is a signal; None while it runs."""
        return self._exit.result() if self._exit.done() else None

    def stderr_tail(self) -> bytes:
        """Return the last of what it has written to stderr until now, at most `STDERR_TAIL` bytes."""
        self.drain()
        return self._tail

    def listen(self, on_output: OnOutput) -> None:
        """Have what the process writes from now on go to *on_output*."""
        self.drain()
        self._on_output = on_output

    def drain(self) -> None:
        """Take in what has been written until now."""
        for output in self._outputs:
            output.drain()

    async def wait(self) -> int:
        """Return the exit code, once it has ended; a negative code is a signal. It is not reaped before `aclose`."""
        return await asyncio.shield(self._exit)

    def terminate(self) -> None:
        """Ask it and its process group to end."""
        if self._ending is None:
            signal_group(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """Begin to kill it and its process group, with a mark its whole tree, whatever the event loop does.

        What else there is ends with `aclose`. From any thread, once.
        """
        if self._ending is not None:
            return
        if self._mark:
            self._killer = threading.Thread(target=self.tree.kill, name="toolexec-kill", daemon=True)
            self._killer.start()
        else:
            signal_group(self.pid)

    async def aclose(self) -> None:
        """Kill it with all that it has started, take in what was written last, close the pipes.

        A cancellation waits until that is done; twice is fine.
        """
        if self._ending is None:
            self._ending = self._loop.create_task(self._end())
        await to_the_end(self._ending)

    async def _end(self) -> None:
        if not await asyncio.to_thread(self.tree.kill):
            logger.error("some processes that process %d has started cannot be ended", self.pid)
        await self._exit
        if self._killer is not None:  # until it is done, the number of the process must stay its own
            await asyncio.to_thread(self._killer.join)
        if self._poller is not None:
            await asyncio.wait({self._poller})
        self._process.wait()  # it has ended already
        self._cut()
        if self._stream is not None:
            self._stream.close()
        for output in self._outputs:
            output.drain()
            output.close()

    def _spawn(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        cwd: str | os.PathLike[str] | None,
        fds: Sequence[int],
        *,
        lifeline: bool,
    ) -> list[int]:
        """Start the process; returns our ends of its stdout, stderr and stdin, those that are pipes."""
        ours: list[int] = []
        theirs: list[int] = []

        def pipe(*, to_child: bool = False) -> int:
            """Make a pipe; returns the end that the child gets."""
            reading, writing = os.pipe()
            ours.append(writing if to_child else reading)
            theirs.append(reading if to_child else writing)
            return theirs[-1]

        try:
            stdout, stderr, stdin = pipe(), pipe(), subprocess.DEVNULL
            if self._on_output is None:
                stdin = pipe(to_child=True)
                _enlarge(stdin, stdout)
            if lifeline:
                self._lifeline, other = socket.socketpair()
                theirs.append(other.detach())
                fds = (*fds, theirs[-1])
            self._process = subprocess.Popen(  # noqa: S603 - to run programs is what this is for
                command,
                cwd=cwd,
                env=env,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                pass_fds=fds,
                start_new_session=True,
            )
            if lifeline:
                die_with_us(theirs[-1], self._process.pid)
        except BaseException:
            for descriptor in ours:
                os.close(descriptor)
            self._cut()
            raise
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        return ours

    def _cut(self) -> None:
        if self._lifeline is not None:
            self._lifeline.close()
            self._lifeline = None

    def _keep(self, data: bytes) -> None:
        self._tail = (self._tail + data)[-STDERR_TAIL:]

    def _passing_on(self, channel: _Channel) -> Callable[[bytes], None]:
        """Return what takes the bytes of one channel, b"" at the end, and gives *on_output* the string."""
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode

        def receive(data: bytes) -> None:
            text = decode(data, final=not data)
            if text and self._on_output is not None:
                self._on_output(text, channel)

        return receive

    def _watch_exit(self) -> None:
        """Learn of the exit without reaping the process: as long as it is not reaped, its number is its own."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except (AttributeError, OSError):
            self._poller = self._loop.create_task(self._poll())
            return

        def ended() -> None:
            self._loop.remove_reader(descriptor)
            os.close(descriptor)
            code = self._ended()
            assert code is not None
            self._exit.set_result(code)

        self._loop.add_reader(descriptor, ended)

    async def _poll(self) -> None:
        """Wait for the exit on systems that do not notify of it."""
        while (code := self._ended()) is None:  # noqa: ASYNC110 - nothing notifies of it
            await asyncio.sleep(_POLL)
        self._exit.set_result(code)

    def _ended(self) -> int | None:
        """Return the exit code; None while it runs. It is not reaped, but on systems that have no other means."""
        if not hasattr(os, "waitid"):
            return self._process.poll()
        found = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        if found is None:
            return None
        return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status


async def run_child(
    command: Sequence[str], *, env: Mapping[str, str], cwd: str | os.PathLike[str] = "/"
) -> tuple[int, str]:
    """Run a program to its end; gives its exit code and the first 100,000 characters of what it wrote.

    Cancelling kills it with all that it started. A program that cannot be started has exit code 127.
    """
    output = ""

    def keep(text: str, _: _Channel) -> None:
        nonlocal output
        output = (output + text)[:_MOST_OUTPUT]

    try:
        child = Child(command, cwd=cwd, env=env, on_output=keep)
    except OSError as error:
        return 127, str(error)
    try:
        code = await child.wait()
    finally:
        await child.aclose()
    return code, output


def memory_file(data: bytes) -> int:
    """Return a descriptor that a child can read *data* from; to be closed. Raises OSError. Linux only."""
    descriptor = os.memfd_create("toolexec")
    try:
        os.write(descriptor, data)
        os.lseek(descriptor, 0, os.SEEK_SET)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def die_with_us(lifeline: int, group: int) -> None:
    """Have the system kill the process group as soon as the other end of the lifeline is closed: when this process
    dies, however it dies. Where the system cannot do it, guests have to notice by themselves."""
    if hasattr(fcntl, "F_SETSIG"):
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, -group)
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)


class _Output:
    """The reading end of a pipe: what comes goes to *receive*, b"" at the end.

    With a *pause*, a flood is taken slowly, so that it does not keep the event loop busy.
    """

    def __init__(self, descriptor: int, receive: Callable[[bytes], None], *, pause: float = 0) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._receive = receive
        self._pause = pause
        self._later: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(descriptor, self._read)

    def _read(self) -> None:
        if self._take() >= _FLOOD and self._pause:
            self._loop.remove_reader(self._descriptor)
            self._later = self._loop.call_later(self._pause, self._loop.add_reader, self._descriptor, self._read)

    def _take(self) -> int:
        """Take in what there is, up to a pipe full, and return how much; 0 when there is nothing for now or ever."""
        if self._descriptor < 0:
            return 0
        try:
            data = os.read(self._descriptor, _CHUNK)
        except BlockingIOError:
            return 0
        self._receive(data)
        if not data:
            self.close()
        return len(data)

    def drain(self) -> None:
        """Take in what was written until now; what a flood writes meanwhile is left, it would never end."""
        for _ in range(64):
            if not self._take():
                return

    def close(self) -> None:
        """Close the pipe; twice is fine."""
        if self._descriptor >= 0:
            if self._later is not None:
                self._later.cancel()
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1


def _enlarge(*pipes: int) -> None:
    """Enlarge pipes, for fewer turns with large messages. A user may have 64 MiB of them, in all processes together."""
    size = 1 << 20 if os.geteuid() == 0 else 1 << 18
    for pipe in pipes if sys.platform == "linux" else ():
        with suppress(OSError):
            fcntl.fcntl(pipe, _SET_PIPE_SIZE, size)
