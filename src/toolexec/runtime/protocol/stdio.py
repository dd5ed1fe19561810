"""Connections over standard input and output: to a child process, and from a child to the one that started it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress

from toolexec.errors import SandboxUnavailableError
from toolexec.process.child import Child
from toolexec.runtime.protocol.connections import StreamConnection, connect_pipes
from toolexec.runtime.protocol.messages import MAX_FRAME_BYTES

__all__ = ["ProcessConnection"]

_GRACE = 2.0


class ProcessConnection:
    """A connection to the standard input and output of a child process; `start_process` makes it.

    Closing it closes the child's input, gives it 2 s to end, and kills the whole process group after that.
    """

    def __init__(self, child: Child, connection: StreamConnection) -> None:
        self._child = child
        self._connection = connection
        self._closing: asyncio.Task[None] | None = None
        self.pid: int = child.pid

    @property
    def exit_code(self) -> int | None:
        """How the process ended (below 0: by that signal), None while it runs."""
        return self._child.exit_code

    async def send(self, frame: bytes) -> None:
        """Send a frame; see `Connection.send`."""
        await self._connection.send(frame)

    async def receive(self) -> bytes:
        """Return the next frame; see `Connection.receive`."""
        return await self._connection.receive()

    async def aclose(self) -> None:
        """Close the connection and end the process; see `Connection.aclose`."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        try:
            await self._connection.aclose()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._child.wait(), _GRACE)
        finally:
            await self._child.aclose()  # also what it has left behind


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
    env = {"PATH": os.environ.get("PATH", os.defpath)} if env is None else env
    try:
        child = Child(command, env=env, cwd=cwd, fds=pass_fds, keep_stderr=False, lifeline=False)
    except (OSError, ValueError) as error:
        name = command[0] if command else "an empty command"
        raise SandboxUnavailableError(f"cannot start {name}: {error}") from error
    try:
        return ProcessConnection(child, await connect_pipes(*child.stream.detach(), max_frame_bytes=max_frame_bytes))
    except BaseException:
        await child.aclose()
        raise


async def own_stdio(*, max_frame_bytes: int = MAX_FRAME_BYTES) -> StreamConnection:
    """Return a connection to the parent of this process, over its standard input and output.

    From then on the process reads nothing from stdin, and what it prints goes to stderr: a stray `print` must not get
    between the frames. Raises ConfigurationError when they are not pipes, sockets or terminals.
    """
    sys.stdout.flush()
    incoming, outgoing = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.close(nowhere)
    os.dup2(2, 1)
    return await connect_pipes(incoming, outgoing, max_frame_bytes=max_frame_bytes)
