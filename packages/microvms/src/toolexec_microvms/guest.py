"""The host's side of the control channel of a machine, whose other side is hostile as soon as code runs there."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from toolexec.containers import JSONDict
from toolexec.errors import SandboxUnavailableError
from toolexec.machines import CONTROL_VERSION, MAX_LINE, Stream, settings_of
from toolexec.sandbox import ContainerSpec

_ENTROPY: Final = 128
_SAID: Final = 4096
_ANSWERS: Final = 16
"""How many questions may be open at once."""
_FIELDS: Final[Mapping[str, Mapping[str, tuple[type, ...]]]] = {
    "ready": {"protocol": (int,), "python": (str,), "kernel": (str,)},
    "loaded": {},
    "begun": {},
    "failed": {"reason": (str,)},
    "ended": {
        "code": (int, type(None)),
        "signal": (int, type(None)),
        "oom": (bool,),
        "pids": (bool,),
        "said": (str,),
    },
    "cpu": {"id": (int,), "seconds": (int, float, type(None))},
    "pong": {"id": (int,)},
}
"""What a guest may say, with the fields of each."""
_ORDER: Final = ("ready", "loaded", "begun", "ended")
"""What it says once, in this order; some may be left out, as a machine may be restored between them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestEnd:
    """How the program of a machine ended: its exit code or signal, whether the kernel of the machine killed something
    of it for its memory or refused it a process, and the end of its stderr."""

    code: int | None = None
    signal: int | None = None
    oom: bool = False
    pids: bool = False
    said: str = ""


class _BrokenError(Exception):
    """The guest broke the protocol; the message says how."""


class MachineControl:
    """Talks with the first process of a machine over *stream*. Used by one event loop; `aclose` ends it.

    Whatever a guest sends that it may not, or may not yet, ends the conversation: `broken` says why, and the machine is
    to be killed. It cannot say the same thing twice, and what it says takes a bounded amount of memory.
    """

    def __init__(self, stream: Stream) -> None:
        loop = asyncio.get_running_loop()
        self.broken = ""
        """How the guest broke the protocol; "" while it has not."""
        self.failed = ""
        """Why the program could not begin, as the guest says."""
        self.over: asyncio.Future[None] = loop.create_future()
        """Done when no more messages can come: the guest has ended, is gone, or broke the protocol."""
        self.end: GuestEnd | None = None
        """How the program in it ended; None if that was not reported."""
        self._stream = stream
        self._received: dict[str, asyncio.Future[JSONDict]] = {name: loop.create_future() for name in _ORDER}
        self._place = 0
        self._numbers = itertools.count(1)
        self._asked: dict[int, tuple[str, asyncio.Future[JSONDict]]] = {}
        self._writing = asyncio.Lock()
        self._reading = asyncio.create_task(self._read())

    async def ready(self) -> JSONDict:
        """Wait until the machine has booted, and return what it says of itself: `protocol`, `python`, `kernel`.

        Raises SandboxUnavailableError, as the other methods do, when that can never be.
        """
        said = await self._wait("ready")
        if said["protocol"] != CONTROL_VERSION:
            raise SandboxUnavailableError(
                f"the machine speaks version {said['protocol']} of the protocol, not {CONTROL_VERSION}; build its "
                "image again: toolexec image build --kind vm"
            )
        return said

    async def load(self, program: bytes, warm: Sequence[str], guest: JSONDict | None = None) -> None:
        """Have the guest loaded, up to where a `begin` is waited for.

        With *guest* (see `guest_ahead`) it is started as well, and no other one can begin then.
        """
        more: JSONDict = {"guest": guest} if guest is not None else {}
        await self._send("load", {"bytes": len(program), "warm": [*warm], **more}, program)
        await self._wait("loaded")

    async def begin(self, message: JSONDict) -> None:
        """Have the program begin; see `begin_message`. From then on the other channel is its stdin and stdout."""
        await self._send("begin", message)
        await self._wait("begun")

    async def cpu_seconds(self) -> float | None:
        """Return the CPU time that the program has used; None if the machine does not know."""
        seconds = (await self._ask("cpu", "cpu"))["seconds"]
        return None if seconds is None else float(seconds)

    async def ping(self) -> None:
        """Wait for an answer."""
        await self._ask("ping", "pong")

    async def aclose(self) -> None:
        """Stop listening; the stream is not closed."""
        self._reading.cancel()
        await asyncio.wait({self._reading})
        self._finish()

    async def _ask(self, name: str, answer: str) -> JSONDict:
        if len(self._asked) >= _ANSWERS:
            raise SandboxUnavailableError(f"the machine has not answered {_ANSWERS} questions")
        number = next(self._numbers)
        future: asyncio.Future[JSONDict] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer, future
        await self._send(name, {"id": number})
        if self.over.done():
            raise self._gone()
        return await future  # an answer that comes late is still allowed: the number stays

    async def _send(self, name: str, fields: JSONDict, raw: bytes = b"") -> None:
        line = json.dumps({name: fields}).encode() + b"\n"
        if len(line) > MAX_LINE:
            raise SandboxUnavailableError(f"the message {name} to the machine is too long")
        async with self._writing:
            try:
                await self._stream.write(line + raw)
            except OSError as error:
                raise self._gone() from error

    async def _wait(self, name: str) -> JSONDict:
        await asyncio.wait({self._received[name], self.over}, return_when=asyncio.FIRST_COMPLETED)
        if self._received[name].done():
            return self._received[name].result()
        raise self._gone()

    def _gone(self) -> SandboxUnavailableError:
        if self.broken:
            return SandboxUnavailableError(f"the machine broke the protocol: {self.broken}", details={"hostile": True})
        if self.failed:
            return SandboxUnavailableError(f"the machine cannot run the program: {self.failed}")
        return SandboxUnavailableError("the machine was gone before it answered", retryable=True)

    async def _read(self) -> None:
        data = b""
        try:
            while True:
                try:
                    part = await self._stream.read()
                except OSError:
                    part = b""
                if not part:
                    self._finish()
                    return
                data += part
                while (end := data.find(b"\n")) >= 0:
                    line, data = data[:end], data[end + 1 :]
                    self._take(line)
                if len(data) > MAX_LINE:
                    raise _BrokenError(f"a message of more than {MAX_LINE} bytes")
        except _BrokenError as error:
            self.broken = str(error)
            self._finish()

    def _take(self, line: bytes) -> None:
        """One message. Raises _BrokenError."""
        name, fields = _parse(line)
        if name == "failed":
            if self._received["begun"].done():
                raise _BrokenError("it failed after it had begun")
            self.failed = fields["reason"][:500] or "no reason"
            self._finish()
        elif name in ("cpu", "pong"):
            expected, future = self._asked.pop(fields["id"], ("", None))
            if future is None or expected != name:
                raise _BrokenError(f"an answer ({name}) to nothing")
            if not future.done():
                future.set_result(fields)
        elif self.end is not None or _ORDER.index(name) < self._place:
            raise _BrokenError(f"{name} out of turn")
        else:
            self._place = _ORDER.index(name) + 1
            self._received[name].set_result(fields)
            if name == "ended":
                said = fields["said"][-_SAID:]
                fields = {**fields, "said": said}
                self.end = GuestEnd(**{key: fields[key] for key in GuestEnd.__slots__})
                self._finish()

    def _finish(self) -> None:
        if not self.over.done():
            self.over.set_result(None)
        for _, future in self._asked.values():
            if not future.done():
                future.set_exception(self._gone())
                future.exception()  # it may be that no task waits any more
        self._asked.clear()


