"""TOML, YAML and JSON as people write them, each key with its line."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from json import JSONDecodeError, JSONDecoder
from typing import Any, Final, TypeAlias

from toolexec.errors import MissingExtraError
from toolexec.model.json_value import JSONDict, JSONValue
from toolexec.model.patterns import lazy_pattern

Place: TypeAlias = tuple[str | int, ...]
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

    data: JSONValue
    lines: Mapping[Place, int]
    twice: tuple[tuple[Place, int], ...] = field(default=())

    def line(self, path: Place) -> int | None:
        """Return the line of what is at *path*, or of the nearest thing around it that has one."""
        while path:
            found = self.lines.get(path)
            if found is not None:
                return found
            path = path[:-1]
        return None


# -- JSON, with comments and trailing commas ------------------------------------------------------------

_JSON_BLANK: Final = lazy_pattern(r"(?:[ \t\r\n]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_NUMBER: Final = lazy_pattern(r"-?(?:0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?")
_WORDS: Final = {"true": True, "false": False, "null": None}
_DECODER: Final = JSONDecoder()
_WORD: Final = lazy_pattern(r"[a-zA-Z]+")


def parse_json(text: str) -> Parsed:
    """Read JSON, with `//` and `/* */` comments and trailing commas.

    Of a key that is there twice the last one counts. Raises UnreadableError for what is not JSON, or nests too deeply.
    """
    return _JsonReader(text).read()


class _JsonReader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.lines: dict[Place, int] = {}
        self.twice: list[tuple[Place, int]] = []
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
        found = _JSON_BLANK.match(self.text, self.at)
        self.at = found.end() if found is not None else self.at
        if self.text.startswith("/*", self.at):
            raise self._wrong("a comment has no end")
        return self.text[self.at : self.at + 1]

    def _value(self, path: Place, depth: int) -> JSONValue:
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

    def _object(self, path: Place, depth: int) -> JSONDict:
        found: JSONDict = {}
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

    def _list(self, path: Place, depth: int) -> list[JSONValue]:
        found: list[JSONValue] = []
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


# -- TOML -----------------------------------------------------------------------------------------------

_AT_LINE: Final = lazy_pattern(r" \(at line (\d+), column \d+\)$")
_TOML_BLANK: Final = lazy_pattern(r"(?:[ \t\r\n]+|#[^\n]*)*")
_KEY: Final = lazy_pattern(r"[ \t]*(?:\"((?:\\.|[^\"\\\n])*)\"|'([^'\n]*)'|([A-Za-z0-9_-]+))[ \t]*(\.?)")
_STRING: Final = lazy_pattern(r'"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'', re.DOTALL)
_OTHER: Final = lazy_pattern(r"[^\s,\]}#][^,\]}#\n]*")


def parse_toml(text: str) -> Parsed:
    """Read TOML; raises UnreadableError for what is not TOML, or nests too deeply."""
    import tomllib

    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        where = _AT_LINE.search(str(error))
        raise UnreadableError(_AT_LINE.sub("", str(error)), int(where[1]) if where else None) from error
    return Parsed(data=data, lines=_TomlScanner(text.replace("\r\n", "\n")).scan())


class _TomlScanner:
    """Finds where the keys are, in a text that is known to be TOML."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.lines: dict[Place, int] = {}
        self._counts: dict[Place, int] = {}
        self._seen = (0, 1)

    def scan(self) -> dict[Place, int]:
        table: Place = ()
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
        found = _TOML_BLANK.match(self.text, self.at)
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

    def _header(self, *, many: bool) -> Place:
        line = self._line()
        path: Place = ()
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

    def _pair(self, table: Place, depth: int) -> None:
        line = self._line()
        path = table
        for part in self._key():
            path = (*path, part)
            self.lines.setdefault(path, line)
        self.at += 1
        self._value(path, depth)

    def _value(self, path: Place, depth: int) -> None:
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

    def _items(self, path: Place, depth: int) -> None:
        number = 0
        self.at += 1
        while self._skip() != "]":
            here = (*path, number)
            self.lines[here] = self._line()
            self._value(here, depth + 1)
            number += 1
            self.at += self._skip() == ","
        self.at += 1

    def _pairs(self, path: Place, depth: int) -> None:
        self.at += 1
        while self._skip() != "}":
            self._pair(path, depth + 1)
            self.at += self._skip() == ","
        self.at += 1


