"""How strings are written in a workflow: escapes, the indentation of `\"\"\"` strings, and the way back."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final

_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_SIMPLE: Final = {
    '"': '"',
    "'": "'",
    "\\": "\\",
    "/": "/",
    "$": "$",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
}
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_UNSAFE: Final = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]")
_INSERT: Final = "\0"  # stands for an insert while the lines are shifted; the source cannot contain it


class EscapeError(Exception):
    """A backslash is followed by what it must not be; `index` is where in the raw string."""

    def __init__(self, index: int, message: str, suggestion: str) -> None:
        super().__init__(message)
        self.index = index
        self.message = message
        self.suggestion = suggestion


def cook(raw: str) -> str:
    r"""Return the string that is written as *raw*: JSON's escapes, `\'` and `\$`. Raises EscapeError."""
    if "\\" not in raw:
        return raw
    text = _ESCAPE.sub(_cooked, raw)
    if _SURROGATE.search(text) is None:
        return text
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        index = max(raw.lower().find("\\ud"), 0)
        raise EscapeError(index, "this is half of a character", r"write both halves, as in \ud83d\ude00") from None


def _cooked(found: re.Match[str]) -> str:
    if found[1] is not None:
        return chr(int(found[1], 16))
    text = _SIMPLE.get(found[2])
    if text is not None:
        return text
    if found[2] == "u":
        raise EscapeError(found.start(), r"`\u` needs four hexadecimal digits", r"write, for example, \u00e9")
    if found[2] == "x":
        raise EscapeError(found.start(), r"there is no escape `\x`", r"write \u00 and the two digits")
    if found[2] == "{":
        raise EscapeError(found.start(), r"there is no escape `\{`", r"a brace needs none; for a literal ${ write \${")
    shown = found[2] if found[2].isprintable() else "and a line break"
    raise EscapeError(found.start(), f"there is no escape `\\{shown}`", f"for a backslash write \\\\{shown}")


def dedent(parts: Sequence[str]) -> list[str]:
    r"""Return the pieces of a `\"\"\"` string, which have inserts between them, without their common indentation.

    The first line break is removed. A last line of blanks only is removed too, but its indentation counts.
    """
    first, *lines = _INSERT.join(parts).split("\n")
    blank_end = bool(lines) and not lines[-1].strip(" \t")
    counted = [line for line in lines if line.strip(" \t")] + (lines[-1:] if blank_end else [])
    common = _common_start([line[: len(line) - len(line.lstrip(" \t"))] for line in counted])
    lines = [line[len(common) :] for line in lines]
    if blank_end:
        lines[-1] = ""
    whole = lines if not first else [first, *lines]
    return "\n".join(whole).split(_INSERT)


def _common_start(strings: Sequence[str]) -> str:
    """Return what all begin with; that is what the first and the last in their order have in common."""
    if not strings:
        return ""
    low, high = min(strings), max(strings)
    return next((low[:index] for index, char in enumerate(low) if char != high[index]), low)


def escape(text: str) -> str:
    r"""Return *text* as it stands between double quotes on one line; `${` is escaped too."""
    quoted = json.dumps(text, ensure_ascii=False)[1:-1].replace("${", "\\${")
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", quoted) if _UNSAFE.search(quoted) else quoted
