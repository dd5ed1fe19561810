"""Strings of strangers, made fit for people to read: unknown tools, servers and clients wrote them."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["one_line", "plain"]

_SEQUENCE: Final = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # OSC and its like: titles, links
    r"|\x1b[ -/]*[0-~]?"
)
_UNSAFE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)


def plain(text: str, limit: int) -> str:
    """Return the text without escape sequences, control characters (but newline and tab) and marks that reorder or
    hide, cut at *limit* characters.
    """
    # What lies far beyond the limit is not even looked at: a text may have many megabytes.
    cleaned = _UNSAFE.sub("", _SEQUENCE.sub("", text[: 4 * limit].replace("\r\n", "\n")))
    return cleaned if len(cleaned) <= limit and len(text) <= 4 * limit else f"{cleaned[: limit - 1].rstrip()}…"


def one_line(text: str, limit: int) -> str:
    """Return the text as `plain` has it, on one line."""
    return plain(" ".join(plain(text, 4 * limit).split()), limit)
