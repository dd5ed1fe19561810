"""What a file says, and on which line it says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

__all__ = ["MAX_DEPTH", "Parsed", "Path", "UnreadableError"]

Path: TypeAlias = tuple[str | int, ...]
"""The keys and numbers that lead to a value."""

MAX_DEPTH: Final = 60


class UnreadableError(ValueError):
    """A text is not what its format says; `line` is where, if that is known."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """The data of a text; `lines` has the line of each key and list item, `twice` the keys that are there again."""

    data: Any
    lines: Mapping[Path, int]
    twice: tuple[tuple[Path, int], ...] = field(default=())

    def line(self, path: Path) -> int | None:
        """The line of what is at *path*, or of the nearest thing around it that has one."""
        while path:
            found = self.lines.get(path)
            if found is not None:
                return found
            path = path[:-1]
        return None
