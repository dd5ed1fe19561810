"""What a server asks for in `WWW-Authenticate`: the parameters of its Bearer challenge."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

_BEARER: Final = re.compile(r"(?:^|,)[ \t]*Bearer(?:[ \t]+|$)", re.IGNORECASE)
_PARAMETER: Final = re.compile(r'[ \t]*([A-Za-z0-9_.-]+)[ \t]*=[ \t]*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))[ \t]*(?:,|$)')
_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,200}")
_MOST: Final = 16_384


@dataclass(frozen=True, slots=True)
class Challenge:
    """`scopes` are those that the request needs, None where the server does not say; `resource_metadata` is where the
    server describes itself, and `error` why a token was refused; both may be empty."""

    scopes: tuple[str, ...] | None = None
    resource_metadata: str = ""
    error: str = ""


def read_challenge(headers: Iterable[str]) -> Challenge:
    """Return the first Bearer challenge in the values of `WWW-Authenticate`; an empty one where there is none."""
    for header in headers:
        text = header[:_MOST]
        begin = _BEARER.search(text)
        if begin is None:
            continue
        found: dict[str, str] = {}
        position = begin.end()
        while (part := _PARAMETER.match(text, position)) is not None:
            name, quoted, plain = part.groups()
            found.setdefault(name.lower(), plain if quoted is None else re.sub(r"\\(.)", r"\1", quoted))
            position = part.end()
        return Challenge(
            tuple(each for each in found["scope"].split() if _SCOPE.fullmatch(each)) if "scope" in found else None,
            found.get("resource_metadata", ""),
            found.get("error", ""),
        )
    return Challenge()