def begin_message(spec: ContainerSpec) -> JSONDict:
    """Return the message that has a machine run *spec*; with the time and random bytes, as those of a
    restored machine are old, and the same as in all others."""
    moment: JSONDict = {"time_ns": time.time_ns(), "entropy": base64.b64encode(os.urandom(_ENTROPY)).decode("ascii")}
    return _guest(spec) | moment


def guest_ahead(spec: ContainerSpec) -> JSONDict | None:
    """Return what a snapshot can have of the guest of *spec* already: all but the moment; None if it is not for Python.

    Other languages run in programs of their own, which gain little. A warm guest starts after the restore: it has the
    time, and what it runs to get warm is translated, and in memory, then: a run in software is eight times as quick.
    """
    settings = settings_of(spec.command)
    return _guest(spec) if settings is not None and settings.language == "python" and not settings.warm else None


def _guest(spec: ContainerSpec) -> JSONDict:
    resources, security = spec.resources, spec.security
    return {
        "command": [*spec.command],
        "env": {"PATH": "/usr/local/bin:/usr/bin:/bin", **spec.env},
        "work": spec.working_dir,
        "user": security.user,
        "tmpfs": {mount.target: mount.size_bytes for mount in spec.mounts if mount.type == "tmpfs"},
        "memory": resources.memory_bytes,
        "pids": resources.pids,
        "cpus": resources.cpus,
        "open_files": resources.open_files,
    }


def _parse(line: bytes) -> tuple[str, JSONDict]:
    if len(line) > MAX_LINE:
        raise _BrokenError(f"a message of more than {MAX_LINE} bytes")
    try:
        message: Any = json.loads(line, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise _BrokenError(f"not JSON: {line[:60]!r}") from error
    if not isinstance(message, dict) or len(message) != 1:
        raise _BrokenError(f"not a message: {line[:60]!r}")
    name, fields = next(iter(message.items()))
    if name not in _FIELDS or not isinstance(fields, dict) or fields.keys() != _FIELDS[name].keys():
        raise _BrokenError(f"not a message: {line[:60]!r}")
    for key, kinds in _FIELDS[name].items():
        if type(fields[key]) not in kinds:
            raise _BrokenError(f"{name} with a wrong {key}: {line[:60]!r}")
    return name, fields


def _refuse(constant: str) -> float:
    raise ValueError(constant)
