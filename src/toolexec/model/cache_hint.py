"""How long an answer may be kept, as the service that gave it says: transports write it, the cache reads it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, NamedTuple

from toolexec.model.json_value import JSONDict

CACHE_HINT: Final = "toolexec/cache"
"""The key of a reply's `meta` that says how long the answer may be kept: `{"max_age": seconds, "private": true}`."""


class CacheHint(NamedTuple):
    """For how many seconds at most an answer may be kept (0: not at all), and whether only for its caller."""

    max_age: float = math.inf
    private: bool = False

    def to_json(self) -> JSONDict:
        """Return it as JSON-able data, without what is not restricted."""
        data: JSONDict = {} if math.isinf(self.max_age) else {"max_age": self.max_age}
        return {**data, "private": True} if self.private else data


def read_hint(meta: Mapping[str, object]) -> CacheHint:
    """Return the hint in a reply's `meta`; one that cannot be read keeps the answer from being kept."""
    found = meta.get(CACHE_HINT)
    if found is None:
        return CacheHint()
    max_age = found.get("max_age", math.inf) if isinstance(found, Mapping) else 0.0
    if isinstance(max_age, bool) or not isinstance(max_age, int | float) or math.isnan(max_age):
        max_age = 0.0
    return CacheHint(max(float(max_age), 0.0), isinstance(found, Mapping) and found.get("private") is not None)


def hint_of_headers(headers: Mapping[str, str]) -> CacheHint:
    """Return what the headers of an HTTP response say, whose names are in lower case.

    `no-store`, `no-cache` and `Vary: *` keep the answer from being kept, as it cannot be checked again.
    """
    given = [part.strip().lower().partition("=") for part in headers.get("cache-control", "").split(",")]
    directives = {name.strip(): value.strip(' "') for name, _, value in given}
    is_private = "private" in directives
    if not directives.keys().isdisjoint(("no-store", "no-cache")) or headers.get("vary", "").strip() == "*":
        return CacheHint(0.0, is_private)
    if "max-age" not in directives:
        return CacheHint(private=is_private)
    return CacheHint(max(_seconds(directives["max-age"]) - _seconds(headers.get("age", "")), 0.0), is_private)


def _seconds(text: str) -> float:
    """Return a number of seconds; 0 for any other text."""
    return float(text) if text.isascii() and text.isdecimal() and len(text) < 12 else 0.0
