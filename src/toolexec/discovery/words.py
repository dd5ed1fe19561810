"""Cut text and identifiers into the words that a search compares."""

from __future__ import annotations

import re

# Runs of Latin letters (a new one at each lower-to-upper step, so that `createIssue` and `HTTPServer` fall apart), of
# digits, or of letters of other scripts.
_UPPER, _LOWER = "A-ZÀ-ÖØ-Þ", "a-zß-öø-ɏ"
_WORD = re.compile(rf"[{_UPPER}]+(?![{_LOWER}])|[{_UPPER}]?[{_LOWER}]+|\d+|[^\W\d_{_UPPER}{_LOWER}]+")


def split_words(text: str) -> list[str]:
    """Lower-case words as they are written: split at blanks, punctuation, `_ - . :` and the humps of camelCase."""
    return [word.lower() for word in _WORD.findall(text)]


def words_of(text: str) -> list[str]:
    """Lower-case words: split at blanks, punctuation, `_ - . :` and the humps of camelCase; plurals become singular.

    >>> words_of("git_status readFiles HTTPServer v1.2")
    ['git', 'status', 'read', 'file', 'http', 'server', 'v', '1', '2']
    """
    return [_singular(word.lower()) for word in _WORD.findall(text)]


def _singular(word: str) -> str:
    """Return the S-stemmer of Harman, "How Effective Is Suffixing?", JASIS 42(1), 1991, which keeps to English
    plurals."""
    if len(word) < 4 or word[-1] != "s" or word[-2] in "sui":
        return word
    if word.endswith("ies"):
        return f"{word[:-3]}y"
    return word[:-2] if word.endswith(("sses", "xes", "zes", "ches", "shes")) else word[:-1]
