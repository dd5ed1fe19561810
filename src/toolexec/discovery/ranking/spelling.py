"""What an unknown word was probably meant to be."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from typing import Final

from toolexec.discovery.ranking.postings import Postings
from toolexec.discovery.ranking.stems import stem

MARK: Final = "\0"
"""Starts the stems that are not words: marks of namespaces, tags and the like."""

_MIN_PREFIX: Final = 3
_MIN_WORD: Final = 4
_LONG_WORD: Final = 7
_MAX_WORD: Final = 40
_MAX_COMPLETIONS: Final = 6
_MAX_CORRECTIONS: Final = 3
_MAX_COMPARED: Final = 60
_MAX_SHORT: Final = 5
_MAX_SEEN: Final = 200_000


class Spelling:
    """Looks for the words of a catalogue that begin like, or are written almost like, one that it does not have."""

    def __init__(self, postings: Postings) -> None:
        self._postings = postings
        self._sorted: list[tuple[str, str]] = []
        self._sorted_at = -1
        self._grams: dict[str, list[str]] = {}
        self._grams_at = -1

    def completions(self, start: str, written: str = "") -> list[str]:
        """Return the sign of each word whose stem begins with *start* (3 characters or more), and that is written
        with *written* at the beginning, the most usual first, at most 6."""
        if len(start) < _MIN_PREFIX:
            return []
        ordered = self._in_order()
        found: list[str] = []
        for i in range(bisect_left(ordered, (start, "")), len(ordered)):
            word, sign = ordered[i]
            if not word.startswith(start) or len(found) > 1000:
                break
            if any(form.startswith(written) for form in self._postings.words.forms_of(sign)):
                found.append(sign)
        found.sort(key=lambda sign: (-len(self._postings.of(sign)), sign))
        return found[:_MAX_COMPLETIONS]

    def corrections(self, word: str) -> list[tuple[str, int, str]]:
        """Return the words that are one letter (in a word of 4 letters or more) or two (from 7 on) from *word*, with
        how many, and how the word then is written; only the closest, the most usual first, at most 3. A letter too
        many, too few, another, or two swapped."""
        if not _MIN_WORD <= len(word) <= _MAX_WORD:
            return []
        most = 1 if len(word) < _LONG_WORD else 2
        words, found = self._postings.words, list[tuple[int, bool, int, str, str]]()
        for sign in self._alike(word):
            apart, form = min((distance(word, form, most), form) for form in words.forms_of(sign))
            if apart <= most:
                found.append((apart, form[0] != word[0], -len(self._postings.of(sign)), sign, form))
        found.sort()
        return [(sign, apart, form) for apart, _, _, sign, form in found if apart == found[0][0]][:_MAX_CORRECTIONS]

    def shortened(self, word: str) -> list[str]:
        """Return the sign of each word that *word* may be short for: with all of its letters in this order, from the
        first to the last one (`mtg`: meeting), the most usual first, at most 3. For 2 to 5 letters."""
        if not 2 <= len(word) <= _MAX_SHORT or not word.isalpha():
            return []
        ordered = self._in_order()
        found: list[tuple[int, str]] = []
        for i in range(bisect_left(ordered, (word[0], "")), len(ordered)):
            key, sign = ordered[i]
            if key[0] != word[0]:
                break
            if len(key) > len(word) and any(_within(word, form) for form in self._postings.words.forms_of(sign)):
                found.append((-len(self._postings.of(sign)), sign))
        found.sort()
        return [sign for _, sign in found[:_MAX_CORRECTIONS]]

    def _alike(self, word: str) -> list[str]:
        grams = self._by_gram()
        shared: Counter[str] = Counter()
        for gram in set(_grams(word)):
            shared.update(grams.get(gram, ()))
        words = self._postings.words
        for i in range(len(word) - 1):  # two swapped letters may leave no three in common
            swapped = word[:i] + word[i + 1] + word[i] + word[i + 2 :]
            if (sign := words.signs.get(stem(swapped))) is not None:
                shared[sign] += len(word)
        scored = sorted(
            (-2 * count / (len(word) + len(words.form_of(sign)) + 2), sign) for sign, count in shared.items()
        )
        return [sign for _, sign in scored[:_MAX_COMPARED] if self._postings.of(sign)]

    def _in_order(self) -> list[tuple[str, str]]:
        words = self._postings.words
        if self._sorted_at != words.changes:
            self._sorted = sorted((key, sign) for key, sign in words.signs.items() if _is_word(key))
            self._sorted_at = words.changes
        return self._sorted

    def _by_gram(self) -> dict[str, list[str]]:
        words = self._postings.words
        if self._grams_at != words.changes:
            self._grams = {}
            for key, sign in list(words.signs.items())[:_MAX_SEEN]:
                if len(key) < _MAX_WORD and _is_word(key):
                    for gram in {gram for form in words.forms_of(sign) for gram in _grams(form)}:
                        self._grams.setdefault(gram, []).append(sign)
            self._grams_at = words.changes
        return self._grams


def _within(short: str, long: str) -> bool:
    """Return whether a word has all letters of a shorter one in order, the first and the last at its ends."""
    if len(long) > 3 * len(short) + 2 or long[-1] != short[-1]:
        return False
    letters = iter(long)
    return all(letter in letters for letter in short)


def _is_word(key: str) -> bool:
    return not key.startswith(MARK) and not key.isdigit()


def _grams(word: str) -> Iterator[str]:
    padded = f"^{word}$"
    return (padded[i : i + 3] for i in range(len(padded) - 2))


def distance(left: str, right: str, most: int) -> int:
    """Return how many letters to insert, delete, replace or swap with the next one to get from one word to the other;
    more than *most* may be any larger sign. Optimal string alignment: Damerau, "A Technique for Computer Detection and
    Correction of Spelling Errors", CACM 7(3), 1964."""
    if abs(len(left) - len(right)) > most:
        return most + 1
    before: list[int] = []
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        fresh = [i]
        for j, b in enumerate(right, 1):
            cost = min(row[j] + 1, fresh[j - 1] + 1, row[j - 1] + (a != b))
            if i > 1 and j > 1 and a == right[j - 2] and left[i - 2] == b:
                cost = min(cost, before[j - 2] + 1)
            fresh.append(cost)
        if min(fresh) > most:
            return most + 1
        before, row = row, fresh
    return row[-1]
