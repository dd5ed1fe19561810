"""Changes to a JSON file of a person: one member or item at a time; every other character stays, comments too.

The functions take and give the whole text, which may have comments and trailing commas.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from toolexec.config.formats import UnreadableError, parse_json
from toolexec.model.json_value import JSONValue

_BLANK: Final = re.compile(r"(?:[ \t\r\n]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_REST_OF_LINE: Final = re.compile(r"(?:[ \t]+|//[^\r\n]*|/\*[^\n]*?\*/)*")
_STRING: Final = re.compile(r'"(?:\\.|[^"\\])*"')
_WORD: Final = re.compile(r"[^\s,\[\]{}/]+")
_INDENT: Final = re.compile(r'^([ \t]+)["\[{]', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class _Part:
    """A member of an object or an item of a list: where it begins, where its value begins, and where that ends."""

    start: int
    value: int
    end: int
    key: str = ""


def set_member(text: str, path: Sequence[str], value: JSONValue) -> str:
    """Return the text with *value* at *path*; objects that are not there are added.

    Raises UnreadableError for a text that is not JSON, and where something on the path is not an object.
    """
    parse_json(text)
    at, seen = _after_blank(text, 0), 0
    while True:
        parts, close = _parts(text, at, "{", path[:seen])
        found = next((part for part in reversed(parts) if part.key == path[seen]), None)
        if found is None:
            for key in reversed(path[seen + 1 :]):
                value = {key: value}
            return _insert(text, at, parts, close, value, path[seen])
        seen += 1
        if seen == len(path):
            return text[: found.value] + _written(text, value, _indent_at(text, found.start)) + text[found.end :]
        at = found.value


def remove_member(text: str, path: Sequence[str]) -> str:
    """Return the text without the member at *path*; the same text where there is none. Raises as `set_member` does."""
    parse_json(text)
    at = _after_blank(text, 0)
    for seen, key in enumerate(path):
        parts, _ = _parts(text, at, "{", path[:seen])
        number = next((index for index in reversed(range(len(parts))) if parts[index].key == key), None)
        if number is None:
            return text
        if seen == len(path) - 1:
            return _without(text, parts, number)
        at = parts[number].value
    return text


def append_item(text: str, key: str, value: JSONValue) -> str:
    """Return the text with *value* at the end of the list *key* at the top; a list that is not there is added. Raises
    as `set_member` does."""
    found = _member(text, key)
    if found is None:
        return set_member(text, [key], [value])
    parts, close = _parts(text, found.value, "[", [key])
    return _insert(text, found.value, parts, close, value)


def remove_item(text: str, key: str, value: JSONValue) -> str:
    """Return the text without the items of the list *key* at the top that equal *value*. Raises as `set_member`
    does."""
    found = _member(text, key)
    if found is None:
        return text
    parts, _ = _parts(text, found.value, "[", [key])
    for number in reversed(range(len(parts))):
        if parse_json(text[parts[number].value : parts[number].end]).data == value:
            text = _without(text, parts, number)
            parts, _ = _parts(text, found.value, "[", [key])
    return text


def _member(text: str, key: str) -> _Part | None:
    parse_json(text)
    parts, _ = _parts(text, _after_blank(text, 0), "{", [])
    return next((part for part in reversed(parts) if part.key == key), None)


def _parts(text: str, at: int, opening: str, path: Sequence[str]) -> tuple[list[_Part], int]:
    """Return the parts of what opens at *at*, and where it closes."""
    if text[at : at + 1] != opening:
        kind = "an object" if opening == "{" else "a list"
        raise UnreadableError(f"{'.'.join(path) or 'it'} is not {kind}", text.count("\n", 0, at) + 1)
    parts: list[_Part] = []
    at = _after_blank(text, at + 1)
    while text[at] not in "}]":
        start, key = at, ""
        if opening == "{":
            end = _end(text, at)
            key = json.loads(text[at:end], strict=False)
            at = _after_blank(text, _after_blank(text, end) + 1)
        value, end = at, _end(text, at)
        parts.append(_Part(start, value, end, key))
        at = _after_blank(text, end)
        if text[at] == ",":
            at = _after_blank(text, at + 1)
    return parts, at


def _end(text: str, at: int) -> int:
    """Return where the value that begins at *at* ends; the text is known to be right."""
    if text[at] not in "{[":
        found = (_STRING if text[at] == '"' else _WORD).match(text, at)
        return found.end() if found is not None else at
    depth = 0
    while True:
        character = text[at]
        if character == '"':
            at = _end(text, at)
        else:
            depth += (character in "{[") - (character in "}]")
            at += 1
        if not depth:
            return at
        at = _after_blank(text, at)


def _after_blank(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return found.end() if found is not None else at


def _insert(
    text: str, opening: int, parts: Sequence[_Part], close: int, value: JSONValue, key: str | None = None
) -> str:
    """Return the text with one more part, in the style of those that are there."""
    name = f"{json.dumps(key, ensure_ascii=False)}: " if key is not None else ""
    newline = _newline(text)
    if not parts:
        outer = _indent_at(text, opening)
        inner = outer + _unit(text)
        before = text[:close].rstrip(" \t\r\n")
        return f"{before}{newline}{inner}{name}{_written(text, value, inner)}{newline}{outer}{text[close:]}"
    last = parts[-1]
    if not _begins_line(text, last.start):
        compact = json.dumps(value, ensure_ascii=False)
        return f"{text[: last.end]}, {name}{compact}{text[last.end :]}"
    inner = _indent_at(text, last.start)
    after, comma = _after_blank(text, last.end), ","
    if text[after] == ",":  # a trailing one
        at, head = after + 1, text[: after + 1]
    else:
        at, head, comma = last.end, f"{text[: last.end]},", ""
    rest = _REST_OF_LINE.match(text, at)
    end = rest.end() if rest is not None else at
    if end >= close:  # the closing bracket is on the same line
        return f"{head}{newline}{inner}{name}{_written(text, value, inner)}{comma}{text[at:]}"
    return f"{head}{text[at:end].rstrip()}{newline}{inner}{name}{_written(text, value, inner)}{comma}{text[end:]}"


def _without(text: str, parts: Sequence[_Part], number: int) -> str:
    """Return the text without a part, its comma, and its line where it has that for itself."""
    part = parts[number]
    after = _after_blank(text, part.end)
    end = after + 1 if text[after] == "," else part.end
    start = part.start
    if text[after] != "," and number:  # the comma before it goes
        before = text.index(",", _after_blank(text, parts[number - 1].end))
        text = f"{text[:before]}{text[before + 1 :]}"
        start, end = start - 1, end - 1
    if _begins_line(text, start):
        rest = _REST_OF_LINE.match(text, end)
        line_end = rest.end() if rest is not None else end
        if text.startswith(("\r\n", "\n"), line_end):
            return text[: text.rfind("\n", 0, start) + 1] + text[text.index("\n", line_end) + 1 :]
    return text[:start].rstrip(" \t") + text[end:]


def _written(text: str, value: JSONValue, indent: str) -> str:
    lines = json.dumps(value, ensure_ascii=False, indent=_unit(text)).split("\n")
    return f"{_newline(text)}{indent}".join(lines)


def _unit(text: str) -> str:
    found = _INDENT.search(text)
    return found[1] if found is not None else "  "


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _begins_line(text: str, at: int) -> bool:
    return not text[text.rfind("\n", 0, at) + 1 : at].strip(" \t")


def _indent_at(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]
