"""Changes to a TOML file of a person: the keys of one table; every other character stays, comments too.

A table is found by its own header, `[a.b]`. One that is written in another form (inline, or with dotted keys) is left
to its author: the caller compares what the new text says with what it should say, and refuses any other change.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Final

from toolexec.config.template import toml_key, toml_value
from toolexec.model.json_value import JSONValue

_HEADER: Final = re.compile(r"[ \t]*\[(?!\[)([^\]\n]+)\][ \t]*(?:#[^\n]*)?\r?\n?")
_ANY_HEADER: Final = re.compile(r"[ \t]*\[")
_NAMED: Final = re.compile(r"[ \t]*([A-Za-z0-9_-]+|\"[^\"\n]*\"|'[^'\n]*')[ \t]*=")


def set_table(text: str, path: Sequence[str], values: Mapping[str, JSONValue]) -> str:
    """Return the text with *values* in the table at *path*, which is added at the end where it has no header.

    The other keys of the table stay. The text must be TOML.
    """
    lines, newline = text.splitlines(keepends=True), "\r\n" if "\r\n" in text else "\n"
    at = next((number for number, line in enumerate(lines) if _names(line, path)), None)
    if at is None:
        gap = newline if text and not text.endswith("\n") else ""
        head = f"{gap}{newline}" if text.strip() else ""
        body = [f"[{'.'.join(map(toml_key, path))}]", *(_line(key, value) for key, value in values.items())]
        return text + head + newline.join(body) + newline
    if not lines[at].endswith("\n"):
        lines[at] += newline
    missing = dict(values)
    number = at + 1
    while number < len(lines) and not _ANY_HEADER.match(lines[number]):
        length = _length(lines, number)
        key = _key(lines[number])
        if key in missing:
            value = missing.pop(key)
            if tomllib.loads("".join(lines[number : number + length])).get(key) != value:
                lines[number : number + length] = [_line(key, value) + newline]
                length = 1
        number += length
    lines[at + 1 : at + 1] = [_line(key, value) + newline for key, value in missing.items()]
    return "".join(lines)


def remove_table(text: str, path: Sequence[str]) -> str:
    """Return the text without the table at *path* and the tables in it; the same text where it has no header."""
    lines = text.splitlines(keepends=True)
    number = 0
    while number < len(lines):
        if not _names(lines[number], path, below=True):
            number += 1
            continue
        end = number + 1
        while end < len(lines) and not _ANY_HEADER.match(lines[end]):
            end += _length(lines, end)
        while end > number + 1 and lines[end - 1].strip()[:1] in ("", "#"):  # what is above the next one is of that
            end -= 1
        if number and not lines[number - 1].strip() and (end == len(lines) or not lines[end].strip()):
            number -= 1  # the blank line above it
        del lines[number:end]
    return "".join(lines)


def _names(line: str, path: Sequence[str], *, below: bool = False) -> bool:
    """Return whether a line is the header of the table, or with *below* of a table in it."""
    found = _HEADER.fullmatch(line)
    if found is None:
        return False
    try:
        table = tomllib.loads(f"[{found[1]}]")
    except tomllib.TOMLDecodeError:
        return False
    keys: list[str] = []
    while table:
        keys += table
        table = table[keys[-1]]
    return keys == [*path] or (below and keys[: len(path)] == [*path])


def _key(line: str) -> str:
    found = _NAMED.match(line)
    return found[1].strip("\"'") if found is not None else ""


def _length(lines: Sequence[str], at: int) -> int:
    """Return how many lines the value that begins at line *at* takes."""
    for length in range(1, len(lines) - at + 1):
        try:
            tomllib.loads("".join(lines[at : at + length]))
        except tomllib.TOMLDecodeError:
            continue
        return length
    return 1


def _line(key: str, value: JSONValue) -> str:
    return f"{toml_key(key)} = {toml_value(value)}"
