"""The forms in which a secret may turn up: as it is, percent-encoded, in JSON or Python text, in hex, within base64."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Final
from urllib.parse import quote, quote_plus

SHORTEST: Final = 6
"""Anything shorter (`1`, `true`, a port) says nothing, and replacing it would garble the text."""


def written_forms(value: str) -> set[str]:
    """Return *value* as it may be written: as it is, percent-encoded, as part of a JSON or Python text, in hex."""
    data = value.encode(errors="surrogatepass")
    encoded = {quote(data, safe=""), quote(data), quote_plus(data)}
    lower = {_lower_escapes(text) for text in encoded}
    text = {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], repr(value)[1:-1]}
    return {value, data.hex()} | encoded | lower | text


def base64_forms(value: str) -> set[str]:
    """Return what base64 makes of *value*: as a whole, and the characters that depend on it alone within longer data,
    such as a password in `user:password`; in both alphabets, and percent-encoded."""
    data = value.encode(errors="surrogatepass")
    found = {base64.b64encode(data).decode().rstrip("="), *_inside(data)}
    found |= {text.replace("+", "-").replace("/", "_") for text in found}
    found |= {quote(text, safe="") for text in found}
    return {text for text in found | {_lower_escapes(text) for text in found} if len(text) >= SHORTEST}


def _inside(data: bytes) -> Iterator[str]:
    """Yield the characters that depend on *data* alone, for each of its three places in a group of bytes."""
    for before in range(3):
        text = base64.b64encode(b"\0" * before + data).decode().rstrip("=")
        yield text[(before * 8 + 5) // 6 : (before + len(data)) * 8 // 6]


def _lower_escapes(text: str) -> str:
    head, *rest = text.split("%")
    return head + "".join(f"%{part[:2].lower()}{part[2:]}" for part in rest)
