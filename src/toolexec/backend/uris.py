"""URIs of resources that cannot be read, however they are spelled."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import unquote

from toolexec.backend.offers import fits_template

_MOST_TIMES: Final = 4
_BETWEEN: Final = re.compile(r"[/\\?#]")


def decoded(uri: str) -> str | None:
    """Return a URI without its percent-encoding, however often that was applied; None for one that could mean another
    one than it seems to: with a `.` or `..` in its path, or encoded too often.

    >>> decoded("file:///a%2520b"), decoded("file:///docs/%2e%2e/secret")
    ('file:///a b', None)
    """
    text = uri
    for _ in range(_MOST_TIMES):
        plain = unquote(text)
        if plain == text:
            return None if {".", ".."}.intersection(_BETWEEN.split(text)) else text
        text = plain
    return None


def is_closed(uri: str, closes: Callable[[str], bool], templates: Sequence[str]) -> bool:
    """Return whether *closes* says so of a URI, as it is written or without its encoding, or one of the *templates*
    fits it; so is one that could mean another one."""
    plain = decoded(uri)
    if plain is None:
        return True
    return any(closes(one) or any(fits_template(each, one) for each in templates) for one in {uri, plain})
