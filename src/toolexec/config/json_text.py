"""JSON as people write it: with comments and trailing commas, each key with its line."""

from __future__ import annotations

import re
from bisect import bisect_right
from json import JSONDecodeError, JSONDecoder
from typing import Any, Final

from toolexec.config.positions import MAX_DEPTH, Parsed, Path, UnreadableError

__all__ = ["parse_json"]

_BLANK: Final = re.compile(r"(?:[ \t\r\n]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_NUMBER: Final = re.compile(r"-?(?:0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?")
_WORDS: Final = {"true": True, "false": False, "null": None}
_DECODER: Final = JSONDecoder()
_WORD: Final = re.compile(r"[a-zA-Z]+")


def parse_json(text: str) -> Parsed:
    """Read JSON, with `//` and `/* */` comments and trailing commas.

    Of a key that is there twice the last one counts. Raises UnreadableError for what is no JSON, or nests too deeply.
    """
    return _Reader(text).read()


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.lines: dict[Path, int] = {}
        self.twice: list[tuple[Path, int]] = []
        self._breaks = [match.start() for match in re.finditer("\n", text)]

    def read(self) -> Parsed:
        data = self._value((), 0)
        self._skip()
        if self.at < len(self.text):
            raise self._wrong("there is more after its end")
        return Parsed(data=data, lines=self.lines, twice=tuple(self.twice))

    def _line(self) -> int:
        return bisect_right(self._breaks, self.at - 1) + 1

    def _wrong(self, reason: str) -> UnreadableError:
        return UnreadableError(reason, self._line())

    def _skip(self) -> str:
        """Pass over blanks and comments; gives the next character, empty at the end."""
        found = _BLANK.match(self.text, self.at)
        self.at = found.end() if found is not None else self.at
        if self.text.startswith("/*", self.at):
            raise self._wrong("a comment has no end")
        return self.text[self.at : self.at + 1]

    def _value(self, path: Path, depth: int) -> Any:
        first = self._skip()
        if depth > MAX_DEPTH:
            raise self._wrong(f"it nests more than {MAX_DEPTH} levels deep")
        if first == "{":
            return self._object(path, depth)
        if first == "[":
            return self._list(path, depth)
        if first == '"':
            return self._string()
        word = _WORD.match(self.text, self.at)
        if word is not None and word[0] in _WORDS:
            self.at = word.end()
            return _WORDS[word[0]]
        number = _NUMBER.match(self.text, self.at)
        if number is None or number.end() - self.at > 400:
            raise self._wrong("a value is missing" if first in ("", ",", "}", "]") else "this is no value")
        self.at = number.end()
        return float(number[0]) if number[1] or number[2] else int(number[0])

    def _string(self) -> str:
        try:
            value, self.at = _DECODER.raw_decode(self.text, self.at)
        except JSONDecodeError as error:
            raise self._wrong(error.msg) from error
        return value

    def _object(self, path: Path, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        self.at += 1
        while self._skip() != "}":
            if self._skip() != '"':
                raise self._wrong("a key in quotes, or }, is missing")
            line = self._line()
            key = self._string()
            if self._skip() != ":":
                raise self._wrong("a : is missing after a key")
            self.at += 1
            here = (*path, key)
            if key in found:
                self.twice.append((here, line))
            self.lines[here] = line
            found[key] = self._value(here, depth + 1)
            self._separate("}")
        self.at += 1
        return found

    def _list(self, path: Path, depth: int) -> list[Any]:
        found: list[Any] = []
        self.at += 1
        while self._skip() != "]":
            here = (*path, len(found))
            self.lines[here] = self._line()
            found.append(self._value(here, depth + 1))
            self._separate("]")
        self.at += 1
        return found

    def _separate(self, end: str) -> None:
        following = self._skip()
        if following == ",":
            self.at += 1
        elif following != end:
            raise self._wrong(f"a comma or {end} is missing")
