"""Server-sent events, as a stream of bytes brings them. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from toolexec.errors import ProtocolError

_MAX_LINE: Final = 512 << 20


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event: its `type` (`message` unless it says another), its `data`, and the last ID that was given."""

    type: str
    data: str
    id: str


class EventReader:
    """Cuts a stream into events, as the standard of HTML describes it: one space after the colon is left out, lines may
    end in CR, LF or both, and an event that no empty line ends is none."""

    def __init__(self) -> None:
        self._rest = b""
        self._type = ""
        self._data: list[str] = []
        self._id = ""

    def feed(self, piece: bytes) -> list[ServerEvent]:
        """Return the events that *piece* completes; raises ProtocolError for a line without an end."""
        *lines, self._rest = _lines(self._rest + piece)
        if len(self._rest) > _MAX_LINE:
            raise ProtocolError("a line of an event stream is far too long")
        return [event for line in lines if (event := self._take(line.decode("utf-8", "replace"))) is not None]

    def _take(self, line: str) -> ServerEvent | None:
        if not line:
            return self._dispatch()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            self._type = value
        elif name == "data":
            self._data.append(value)
        elif name == "id" and "\0" not in value:
            self._id = value
        return None

    def _dispatch(self) -> ServerEvent | None:
        kind, data = self._type or "message", self._data
        self._type, self._data = "", []
        return ServerEvent(kind, "\n".join(data), self._id) if data else None


def _lines(data: bytes) -> list[bytes]:
    """Return the lines of *data*, and what is left after the last one; a CR at the very end may have its LF to come."""
    held = b"\r" if data.endswith(b"\r") else b""
    whole = data.removesuffix(b"\r").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    *lines, rest = whole.split(b"\n")
    return [*lines, rest + held]
