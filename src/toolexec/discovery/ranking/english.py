"""Which words are English, and how frequent they are: a list of 60,000 words, see `scripts/make_words.py`."""

from __future__ import annotations

import zlib
from functools import cache, lru_cache
from typing import Final

COMMON: Final = 20
"""The frequency of the twenty thousand most frequent words, and more."""

_LOWEST: Final = 15
_LONGER: Final = ord("a") - ord("A")  # here a longer word goes on


@lru_cache(maxsize=10_000)
def frequency(word: str) -> int:
    """Return the frequency of a lower-case word as a binary logarithm, from 15 (rare) to 34 (`the`); 0 for what is not
    an English word or a well-known name. The first call reads the list (3 ms, 0.6 MB)."""
    if not (word.isascii() and word.isalpha()):
        return 0
    words, start = _words(), f"\n{word}".encode()
    place = words.find(start)  # of the words that begin like this, the word itself is the first
    level = words[place + len(start)] - ord("A") if place >= 0 else _LONGER
    return _LOWEST + level if level < _LONGER else 0


@cache
def _words() -> bytes:
    """Return the words in order, each after a line break and before the capital letter of its frequency."""
    import pkgutil  # importlib.resources would import a dozen modules more

    data = pkgutil.get_data(__package__ or "", "english.z")
    assert data is not None
    return zlib.decompress(data)
