"""A machine of Firecracker's: its process in a jail, its console and log, and its channels over vsock."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, Literal

from toolexec.errors import SandboxUnavailableError
from toolexec.machines import pauses
from toolexec.sandbox import Child
from toolexec_microvms.child import ChildMachine
from toolexec_microvms.firecracker.api import FirecrackerAPI, connect_inside
from toolexec_microvms.firecracker.vsock import DialedStream, dial_vsock
from toolexec_microvms.jail import Jail, exit_code
from toolexec_microvms.machine import MachineEnd

API_SOCKET: Final = "api.socket"
VSOCK: Final = "vsock.socket"
LOG: Final = "log"
"""Names in the root directory of the jail, besides those of the files that it boots."""

_CONTROL: Final = 1024
_STDIO: Final = 1025
_TAIL: Final = 4000
_SOCKET_SECONDS: Final = 10.0
_PAUSE: Final = 0.002
_LONGEST_PAUSE: Final = 0.02
_GRACE: Final = 0.2
_CHUNK: Final = 1 << 16


class FirecrackerMachine(ChildMachine[DialedStream]):
    """A `Machine` whose VMM is started by *command* in the *jail*, with *root* as its root directory.

    With *template* the channel for stdio is connected only when it is used. Raises SandboxUnavailableError when the
    command cannot be started; the jail is the caller's then.
    """

    def __init__(self, jail: Jail, root: Path, command: Sequence[str], *, template: bool = False) -> None:
        self.root: Path = root
        """The root directory of its jail, as the host sees it."""
        self._jail = jail
        self._console = ""
        self._log: _LogPipe | None = None
        try:
            self._log = _LogPipe(root / LOG, jail)
            environment = {"PATH": os.environ.get("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")}
            child = Child(command, cwd="/", env=environment, on_output=self._print)
        except OSError as error:
            if self._log is not None:
                self._log.close()
            raise SandboxUnavailableError(f"the jailer cannot be started: {error.strerror or error}") from error
        control = DialedStream(partial(dial_vsock, root, VSOCK, _CONTROL), lazy=template)
        stdio = DialedStream(partial(dial_vsock, root, VSOCK, _STDIO), after=control, lazy=template)
        super().__init__(jail.id, child, jail.group, control, stdio)

    def said(self) -> str:
        """Implement `Machine.said`: the console and what the jailer wrote, then Firecracker's log."""
        if self._closing is None:
            self._child.drain()
        log = self._log.read() if self._log is not None else ""
        return "\n".join(part for part in (self._console.strip(), log.strip()) if part)

    async def connect_api(self) -> FirecrackerAPI:
        """Return a connection to its API, which must be closed, once it listens there.

        Raises SandboxUnavailableError when its process ends before, or after 10 seconds.
        """
        until = time.monotonic() + _SOCKET_SECONDS
        waits = pauses(_PAUSE, _LONGEST_PAUSE)
        while True:  # nothing reports a socket that is bound in another namespace
            try:
                return FirecrackerAPI(await connect_inside(self.root, API_SOCKET))
            except OSError as error:
                if self._ended.done():
                    raise machine_ended(await self.wait(), self.said()) from error
                if time.monotonic() > until:
                    why = f"its API did not appear within {_SOCKET_SECONDS:g} s: {self.said() or 'it wrote nothing'}"
                    raise SandboxUnavailableError(
                        f"Firecracker cannot be used: {why}", retryable=True, details={"reason": why}
                    ) from error
            await asyncio.wait({self._ended}, timeout=next(waits))

    async def explain(self, error: SandboxUnavailableError) -> SandboxUnavailableError:
        """Return the error for what its API could not do: the end of its process, where it did not say a reason."""
        answered = bool({"status", "corrupt"} & {*error.details})
        if not answered:
            await asyncio.wait({self._ended}, timeout=_GRACE)
        if self._ended.done() and not answered:
            return machine_ended(self._ended.result(), self.said())
        said = self.said()
        if not said:
            return error
        return SandboxUnavailableError(
            f"{error.message}; it wrote: {said[-500:]}", retryable=error.retryable, details=error.details
        )

    def _said_outside(self) -> str:
        self._child.drain()
        return self._console

    def _print(self, text: str, _: Literal["stdout", "stderr"]) -> None:
        self._console = (self._console + text)[-_TAIL:]

    def _exit_code(self, code: int) -> int:
        return exit_code(code, self._said_outside())

    def _notice_end(self) -> None:
        for channel in (self._control, self._stdio):
            channel.fail("the virtual machine has ended")

    async def _release(self) -> None:
        await self._stdio.aclose()
        await self._control.aclose()
        if self._log is not None:
            self._log.close()
        await asyncio.to_thread(self._jail.remove)


class _LogPipe:
    """A named pipe that Firecracker logs to: what it does not take is dropped there, so that no log fills a disk."""

    def __init__(self, path: Path, jail: Jail) -> None:
        os.mkfifo(path, 0o600)
        os.chown(path, jail.uid, jail.uid)
        self._descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._text = ""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._descriptor, self._take)

    def read(self) -> str:
        """Return the end of the log."""
        self._take()
        return self._text

    def close(self) -> None:
        """Close the pipe; twice is fine."""
        if self._descriptor >= 0:
            self._take()
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _take(self) -> None:
        if self._descriptor >= 0:
            with suppress(BlockingIOError):
                data = os.read(self._descriptor, _CHUNK)
                self._text = (self._text + data.decode("utf-8", "replace"))[-_TAIL:]


def machine_ended(end: MachineEnd, said: str) -> SandboxUnavailableError:
    """Return the error for a VMM that ended where it should run: a retry is safe, and of use where it was killed."""
    how = f"was killed by signal {-end.code}" if end.code is not None and end.code < 0 else f"ended with {end.code}"
    why = " (out of memory)" if end.oom else ""
    text = said.strip()[-1000:]
    return SandboxUnavailableError(
        f"Firecracker {how}{why}" + (f": {text}" if text else ""),
        retryable=end.code is None or end.code < 0,
        details={"reason": f"Firecracker {how}{why}", "exit_code": end.code},
    )
