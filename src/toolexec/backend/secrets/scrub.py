"""Take known secrets out of what a backend says."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from toolexec.model.redaction import REDACTED
from toolexec.model.secret_forms import SHORTEST, base64_forms, written_forms

_LONG_LINE: Final = 16
_write = json.JSONEncoder(ensure_ascii=False).encode


class Scrubber:
    """Replaces *values*, in every spelling that `spellings` knows, by *mark*. False when there is nothing to replace;
    values of less than 6 characters are left alone."""

    __slots__ = ("_mark", "_strings", "_written")

    def __init__(self, values: Iterable[str], mark: str = REDACTED) -> None:
        found = {text for value in values for text in spellings(value)}
        self._strings = sorted(found, key=len, reverse=True)  # the longer first: it may contain the shorter
        self._written = [_write(text)[1:-1] for text in self._strings]
        self._mark = mark

    def __bool__(self) -> bool:
        return bool(self._strings)

    @property
    def longest(self) -> int:
        """The length of the longest text that is replaced, 0 when there is none."""
        return len(self._strings[0]) if self._strings else 0

    def text(self, text: str) -> str:
        """*text* without the values."""
        for secret in self._strings:
            if secret in text:
                text = text.replace(secret, self._mark)
        return text

    def value(self, value: Any) -> Any:
        """Return a JSON value without the values, in keys and strings at any depth; the same object where there are
        none.
        """
        written = _write(value)  # far quicker than looking at each part, and most replies have nothing to hide
        return self._clean(value) if any(text in written for text in self._written) else value

    def _clean(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self._clean(key): self._clean(item) for key, item in value.items()}
        return [self._clean(item) for item in value] if isinstance(value, list) else value


def spellings(value: str) -> set[str]:
    """*value* as it may turn up: in the forms of `secret_forms`; of one with several lines (a key in PEM) also its
    longer lines."""
    if len(value) < SHORTEST:
        return set()
    lines = {line for line in value.splitlines() if len(line) >= _LONG_LINE}
    found = {value.strip()} | lines | written_forms(value) | base64_forms(value)
    return {text for text in found if len(text) >= SHORTEST}
