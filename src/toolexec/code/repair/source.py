"""Read calls in the source of a program, in either language, and say what to write in their place."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_CLOSING: Final = {"(": ")", "[": "]", "{": "}"}


def instead(old: str, new: str) -> str:
    """Return the advice to write *new* where *old* stands."""
    return f"write `{new}` instead of `{old}`"


def calls_of(name: str, code: str) -> Iterator[tuple[str, str]]:
    """Yield each call of *name* in *code*: its text, and what is between its brackets."""
    for found in re.finditer(rf"(?<![\w.]){re.escape(name)}\(", code):
        end = end_of(code, found.end() - 1)
        if end:
            yield code[found.start() : end], code[found.end() : end - 1].strip()


def end_of(code: str, start: int) -> int:
    """Return the place behind the bracket that closes the one at *start*; 0 without one."""
    expected: list[str] = []
    quote = ""
    at = start
    while at < len(code):
        char = code[at]
        if quote:
            at += char == "\\"
            quote = "" if char == quote else quote
        elif char in "\"'`":
            quote = char
        elif char in _CLOSING:
            expected.append(_CLOSING[char])
        elif expected and char == expected[-1]:
            expected.pop()
            if not expected:
                return at + 1
        at += 1
    return 0


def ends_of(code: str) -> dict[int, int]:
    """Return where each bracket is that closes one, by the place of the one that opens it: each place is the one behind
    it. Those in strings are not looked at."""
    found: dict[int, int] = {}
    opened: list[tuple[str, int]] = []
    quote, at = "", 0
    while at < len(code):
        char = code[at]
        if quote:
            at += char == "\\"
            quote = "" if char == quote or (char == "\n" and quote != "`") else quote
        elif char in "\"'`":
            quote = char
        elif char in _CLOSING:
            opened.append((_CLOSING[char], at))
        elif opened and char == opened[-1][0]:
            found[opened.pop()[1]] = at + 1
        at += 1
    return found


def split(inner: str) -> list[str]:
    """Return the arguments of a call, one by one."""
    found: list[str] = []
    at = start = 0
    while at < len(inner):
        if inner[at] == ",":
            found.append(inner[start:at].strip())
            start = at + 1
        elif inner[at] in _CLOSING:
            at = max(end_of(inner, at) - 1, at)
        elif inner[at] in "\"'`":
            end = re.compile(rf"(?:\\.|[^\\])*?{inner[at]}", re.DOTALL).match(inner, at + 1)
            at = end.end() - 1 if end is not None else at
        at += 1
    return [each for each in (*found, inner[start:].strip()) if each]
