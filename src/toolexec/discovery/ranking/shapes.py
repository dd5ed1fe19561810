"""What the values in a task say of the tools it needs: a path speaks of files, though the word is not there."""

from __future__ import annotations

import re
from typing import Final

_SHAPES: Final = {
    "file": r"(?<![^\s\"'(])(?:~?(?:/[\w.-]+){2,}|[\w-]{1,100}\.[a-z]{2,5})(?=[\s,.;:!?\"')]|$)",
    "email": r"[\w+-]@[\w-]{1,63}\.\w",
    "event": r"\b\d{4}-\d\d-\d\d\b",
}
"""What a path or the name of a file, an address and a date are about: one word that catalogues have for it."""


def shapes_in(text: str) -> list[str]:
    """Return a word for each kind of value in *text*.

    >>> shapes_in("Send /plans/2027.md to kim@northwind.example on 2026-12-07.")
    ['file', 'email', 'event']
    """
    return [word for word, pattern in _SHAPES.items() if re.search(pattern, text)]
