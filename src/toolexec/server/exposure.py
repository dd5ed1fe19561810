"""Whether a server lists the tools of the catalogue or its own, where that is left to the server."""

from __future__ import annotations

from typing import Final

from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from toolexec.discovery.index import Index
from toolexec.exec.facade import Exec
from toolexec.server.direct import DirectTools, listing
from toolexec.server.tools.catalogue import json_bytes

_LEAST: Final = 60  # bytes of the shortest definition: what need not be measured to be too much
_ABSENT: Final = 1500  # bytes that a backend counts as whose tools are not known yet: some four tools


class AutoExposure:
    """Lists the tools of the catalogue where their definitions have *room*, in bytes; else a task would cost a model
    less with the server's own tools.

    Once the list was too long it stays that of the own tools: one that went back and forth would be read again and
    again. The choice is the same for all callers, whatever part of the catalogue each may see.
    """

    def __init__(self, ex: Exec, direct: DirectTools, room: int) -> None:
        self._ex = ex
        self._direct = direct
        self._room = room
        self._measured: tuple[Index | None, int, int] = (None, -1, 0)
        self._too_many = False
        self.was_direct: bool = False

    def is_small(self) -> bool:
        """Return whether all tools are few enough; a backend that is not there counts as four tools."""
        if self._too_many:
            return False
        absent = sum(status.enabled and not status.available for status in self._ex.backend_statuses())
        return self._size() + absent * _ABSENT <= self._room

    def choose(self) -> bool:
        """Return whether to list the tools of the catalogue now; what is too much once is so until the end. While there
        are none, as when no backend has started yet, it is not, and nothing is decided."""
        self._too_many = not self.is_small()
        chosen = not self._too_many and len(self._direct.index) > 0
        self.was_direct = self.was_direct or chosen
        return chosen

    def _size(self) -> int:
        """Return the bytes of all definitions; of very many a part that is too much already."""
        index = self._direct.index
        measured, version, size = self._measured
        if measured is not index or version != index.version:
            version, size = index.version, len(index) * _LEAST
            if size <= self._room:
                shown = MODERN_PROTOCOL_VERSIONS[-1]
                size = sum(json_bytes(listing(name, tool, shown)) for name, tool in self._direct.every())
            self._measured = (index, version, size)
        return size
