"""Cut text and identifiers into the words that a search compares."""

from __future__ import annotations

import re

__all__ = ["words_of"]

# Runs of letters (a new one at each lower-to-upper step, so that `createIssue` and `HTTPServer` fall apart) or digits.
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_A-Za-z]+")


def words_of(text: str) -> list[str]:
    """Lower-case words: split at blanks, punctuation, `_ - . :` and the humps of camelCase.

    >>> words_of("git_status readFile HTTPServer v1.2")
    ['git', 'status', 'read', 'file', 'http', 'server', 'v', '1', '2']
    """
    return [word.lower() for word in _WORD.findall(text)]
