"""The value that a program prints, for programs that have no other way to give one."""

from __future__ import annotations

import json
from typing import Any, Final

_PREFIX: Final = "__OUT__:"
_KEY: Final = "__out"
_MAX_LINE: Final = 1 << 20


class MarkerScanner:
    """Listens to stdout for lines that give a value: `__OUT__:` and JSON (or any text), or `{"__out": …}`.

    The last such line wins. It is found even where the captured output was cut off before it. A line longer than a
    million characters is none.
    """

    def __init__(self) -> None:
        self.line: str | None = None
        """The winning line, as it was printed."""
        self.value: Any = None
        self._rest = ""
        self._long = False

    def feed(self, text: str) -> None:
        """Take a piece of stdout."""
        *lines, rest = text.split("\n")
        for line in lines:
            if not self._long:
                self._hear(self._rest + line)
            self._rest, self._long = "", False
        if self._long or len(self._rest) + len(rest) > _MAX_LINE:
            self._rest, self._long = "", True
        else:
            self._rest += rest

    def close(self) -> None:
        """End stdout; its last line may lack a line break."""
        if self._rest and not self._long:
            self._hear(self._rest)
        self._rest = ""

    def _hear(self, line: str) -> None:
        found = read_marker(line)
        if found is not None:
            self.line = line
            (self.value,) = found

    def without_marker(self, stdout: str) -> str:
        """Return *stdout* without the winning line."""
        if self.line is None:
            return stdout
        lines = stdout.split("\n")
        for i in range(len(lines) - 1, -1, -1):
            if lines[i] == self.line:
                del lines[i]
                break
        return "\n".join(lines)


def read_marker(line: str) -> tuple[Any] | None:
    """Return the value that *line* gives, in a tuple; None if it gives none."""
    text = line.strip()
    if text.startswith(_PREFIX):
        rest = text.removeprefix(_PREFIX).strip()
        try:
            return (json.loads(rest),)
        except (ValueError, RecursionError):
            return (rest,)
    if text.startswith("{") and text.endswith("}") and _KEY in text:
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            return None
        if isinstance(data, dict) and _KEY in data:
            return (data[_KEY],)
    return None
