"""The tree of a Python program, also of one that is newer than the Python that reads it.

Since 3.12 the expressions of an f-string may have its own quotes, as `f"{row["id"]}"`. For an older Python the inner
ones are read as the other quotes, which changes no place in the text.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

_STRING: Final = re.compile(r"(?i)(?<![\w])([rbuf]{0,2})(\"\"\"|'''|\"|')")
_OTHER: Final = {'"': "'", "'": '"'}


def tree_of(code: str) -> ast.Module | None:
    """Return the tree of *code*, at whose top may be `await` and `return`; None where it cannot be read."""
    for text in (code, *_requoted(code)):
        try:
            return ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
    return None


def _requoted(code: str) -> Iterator[str]:
    """Yield *code* with other quotes for the strings in expressions of f-strings that have the f-string's own, and then
    without what is in f-strings."""
    found, blank, at = [*code], [*code], 0
    while (string := _STRING.search(code, at)) is not None:
        comment = code.find("#", at, string.start())
        if comment >= 0:
            at = (code.find("\n", comment) + 1) or len(code)
            continue
        is_template = "f" in string[1].lower()
        at = _end_of(code, string.end(), string[2], found, is_template=is_template)
        if is_template:
            for place in range(string.end(), at - len(string[2])):
                blank[place] = blank[place] if code[place] == "\n" else "_"
    if found != [*code]:
        yield "".join(found)
        yield "".join(blank)


def _end_of(code: str, at: int, quote: str, found: list[str], *, is_template: bool) -> int:
    """Return where a string ends; the quotes in its expressions are changed in *found*."""
    depth = 0
    while at < len(code):
        char = code[at]
        if char == "\\":
            at += 2
        elif depth and char in _OTHER:
            end = _end_of(code, at + 1, char, found, is_template=code[at - 1] in "fF")
            if char == quote and _OTHER[char] not in code[at:end]:
                found[at] = found[end - 1] = _OTHER[char]
            at = end
        elif not depth and code.startswith(quote, at):
            return at + len(quote)
        elif is_template and char in "{}":
            if not depth and code.startswith(char * 2, at):
                at += 2
                continue
            depth = max(depth + (1 if char == "{" else -1), 0)
            at += 1
        elif char == "\n" and len(quote) == 1:
            return at
        else:
            at += 1
    return at
