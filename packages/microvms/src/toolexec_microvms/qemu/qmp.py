"""QEMU's monitor: commands in JSON, one a line, over a socket that QEMU inherits."""

from __future__ import annotations

import itertools
import json
import socket
from typing import Any, Final

from toolexec.containers import JSONDict
from toolexec.errors import SandboxUnavailableError
from toolexec.machines import SocketStream

_LONGEST: Final = 1 << 18
_STATE: Final = "state"
_PROCESSOR: Final = ("type", "vendor", "family", "model", "stepping", "model-id", "feature-words")


class QmpClient:
    """Talks to the monitor of one QEMU over *connection*, which it takes over; used by one task. `aclose` must be
    called in the end.

    A QEMU that is broken out of may send anything: what is not expected ends the conversation.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._stream = SocketStream(connection)
        self._socket = connection
        self._buffer = b""
        self._numbers = itertools.count(1)
        self._migration = ""

    async def start(self) -> str:
        """Agree on the protocol and return the version of QEMU. Raises SandboxUnavailableError, as all methods do."""
        greeting = await self._receive()
        try:
            version = greeting["QMP"]["version"]["qemu"]
            found = f"{int(version['major'])}.{int(version['minor'])}.{int(version['micro'])}"
        except (KeyError, TypeError, ValueError) as error:
            raise _broken(f"its greeting is {str(greeting)[:100]}") from error
        await self.execute("qmp_capabilities")
        return found

    async def execute(self, command: str, *, file: int = -1, **arguments: Any) -> Any:
        """Give an order, with the descriptor *file* if that belongs to it, and return the answer."""
        number = next(self._numbers)
        message = json.dumps({"execute": command, "arguments": arguments, "id": number}).encode() + b"\n"
        try:
            if file >= 0:  # a short message, to one who waits for it: it fits
                socket.send_fds(self._socket, [message], [file])
            else:
                await self._stream.write(message)
        except OSError as error:
            raise _broken(f"it takes no {command}: {error.strerror}") from error
        while True:
            reply = await self._receive()
            if "event" in reply:
                self._take(reply)
            elif reply.get("id") != number:
                raise _broken(f"an answer to nothing: {str(reply)[:100]}")
            elif "return" in reply:
                return reply["return"]
            else:
                raise SandboxUnavailableError(f"QEMU refuses {command}: {_reason(reply)}")

    async def processor(self) -> JSONDict:
        """Return what the processors of the machine are, as its guest sees them: their model, and the words of their
        features, of which a host may have had to leave out some."""
        try:
            path = str((await self.execute("query-cpus-fast"))[0]["qom-path"])
        except (LookupError, TypeError) as error:
            raise _broken("it names no processor") from error
        return {name: await self.execute("qom-get", path=path, property=name) for name in _PROCESSOR}

    async def save(self, file: int) -> None:
        """Have the state of the machine, without its memory, written to the descriptor *file*; it is stopped then, and
        goes on by itself where it is restored."""
        await self._prepare(file)
        await self.execute("migrate", uri=f"fd:{_STATE}")
        await self._migrated("saved")

    async def restore(self, file: int) -> None:
        """Have a machine that waits for it read its state from *file*, and go on."""
        await self._prepare(file)
        await self.execute("migrate-incoming", uri=f"fd:{_STATE}")
        await self._migrated("restored")

    async def _prepare(self, file: int) -> None:
        await self.execute("getfd", file=file, fdname=_STATE)
        wanted = [{"capability": name, "state": True} for name in ("events", "x-ignore-shared")]
        await self.execute("migrate-set-capabilities", capabilities=wanted)
        self._migration = ""

    async def _migrated(self, what: str) -> None:
        """Wait until all is there."""
        while self._migration not in ("completed", "failed", "cancelled"):
            message = await self._receive()
            if "event" not in message:
                raise _broken(f"an answer to nothing: {str(message)[:100]}")
            self._take(message)
        if self._migration != "completed":
            found = await self.execute("query-migrate")
            why = found.get("error-desc", "") if isinstance(found, dict) else ""
            raise SandboxUnavailableError(f"the machine cannot be {what}: {str(why)[:300] or self._migration}")

    async def aclose(self) -> None:
        """Close the socket."""
        await self._stream.aclose()

    def _take(self, event: dict[str, Any]) -> None:
        data = event.get("data")
        if event["event"] == "MIGRATION" and isinstance(data, dict):
            self._migration = str(data.get("status", ""))

    async def _receive(self) -> dict[str, Any]:
        """Return the next message."""
        while b"\n" not in self._buffer:
            try:
                data = await self._stream.read()
            except OSError as error:
                raise _broken(f"the connection is lost: {error.strerror}") from error
            if not data:
                raise _broken("it has hung up")
            self._buffer += data
            if len(self._buffer) > _LONGEST:
                raise _broken("a message without an end")
        line, _, self._buffer = self._buffer.partition(b"\n")
        try:
            message = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise _broken(f"not JSON: {line[:100]!r}") from error
        if not isinstance(message, dict):
            raise _broken(f"not a message: {line[:100]!r}")
        return message


def _broken(why: str) -> SandboxUnavailableError:
    return SandboxUnavailableError(f"the monitor of QEMU cannot be used: {why}", retryable=True)


def _reason(reply: dict[str, Any]) -> str:
    error = reply.get("error")
    return str(error.get("desc", error) if isinstance(error, dict) else reply)[:300]
