"""What a server process knows of the others behind its port, and how it hands connections to them.

The process that started them all (see `supervisor`) holds a socket to each: it says which processes there are, and
learns of each which incarnation it is. Each listens on the port of all, and on a Unix socket for the others.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

from toolexec.errors import SandboxUnavailableError
from toolexec.remote import JSONObject
from toolexec_remote.homes import PROCESS_HEADER, home_of
from toolexec_remote.incarnation import INCARNATION_HEADER

logger: logging.Logger = logging.getLogger(__name__)
HERE_NUMBER: Final = 0
"""Stands for this process where the number of another one could be."""
_HEAD_END: Final = b"\r\n\r\n"
_MAX_HEAD: Final = 32 << 10
_MAX_LINE: Final = 1 << 20


class Member:
    """One of several processes of a server. Belongs to one event loop; `join` makes it.

    `on_end` is called when it is to end (twice: at once), `on_reload` when it is to read the keys again.
    """

    def __init__(self, first: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.number: int = first["number"]
        self.count: int = first["count"]
        self.token: str = first["token"]
        """What the processes know each other by, when they ask each other for what they count."""
        self.sockets = [_inherited(each) for each in first["sockets"]]
        """The port of all, bound already."""
        self.on_end: Callable[[], None] = lambda: None
        self.on_reload: Callable[[], None] = lambda: None
        self.is_ending: bool = False
        """Whether all of them are to end."""
        self._is_orphan = False
        self._directory = Path(first["directory"])
        self._writer = writer
        self._numbers: dict[str, int] = {}
        self._incarnations: dict[int, str] = {}
        self._ready: set[int] = set()
        self._reading = asyncio.create_task(self._read(reader))

    @classmethod
    async def join(cls, descriptor: int) -> Self:
        """Return the member that its starter speaks to over this descriptor."""
        inherited = _inherited(descriptor)
        reader, writer = await asyncio.open_unix_connection(sock=inherited, limit=_MAX_LINE)
        return cls(json.loads(await reader.readline()), reader, writer)

    # -- what is known of the others ----------------------------------------------------------------------------------

    @property
    def path(self) -> Path:
        """The Unix socket of this process."""
        return self.path_of(self.number)

    def path_of(self, number: int) -> Path:
        """Return the Unix socket of a process."""
        return self._directory / f"{number}.sock"

    @property
    def others(self) -> list[int]:
        """The numbers of the others that are there."""
        return [number for number in self._incarnations if number != self.number]

    @property
    def is_any_ready(self) -> bool:
        """Whether some process takes runs."""
        return bool(self._ready)

    def check_home(self, run: str) -> None:
        """Raise SandboxUnavailableError for the ID of a run by POST that another process has (`wrong_incarnation`)."""
        number = home_of(run, self.count)
        if number == self.number:
            return
        if (incarnation := self._incarnations.get(number)) is None:
            raise SandboxUnavailableError(
                "the server process that has the runs with this ID is being started again; try again later",
                retryable=True,
                details={"retry_after": 1.0},
            )
        raise SandboxUnavailableError(
            "another process of this server has the runs with this ID; sign for that one",
            code="wrong_incarnation",
            retryable=True,
            details={"incarnation": incarnation},
        )

    def number_for(self, head: bytes) -> int | None:
        """Return the number of the process that a request is for, by what has arrived of its connection; `HERE_NUMBER`
        for this one, None before that is known."""
        end = head.find(_HEAD_END)
        if end < 0:
            return None if len(head) < _MAX_HEAD else HERE_NUMBER
        names = dict[str, str]()
        for line in head[:end].split(b"\r\n")[1:]:
            name, _, value = line.decode("latin-1").partition(":")
            names[name.strip().lower()] = value.strip()
        wanted = names.get(PROCESS_HEADER.lower(), "")
        number = self._numbers.get(names.get(INCARNATION_HEADER.lower(), ""), HERE_NUMBER)
        if not number and wanted.isascii() and wanted.isdecimal():
            number = int(wanted[:6])
        return number if number != self.number and 1 <= number <= self.count else HERE_NUMBER

    # -- the process that started it ----------------------------------------------------------------------------------

    def report(self, **fields: object) -> None:
        """Say something of this process: `incarnation`, `endpoint`, `kinds` and `ready`."""
        write_message(self._writer, fields)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while line := await reader.readline():
                self._take(json.loads(line))
        except (ConnectionError, ValueError):
            logger.exception("the process that started this one says what makes no sense; this one ends")
        self._is_orphan = True
        self._end()

    def _end(self) -> None:
        self.is_ending = True
        self.on_end()

    def _take(self, message: dict[str, Any]) -> None:
        if "numbers" in message:
            self._numbers = message["numbers"]
            self._incarnations = {int(number): name for number, name in message["there"].items()}
            self._ready = {*message["ready"]}
        if message.get("end"):
            self._end()
        if message.get("reload"):
            self.on_reload()

    async def aclose(self) -> None:
        """Close what it has, and its Unix socket."""
        self._reading.cancel()
        await asyncio.wait({self._reading})
        self._writer.close()
        for each in self.sockets:
            each.close()
        with suppress(OSError):
            self.path.unlink()
        if self._is_orphan:  # the process that started it is gone: the last one removes the directory
            with suppress(OSError):
                self._directory.rmdir()


def write_message(writer: asyncio.StreamWriter, fields: JSONObject | dict[str, object]) -> None:
    """Send a message between a server process and the one that started it; one that is gone gets none."""
    if not writer.is_closing():
        writer.write(json.dumps(fields, separators=(",", ":")).encode() + b"\n")


def _inherited(descriptor: int) -> socket.socket:
    """Return a socket that was inherited, and that no sandbox inherits from here."""
    found = socket.socket(fileno=descriptor)
    found.set_inheritable(False)
    found.setblocking(False)
    return found
