"""Words that count as the same word: plurals, verb forms, accents."""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from typing import Final

from toolexec.discovery.words import split_words


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


STOP_WORDS: Final = _set(
    """
    a about after all also am an and any are as at be been before being both but by can could did do does doing
    during each for from further had has have having he her here him his how i if in into is it its itself just let me
    might more most must my need needs no nor not now of on once only or other our ours out over own please same shall
    she should so some such than that the their theirs them then there these they this those through to too under until
    up upon us very want wants was we were what when where which while who whom whose why will with would you your
    """
)
"""English words that carry no meaning in a query or a description. Names keep theirs."""

_VOWELS: Final = frozenset("aeiouy")
# Nouns that look like verb forms.
_KEPT: Final = _set(
    "setting meeting billing shipping pricing building warning embed hundred ping king ring wing string spring"
)
_PAST: Final = (("ed", 3),)
_MADE: Final = (("ing", 3), ("ment", 4), ("ion", 4))
_UNDOUBLED: Final = frozenset("bdfgklmnprst")
_MAX_CJK_RUN: Final = 64


def stems_of(text: str) -> list[str]:
    """Return the stems of a text's words in order, stop words included.

    >>> stems_of("createIssues deployments_archived")
    ['creat', 'issu', 'deployment', 'archiv']
    """
    if text.isascii():
        return [stem(word) for word in split_words(text)]
    found: list[str] = []
    for word in split_words(_folded(text)):
        found.extend(_pairs(word) if _is_dense(word) else (stem(word),))
    return found


@lru_cache(maxsize=20_000)
def stem(word: str) -> str:
    """Return what a lower-case word has in common with its plural and its past: without those endings, nor a last `e`,
    nor a doubled last letter. Light: words that differ in more keep apart."""
    if len(word) < 4 or word in _KEPT:
        short_plural = len(word) == 3 and word[-1] == "s" and word[-2] not in "aeious"
        return word[:-1] if short_plural else word  # ids, prs, vms
    if word.endswith("s") and word[-2] not in "sui":
        word = _singular(word)
        if word in _KEPT:
            return word
    if word.endswith("ied") and len(word) > 4:
        return f"{word[:-3]}y"
    return _trimmed(_without(word, _PAST))


@lru_cache(maxsize=20_000)
def root(key: str) -> str:
    """Return what a stem has in common with those of the nouns and the other forms that are made from its verb:
    *deploy, deploying, deployment*; *create, creation*."""
    return key if key in _KEPT else _trimmed(_without(key, _MADE))


def _singular(word: str) -> str:
    """Return the S-stemmer of Harman, "How Effective Is Suffixing?", JASIS 42(1), 1991."""
    if word.endswith("ies"):
        return f"{word[:-3]}y" if len(word) > 4 else word[:-1]
    return word[:-2] if word.endswith(("sses", "xes", "zes", "ches", "shes")) else word[:-1]


def _without(word: str, endings: tuple[tuple[str, int], ...]) -> str:
    """Return the word without the first of these endings that it has, if enough is left for a word."""
    for ending, least in endings:
        if not word.endswith(ending):
            continue
        rest = word[: -len(ending)]
        if len(rest) >= least and _VOWELS.intersection(rest):
            odd = (ending == "ed" and rest[-1] == "e") or (ending == "ion" and rest[-1] not in "st")
            return word if odd else rest
    return word


def _trimmed(word: str) -> str:
    if len(word) > 4 and word[-1] == "e":
        word = word[:-1]
    if len(word) > 3 and word[-1] == word[-2] and word[-1] in _UNDOUBLED:
        word = word[:-1]
    return word


def _folded(text: str) -> str:
    """Compatible forms made one, and Latin letters without their accents."""
    parts = unicodedata.normalize("NFKD", text)
    return unicodedata.normalize("NFC", "".join(c for c in parts if not "\u0300" <= c <= "\u036f"))


def _is_dense(word: str) -> bool:
    """Return whether the script writes no blanks between words: Chinese, Japanese, Korean, Thai and neighbours."""
    first = word[0]
    return "\u2e80" <= first <= "\ud7ff" or "\u0e00" <= first <= "\u0eff" or "\uf900" <= first <= "\ufaff"


def _pairs(word: str) -> list[str]:
    """Return each two characters that follow each other, so that a part of a run of characters is found."""
    word = word[:_MAX_CJK_RUN]
    return [word] if len(word) < 3 else [word[i : i + 2] for i in range(len(word) - 1)]
