"""Cut text and identifiers into the words that a search compares."""

from __future__ import annotations

import re

__all__ = ["words_of"]

# Runs of Latin letters (a new one at each lower-to-upper step, so that `createIssue` and `HTTPServer` fall apart), of
# digits, or of letters of other scripts.
_UPPER, _LOWER = "A-ZÀ-ÖØ-Þ", "a-zß-öø-ɏ"
_WORD = re.compile(rf"[{_UPPER}]+(?![{_LOWER}])|[{_UPPER}]?[{_LOWER}]+|\d+|[^\W\d_{_UPPER}{_LOWER}]+")


def words_of(text: str) -> list[str]:
    """Lower-case words: split at blanks, punctuation, `_ - . :` and the humps of camelCase.

    >>> words_of("git_status readFile HTTPServer v1.2")
    ['git', 'status', 'read', 'file', 'http', 'server', 'v', '1', '2']
    """
    return [word.lower() for word in _WORD.findall(text)]