def _unquoted(text: str) -> JSONValue:
    import tomllib

    return next(iter(tomllib.loads(f'"{text}" = 0')))


# -- YAML without its surprises: no tags, no merge keys, no key twice ----------------------------------

_MAX_VALUES: Final = 200_000
_TAGS: Final = tuple(f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str", "timestamp"))


def parse_yaml(text: str) -> Parsed:
    """Read YAML into plain data.

    Raises UnreadableError for what is not YAML, has tags of its own, `<<`, several documents, keys that are not
    strings, nests too deeply, or becomes too large by its aliases; MissingExtraError without PyYAML.
    """
    try:
        import yaml
    except ImportError as error:
        raise MissingExtraError("serve", needed_for="reading YAML") from error
    loader: yaml.SafeLoader | None = None
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        return _YamlReader(loader).read(root) if root is not None else Parsed(data={}, lines={})
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = ", ".join(filter(None, (error.context, error.problem))) or "it cannot be read"
        raise UnreadableError(reason, mark.line + 1 if mark is not None else None) from error
    except (yaml.YAMLError, ValueError) as error:
        if isinstance(error, UnreadableError):
            raise
        raise UnreadableError("it has characters or values that YAML does not allow") from error
    finally:
        if loader is not None:
            loader.dispose()


class _YamlReader:
    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._values = 0
        self.lines: dict[Place, int] = {}
        self.twice: list[tuple[Place, int]] = []

    def read(self, root: Any) -> Parsed:
        return Parsed(data=self._value(root, (), 0), lines=self.lines, twice=tuple(self.twice))

    def _value(self, node: JSONValue, path: Place, depth: int) -> JSONValue:
        line = node.start_mark.line + 1
        self._values += 1
        if depth > MAX_DEPTH:
            raise UnreadableError(f"it nests more than {MAX_DEPTH} levels deep", line)
        if self._values > _MAX_VALUES:
            raise UnreadableError("its aliases make it too large", line)
        if node.id == "scalar":
            return self._scalar(node, line)
        if node.tag not in ("tag:yaml.org,2002:seq", "tag:yaml.org,2002:map"):
            raise UnreadableError(f"the tag {node.tag} is not allowed", line)
        if node.id == "sequence":
            return self._list(node, path, depth)
        return self._table(node, path, depth)

    def _scalar(self, node: JSONValue, line: int) -> JSONValue:
        if node.tag not in _TAGS:
            raise UnreadableError(f"the tag {node.tag} is not allowed", line)
        try:
            return self._loader.construct_object(node)
        except ValueError as error:  # a date that there is not
            raise UnreadableError("this is no value", line) from error

    def _list(self, node: JSONValue, path: Place, depth: int) -> list[JSONValue]:
        found: list[JSONValue] = []
        for number, item in enumerate(node.value):
            here = (*path, number)
            self.lines[here] = item.start_mark.line + 1
            found.append(self._value(item, here, depth + 1))
        return found

    def _table(self, node: JSONValue, path: Place, depth: int) -> JSONDict:
        found: JSONDict = {}
        for name, item in node.value:
            line = name.start_mark.line + 1
            if name.tag == "tag:yaml.org,2002:merge":
                raise UnreadableError("merge keys (<<) are not read; write the keys out", line)
            if name.id != "scalar" or name.tag != "tag:yaml.org,2002:str":
                raise UnreadableError("a key is not text; put it into quotes", line)
            here = (*path, name.value)
            if name.value in found:
                self.twice.append((here, line))
            self.lines[here] = line
            found[name.value] = self._value(item, here, depth + 1)
        return found
