"""Sizes of values as JSON, pieces of text that keep to them, and text that is not text for people."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from toolexec.errors import InvalidResultError
from toolexec.model.json_value import JSONDict

_HEAD_SHARE: Final = 0.6
_SHORTEST_MEDIA: Final = 200
_LOOKED_AT: Final = 4000
_BASE64: Final = re.compile(r"[A-Za-z0-9+/_\-\r\n]+={0,2}\s*", re.ASCII)
_HEX: Final = re.compile(r"(?:[0-9a-f\r\n]+|[0-9A-F\r\n]+)", re.ASCII)
_DATA_URL: Final = re.compile(r"data:([\w.+-]+/[\w.+-]+)?[;,]", re.ASCII)
_CONTROL: Final = re.compile(r"[\x00-\x08\x0e-\x1f\x7f\ufffd]")
_MAGIC: Final = {
    "iVBORw0KGg": "a PNG image",
    "/9j/": "a JPEG image",
    "R0lGOD": "a GIF image",
    "UklGR": "a WebP image or WAV audio",
    "JVBERi0": "a PDF document",
    "UEsDB": "a ZIP archive",
    "H4sI": "gzip data",
    "SUQz": "MP3 audio",
    "T2dnUw": "Ogg audio",
}
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str).encode


def encode(value: Any) -> str:
    """*value* as compact JSON; what JSON does not have is put down as text.

    Raises InvalidResultError for a value that contains itself, is nested too deep, or has a key or a number that cannot
    be written.
    """
    try:
        return _encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidResultError(f"the result cannot be written as JSON: {error}", op="normalize") from error


def size(value: Any) -> int:
    """Return the bytes of *value* as compact JSON in UTF-8; raises as `encode` does."""
    return _bytes(encode(value))


def end_within(text: str, start: int, room: int) -> int:
    """Return where to end a piece of *text* that begins at *start*, so that it takes at most *room* bytes within
    JSON."""
    low, high = start, min(len(text), start + max(room, 0))
    if _cost(text[low:high]) <= room:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if _cost(text[start:middle]) <= room:
            low = middle
        else:
            high = middle
    return low


def start_within(text: str, room: int) -> int:
    """Return where to begin the piece that ends *text*, so that it takes at most *room* bytes within JSON."""
    return len(text) - end_within(text[: -max(room, 0) - 1 : -1], 0, room)


def line_end(text: str, start: int, end: int) -> int:
    """*end*, moved back to the last end of a line if that takes no more than half of the piece away."""
    if end >= len(text):
        return end
    line = text.rfind("\n", start, end) + 1
    return line if line > (start + end) // 2 else end


def excerpt(text: str, room: int) -> JSONDict:
    """Return head and tail of a long text, cut at ends of lines, and what was cut between them; at most *room*
    bytes."""
    room -= 100 + 3 * len(str(len(text)))  # the names, and the numbers of the cut
    share = int(room * _HEAD_SHARE)
    head = line_end(text, 0, end_within(text, 0, share))
    tail = max(start_within(text, room - share), head)
    line = text.find("\n", tail, tail + (len(text) - tail) // 2) + 1
    tail = line or tail
    cut = {"offset": head, "characters": tail - head, "lines": text.count("\n", head, tail)}
    return {"head": text[:head], "cut": cut, "tail": text[tail:]}


def media_kind(text: str) -> str:
    """Return what a text looks like that is not text for people (`a PNG image`, `base64 data`); empty for one that
    is."""
    if len(text) < _SHORTEST_MEDIA:
        return ""
    start = text[:_LOOKED_AT]
    if found := _DATA_URL.match(start):
        return f"a data URL ({found[1] or 'text/plain'})"
    if len(_CONTROL.findall(start)) * 20 > len(start):
        return "binary data"
    if _HEX.fullmatch(start) and re.search("[0-9]", start) and re.search("[A-Fa-f]", start):
        return "hexadecimal data" if _HEX.fullmatch(text) else ""
    if not _BASE64.fullmatch(start) or not _BASE64.fullmatch(text):
        return ""
    known = next((kind for magic, kind in _MAGIC.items() if start.startswith(magic)), "")
    classes = sum(bool(re.search(pattern, start)) for pattern in ("[A-Z]", "[a-z]", "[0-9]"))
    return known or ("base64 data" if classes == 3 else "")


def _cost(text: str) -> int:
    return _bytes(_encode(text)) - 2


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
