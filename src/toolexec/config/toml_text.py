"""TOML, each key with its line."""

from __future__ import annotations

import re
import tomllib
from typing import Any, Final

from toolexec.config.positions import MAX_DEPTH, Parsed, Path, UnreadableError

__all__ = ["parse_toml"]

_AT_LINE: Final = re.compile(r" \(at line (\d+), column \d+\)$")
_BLANK: Final = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_KEY: Final = re.compile(r"[ \t]*(?:\"((?:\\.|[^\"\\\n])*)\"|'([^'\n]*)'|([A-Za-z0-9_-]+))[ \t]*(\.?)")
_STRING: Final = re.compile(r'"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'', re.DOTALL)
_OTHER: Final = re.compile(r"[^\s,\]}#][^,\]}#\n]*")


def parse_toml(text: str) -> Parsed:
    """Read TOML; raises UnreadableError for what is none, or nests too deeply."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        where = _AT_LINE.search(str(error))
        raise UnreadableError(_AT_LINE.sub("", str(error)), int(where[1]) if where else None) from error
    return Parsed(data=data, lines=_Scanner(text.replace("\r\n", "\n")).scan())


class _Scanner:
    """Finds where the keys are, in a text that is known to be TOML."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.lines: dict[Path, int] = {}
        self._counts: dict[Path, int] = {}
        self._seen = (0, 1)

    def scan(self) -> dict[Path, int]:
        table: Path = ()
        while self._skip():
            if self.text.startswith("[[", self.at):
                self.at += 2
                table = self._header(many=True)
                self.at += 2
            elif self.text.startswith("[", self.at):
                self.at += 1
                table = self._header(many=False)
                self.at += 1
            else:
                self._pair(table, 0)
        return self.lines

    def _skip(self) -> str:
        found = _BLANK.match(self.text, self.at)
        self.at = found.end() if found is not None else self.at
        return self.text[self.at : self.at + 1]

    def _line(self) -> int:
        since, line = self._seen
        self._seen = self.at, line + self.text.count("\n", since, self.at)
        return self._seen[1]

    def _key(self) -> list[str]:
        parts: list[str] = []
        more = "."
        while more:
            match = _KEY.match(self.text, self.at)
            assert match is not None
            quoted, literal, bare, more = match.groups()
            parts.append(_unquoted(quoted) if quoted is not None else literal if literal is not None else bare)
            self.at = match.end()
        return parts

    def _header(self, *, many: bool) -> Path:
        line = self._line()
        path: Path = ()
        parts = self._key()
        for number, part in enumerate(parts):
            path = (*path, part)
            self.lines.setdefault(path, line)
            if number == len(parts) - 1 and many:
                self._counts[path] = self._counts.get(path, 0) + 1
            if path in self._counts:
                path = (*path, self._counts[path] - 1)
                self.lines.setdefault(path, line)
        if not many:
            self.lines[path] = line  # rather than where a table inside of it began
        return path

    def _pair(self, table: Path, depth: int) -> None:
        line = self._line()
        path = table
        for part in self._key():
            path = (*path, part)
            self.lines.setdefault(path, line)
        self.at += 1
        self._value(path, depth)

    def _value(self, path: Path, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise UnreadableError(f"it nests more than {MAX_DEPTH} levels deep", self._line())
        first = self._skip()
        if first == "[":
            self._items(path, depth)
        elif first == "{":
            self._pairs(path, depth)
        else:
            match = (_STRING if first in ('"', "'") else _OTHER).match(self.text, self.at)
            assert match is not None
            self.at = match.end()

    def _items(self, path: Path, depth: int) -> None:
        number = 0
        self.at += 1
        while self._skip() != "]":
            here = (*path, number)
            self.lines[here] = self._line()
            self._value(here, depth + 1)
            number += 1
            self.at += self._skip() == ","
        self.at += 1

    def _pairs(self, path: Path, depth: int) -> None:
        self.at += 1
        while self._skip() != "}":
            self._pair(path, depth + 1)
            self.at += self._skip() == ","
        self.at += 1


def _unquoted(text: str) -> Any:
    return next(iter(tomllib.loads(f'"{text}" = 0')))
