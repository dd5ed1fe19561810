r"""Show what hides in a string: control, invisible and reordering characters are written as escapes.

Names, descriptions, arguments and results come from anywhere. A terminal obeys escape sequences, a reader does not see
what is invisible, and a model reads both. So whatever is shown is escaped here, as `\x1b` or `\u202e`, and nothing is
removed: what was sent stays readable. Values for programs are not changed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final

from toolexec.model.patterns import lazy_pattern

_EMOJI: Final = (
    "\xa9\xae\u203c\u2049\u2122\u2139\u2194-\u21ff\u2300-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
)
_INVISIBLE: Final = (
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff9-\ufffb\ud800-\udfff\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_CONTROL: Final = "\x00-\x08\x0b-\x1f\x7f-\x9f"
# An emoji may be joined to another, or say that it is one: these two characters are a part of what is seen.
_PART_OF_EMOJI: Final = rf"(?<![{_EMOJI}]\ufe0f)(?!(?<=[0-9#*]\ufe0f)\u20e3)(?!(?<=[{_EMOJI}\ufe0f]\u200d)[{_EMOJI}])"
_HIDDEN: Final = lazy_pattern(f"[{_INVISIBLE}]{_PART_OF_EMOJI}")
_UNSAFE: Final = lazy_pattern(f"[{_CONTROL}{_INVISIBLE}]{_PART_OF_EMOJI}")


def has_hidden(text: str) -> bool:
    """Return whether *text* has characters that are not seen, or that change the order of what is seen."""
    return not text.isascii() and _HIDDEN.search(text) is not None


def without_hidden(text: str) -> str:
    """Return *text* without such characters, for a search in what a reader sees."""
    return text if text.isascii() else _HIDDEN.sub("", text)


def visible(text: str, limit: int = 0) -> str:
    """Return *text* with all that hides written as escapes; newlines and tabs stay. Cut at *limit* characters, with an
    ellipsis (0: not cut).
    """
    # What lies beyond the limit is not looked at: a string may have many megabytes.
    shown = _escaped(text[: limit + 1] if limit else text, _escape)
    return shown if not limit or len(shown) <= limit else f"{shown[: limit - 1].rstrip()}…"


def visible_line(text: str, limit: int = 0) -> str:
    """Return *text* as `visible` does, on one line."""
    start = text[: 4 * limit] if limit else text
    line = " ".join(_escaped(start, _escape).split())
    return line if not limit or (len(line) <= limit and start == text) else f"{line[: limit - 1].rstrip()}…"


def visible_json(value: Any, *, indent: int | None = None) -> str:
    """Return *value* as JSON, compact unless *indent* is given, with all that hides escaped: it still has exactly that
    value. What JSON does not have is written as a string.
    """
    separators = (",", ":") if indent is None else (",", ": ")
    text = json.dumps(value, ensure_ascii=False, separators=separators, indent=indent, default=str)
    return _escaped(text, _escape_json)


def _escaped(text: str, escape: Callable[[re.Match[str]], str]) -> str:
    if text.isascii() and text.isprintable():
        return text
    return _UNSAFE.sub(escape, text.replace("\r\n", "\n"))


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _escape_json(found: re.Match[str]) -> str:
    return json.dumps(found[0])[1:-1]
