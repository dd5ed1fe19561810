"""Connections over standard input and output: to a child process, and from a child to the one that started it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress

from toolexec.errors import SandboxUnavailableError
from toolexec.process.tree import signal_group
from toolexec.runtime.gateway.connections import StreamConnection, connect_pipes
from toolexec.runtime.gateway.protocol import MAX_FRAME_BYTES

__all__ = ["ProcessConnection"]

_GRACE = 2.0
_LIMIT = 1 << 20


class _ChildProtocol(asyncio.subprocess.SubprocessStreamProtocol):
    """Says at once that the process ended; `Process.wait` also waits for pipes, which a grandchild may hold open."""

    def __init__(self) -> None:
        super().__init__(limit=_LIMIT, loop=asyncio.get_running_loop())
        self.exited = asyncio.Event()

    def process_exited(self) -> None:
        super().process_exited()
        self.exited.set()


class ProcessConnection(StreamConnection):
    """A connection to the standard input and output of a child process; `start_process` makes it.

    Closing it closes the child's input, gives it 2 s to end, and kills the whole process group after that.
    """

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        transport: asyncio.SubprocessTransport,
        exited: asyncio.Event,
        max_frame_bytes: int,
    ) -> None:
        assert process.stdout is not None
        assert process.stdin is not None
        super().__init__(process.stdout, process.stdin, max_frame_bytes=max_frame_bytes)
        self._transport = transport
        self._exited = exited
        self.pid = process.pid

    @property
    def exit_code(self) -> int | None:
        """How the process ended (below 0: by that signal), None while it runs."""
        return self._transport.get_returncode()

    async def _close(self) -> None:
        try:
            await super()._close()
            await self._wait(_GRACE)
        finally:
            signal_group(self.pid)  # also what the child has left behind
            await self._wait(_GRACE)
            self._transport.close()
            await asyncio.sleep(0)  # the pipes are closed in the next round of the loop

    async def _wait(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._exited.wait(), seconds)


async def start_process(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    pass_fds: Sequence[int] = (),
    max_frame_bytes: int = MAX_FRAME_BYTES,
) -> ProcessConnection:
    """Start *command* in a session of its own and connect to its standard input and output.

    *env* are all the environment variables that it gets; None gives it `PATH` alone, so that it inherits no secrets.
    What it writes to stderr goes to ours. Raises SandboxUnavailableError when it cannot be started.
    """
    loop = asyncio.get_running_loop()
    try:
        transport, protocol = await loop.subprocess_exec(
            _ChildProtocol,
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=None,
            env={"PATH": os.environ.get("PATH", os.defpath)} if env is None else dict(env),
            cwd=cwd,
            pass_fds=pass_fds,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        name = command[0] if command else "an empty command"
        raise SandboxUnavailableError(f"cannot start {name}: {error}") from error
    process = asyncio.subprocess.Process(transport, protocol, loop)
    return ProcessConnection(process, transport, protocol.exited, max_frame_bytes)


async def own_stdio(*, max_frame_bytes: int = MAX_FRAME_BYTES) -> StreamConnection:
    """A connection to whoever started this process, over its standard input and output.

    From then on the process reads nothing from stdin, and what it prints goes to stderr: a stray `print` must not get
    between the frames. Raises ConfigurationError when they are no pipes, sockets or terminals.
    """
    sys.stdout.flush()
    incoming, outgoing = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.close(nowhere)
    os.dup2(2, 1)
    return await connect_pipes(incoming, outgoing, max_frame_bytes=max_frame_bytes)
