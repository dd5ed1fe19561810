"""One worker process, seen from outside: a socket to talk over, and a process group to kill."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from toolexec.errors.extras import unix_needed

__all__ = ["MAX_FRAME", "ReplyTooLargeError", "WorkerProcess"]

MAX_FRAME = 64 << 20
"""The most bytes of a reply."""

_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); from toolexec.backend.worker import main; main()"
)


class ReplyTooLargeError(Exception):
    """The reply is larger than MAX_FRAME."""


class WorkerProcess:
    """A running `toolexec.backend.worker`.

    It is started by constructing this, which raises OSError when that is not possible. It belongs to no event loop: one
    after the other may talk to it. Frames in both directions are a length (4 bytes, big-endian) and JSON.
    """

    def __init__(self) -> None:
        with unix_needed("a killable handler"):
            import_module("fcntl")  # the worker ends with its lifeline, which needs it
        self._socket, theirs = socket.socketpair()
        self._lifeline, their_lifeline = socket.socketpair()
        try:
            self._socket.setblocking(False)
            path = [str(folder) or str(Path.cwd()) for folder in sys.path]
            command = [sys.executable, "-P", "-c", _PROGRAM, json.dumps(path)]
            self._process = subprocess.Popen(  # noqa: S603
                command, stdin=theirs.fileno(), stdout=their_lifeline.fileno(), start_new_session=True
            )
        except BaseException:
            self._hang_up()
            raise
        finally:
            theirs.close()
            their_lifeline.close()

    async def exchange(self, request: bytes) -> dict[str, Any]:
        """Send a request and give the reply.

        Raises EOFError or OSError when the process has gone, ValueError for garbage, ReplyTooLargeError. After a
        failure or a cancellation the process must be killed: what it says next belongs to nobody.
        """
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(self._socket, len(request).to_bytes(4, "big") + request)
        size = int.from_bytes(await self._read(4), "big")
        if size > MAX_FRAME:
            raise ReplyTooLargeError(f"the result has {size} bytes as JSON, more than {MAX_FRAME}")
        return json.loads(await self._read(size))

    async def _read(self, size: int) -> bytearray:
        loop = asyncio.get_running_loop()
        data = bytearray(size)
        view = memoryview(data)
        while view:
            count = await loop.sock_recv_into(self._socket, view)
            if not count:
                raise EOFError("the worker process closed its end")
            view = view[count:]
        return data

    def usable(self) -> bool:
        """Whether an idle process is still there, and silent."""
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def stop(self) -> None:
        """Kill the process with its group; whoever talks to it hears the end of the conversation."""
        if self._process.returncode is None:  # otherwise the ID may belong to someone else by now
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def kill(self) -> None:
        """Kill the process with its group and hang up; nobody may be talking to it."""
        self.stop()
        self._hang_up()

    def forget(self) -> None:
        """Let go of a process that belongs to the parent of this one."""
        self._hang_up()
        self._process.returncode = 0  # not ours to wait for, and nothing to warn of when this is collected

    def _hang_up(self) -> None:
        self._socket.close()
        self._lifeline.close()

    def gone(self) -> bool:
        """Whether the process has ended; also frees what the system keeps of an ended one."""
        return self._process.poll() is not None

    def ending(self) -> str:
        """How the process ended, in words."""
        code = self._process.returncode
        if code is None or code == -signal.SIGKILL:
            return "killed, or it closed its pipe"
        return f"signal {-code}" if code < 0 else f"exit code {code}"
