"""Several server processes behind one port: started, started again when they end, and ended together.

This process holds the port, and takes no connection itself. Each server process listens on it, has its own sandboxes,
keys and state, and is an incarnation like any other; all that they share is which of them there are.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from secrets import token_hex
from time import monotonic
from typing import Any, Final

from toolexec.errors import ConfigurationError
from toolexec.remote import RuntimeServerSettings, pauses
from toolexec_remote.server.member import write_message

logger: logging.Logger = logging.getLogger(__name__)
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 10.0
_STEADY: Final = 30.0
"""After how many seconds a process that ends is started again at once, whatever became of those before it."""
_FORMER: Final = 64
"""How many former incarnations of a process are known: a request for one goes to that which has its state."""
_LAST_SECONDS: Final = 5.0


class Supervisor:
    """Keeps `settings.processes` server processes, each started with *command* and a descriptor as its last argument.

    `run` does it; `end` and `reload` pass on what signals ask for. *ready* gets the endpoint, and the kinds of the
    sandboxes, once each process can be connected to.
    """

    def __init__(
        self, settings: RuntimeServerSettings, command: Sequence[str], ready: Callable[[str, str], None]
    ) -> None:
        self._settings = settings
        self._command = [*command]
        self._ready = ready
        self._token = token_hex(32)
        self._places = [_Place(number) for number in range(1, settings.processes + 1)]
        self._is_serving = False
        self._is_ending = False

    async def run(self, stop: asyncio.Event) -> int:
        """Serve until *stop* is set and all have ended; return the exit code: that of the first one that could not be
        started, or ended badly at the end. Raises ConfigurationError for an address that cannot be listened on, and
        where there are no Unix sockets; cancelling ends all at once."""
        if not hasattr(socket, "AF_UNIX") or os.name == "nt":
            raise ConfigurationError("several processes behind one port need Unix sockets, which this system lacks")
        bound = await self._bound()
        try:
            with tempfile.TemporaryDirectory(prefix="toolexec-runtime-", ignore_cleanup_errors=True) as directory:
                return await self._run(stop, [each.fileno() for each in bound.sockets], directory)
        finally:
            bound.close()

    async def _bound(self) -> asyncio.Server:
        host, port = self._settings.host, self._settings.port
        try:
            return await asyncio.get_running_loop().create_server(asyncio.Protocol, host, port, start_serving=False)
        except OSError as error:
            raise ConfigurationError(
                f"cannot listen on {host} port {port}: {error.strerror or error}; choose another one, or stop what "
                "uses it"
            ) from error

    async def _run(self, stop: asyncio.Event, sockets: list[int], directory: str) -> int:
        keeping = [asyncio.create_task(self._keep(place, sockets, directory)) for place in self._places]
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait([stopping, *keeping], return_when=asyncio.FIRST_COMPLETED)  # one that cannot be started
            self._end()
            await asyncio.wait(keeping)
        except asyncio.CancelledError:
            self._end()  # the second time: at once
            await asyncio.wait(keeping, timeout=_LAST_SECONDS)
            raise
        finally:
            stopping.cancel()
            for place in self._places:
                if place.process is not None and place.process.returncode is None:
                    place.process.kill()
            await asyncio.wait(keeping)
        return next((code for task in keeping if (code := task.result())), 0)

    def _end(self) -> None:
        self._is_ending = True
        for place in self._places:
            place.ending.set()
        self._send({"end": True})

    def reload(self) -> None:
        """Have all read their keys again."""
        self._send({"reload": True})

    def _send(self, message: dict[str, object]) -> None:
        for place in self._places:
            if place.writer is not None:
                write_message(place.writer, message)

    # -- one process --------------------------------------------------------------------------------------------------

    async def _keep(self, place: _Place, sockets: list[int], directory: str) -> int:
        """Start a process, and again when it ends; return its exit code when all end, or when it never served."""
        waits = pauses(_FIRST_PAUSE, _LONGEST_PAUSE, spread=True)
        while True:
            began = monotonic()
            code = await self._once(place, sockets, directory)
            self._publish()
            if self._is_ending or not place.has_served:
                return code
            if monotonic() - began > _STEADY:
                waits = pauses(_FIRST_PAUSE, _LONGEST_PAUSE, spread=True)
            pause = next(waits) if code else 0.0  # 0: it was asked to end, so that another one takes its place
            logger.warning("server process %d ended (%d); it is started again", place.number, code)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await place.ending.wait()
            if self._is_ending:
                return 0

    async def _once(self, place: _Place, sockets: list[int], directory: str) -> int:
        """Start a process, listen to it until it ends, and return its exit code."""
        ours, theirs = socket.socketpair()
        try:
            place.process = await asyncio.create_subprocess_exec(
                *self._command,
                str(theirs.fileno()),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), *sockets),
                start_new_session=True,  # Ctrl-C is for this process, which passes it on
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        reader, place.writer = await asyncio.open_unix_connection(sock=ours)
        try:
            write_message(
                place.writer,
                {
                    "number": place.number,
                    "count": len(self._places),
                    "sockets": sockets,
                    "directory": directory,
                    "token": self._token,
                },
            )
            self._publish()
            if self._is_ending:
                write_message(place.writer, {"end": True})
            with suppress(ConnectionError):
                while line := await reader.readline():
                    self._receive(place, json.loads(line))
            return await place.process.wait()
        finally:
            place.lose()

    def _receive(self, place: _Place, said: dict[str, Any]) -> None:
        place.said.update(said)
        if name := said.get("incarnation"):
            place.incarnations = [*place.incarnations[-_FORMER:], name]
            place.has_served = True
        self._publish()
        if not self._is_serving and all(each.has_served for each in self._places):
            self._is_serving = True
            self._ready(place.said["endpoint"], place.said["kinds"])

    def _publish(self) -> None:
        """Let each process know which ones there are."""
        there = {place.number: place.incarnations[-1] for place in self._places if "incarnation" in place.said}
        self._send(
            {
                "numbers": {name: place.number for place in self._places for name in place.incarnations},
                "there": there,
                "ready": [place.number for place in self._places if place.said.get("ready")],
            }
        )


class _Place:
    """One of the processes, whichever one it is at the time. All that it has said is in `said`."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.process: asyncio.subprocess.Process | None = None
        self.writer: asyncio.StreamWriter | None = None
        self.said: dict[str, Any] = {}
        self.incarnations: list[str] = []
        self.has_served = False
        self.ending = asyncio.Event()

    def lose(self) -> None:
        """Note that the process has ended."""
        self.said = {}
        if self.writer is not None:
            self.writer.close()
            self.writer = None
