"""A query's words, each with the words of the catalogue that stand for it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from toolexec.discovery.explanation import MatchKind
from toolexec.discovery.ranking.english import COMMON, frequency
from toolexec.discovery.ranking.postings import Postings
from toolexec.discovery.ranking.shapes import shapes_in
from toolexec.discovery.ranking.spelling import Spelling
from toolexec.discovery.ranking.stems import STOP_WORDS, root, stem, stems_of
from toolexec.discovery.ranking.synonyms import PHRASES, synonyms_of
from toolexec.discovery.words import split_words

MAX_QUERY: Final = 2000
_MAX_WORDS: Final = 64
_MAX_KNOWN: Final = 256
_MIXED: Final = re.compile(r"[a-zA-Z]+(?:\d+|-)[a-zA-Z]+")
_SAME: Final = 0.95
_FAMILY: Final = 0.9
_PHRASE: Final = 0.75
_SHAPE: Final = 0.7
_SHORTENED: Final = 0.7
_MAX_GAP: Final = 3
_WORDY: Final = 5
_SHORT: Final = 5
_COMPOUND: Final = 0.9
_PART: Final = 3
_WHOLE_PART: Final = 4
_COMPLETION: Final = 0.7
_ONE_LETTER: Final = 0.9
_TWO_LETTERS: Final = 0.8
_VERBS: Final = frozenset(phrase.split()[0] for phrase in PHRASES)
_MUCH_RARER: Final = 4
"""By how much (as a binary logarithm) a real word is rarer than the one that it is taken for a misspelling of."""


@dataclass(slots=True)
class QueryWord:
    """One word of a query and the sign of each word that stands for it, with its weight, the exact one first."""

    text: str
    members: list[tuple[str, float]] = field(default_factory=list[tuple[str, float]])
    kinds: dict[str, MatchKind] = field(default_factory=dict[str, MatchKind])

    def add(self, sign: str, weight: float, kind: MatchKind) -> None:
        """Let another word stand for this one, unless it does already."""
        if sign not in self.kinds:
            self.members.append((sign, weight))
            self.kinds[sign] = kind


@dataclass(frozen=True, slots=True)
class Query:
    """The words of a query that the catalogue has something for, those that it has nothing for, what was probably
    meant (with misspelt words corrected), what might have been meant (with real words replaced, too, which none of the
    tools has), and whether the query was cut."""

    words: tuple[QueryWord, ...]
    unknown: tuple[str, ...] = ()
    meant: str | None = None
    maybe: str | None = None
    was_cut: bool = False


class Expander:
    """Reads queries. *synonyms* is the weight of words that mean the same (0: they do not count); *lenient* says
    whether unknown words are completed and corrected."""

    def __init__(self, postings: Postings, *, synonyms: float, lenient: bool) -> None:
        self._postings = postings
        self._signs = postings.words.signs
        self._synonyms = synonyms
        self._lenient = lenient
        self._spelling = Spelling(postings)
        self._known: dict[str, QueryWord] = {}

    def changed(self) -> None:
        """Take note that tools have come or gone."""
        self._known.clear()

    def read(self, text: str) -> Query:
        """Return the query's words."""
        was_cut = len(text) > MAX_QUERY
        words = _words(text[:MAX_QUERY])
        was_cut = was_cut or len(words) > _MAX_WORDS
        words = words[:_MAX_WORDS]
        found: list[QueryWord] = []
        unknown: list[str] = []
        meant: dict[str, str] = {}
        maybe: dict[str, str] = {}
        for i, (word, key) in enumerate(words):
            if word in PHRASES:
                made = QueryWord(word)
                self._phrase(made, PHRASES[word])
                self._exact(made, key)
            else:
                made = self._made(word, key)
            self._joined(made, words, i)
            if not made.members and self._lenient:
                self._guess(made, word, key, meant, maybe, wordy=len(words) > _WORDY)
            if made.members:
                found.append(made)
            else:
                unknown.append(word)
        corrected = " ".join(meant.get(word, word) for word, _ in words) if meant else None
        supposed = " ".join((meant | maybe).get(word, word) for word, _ in words) if maybe else corrected
        return Query(tuple(found), tuple(unknown), corrected, supposed, was_cut)

    def shaped(self, text: str, query: Query) -> list[QueryWord]:
        """Return words for what the values in a long query are, such as *file* for a path, unless it has them."""
        known = {word.text for word in query.words}
        found: list[QueryWord] = []
        for word in shapes_in(text[:MAX_QUERY]):
            if word not in known and (sign := self._sign(stem(word))):
                made = QueryWord(word)
                made.add(sign, _SHAPE, "word")
                for other, same in synonyms_of(stem(word)):
                    if (self._synonyms or same) and (sign := self._sign(other)):
                        made.add(sign, (_SAME if same else self._synonyms) * _SHAPE, "synonym")
                found.append(made)
        return found

    def _sign(self, key: str) -> str:
        sign = self._signs.get(key, "")
        return sign if sign and self._postings.of(sign) else ""

    def _made(self, word: str, key: str) -> QueryWord:
        known = self._known.get(word)
        if known is None:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            known = self._known[word] = QueryWord(word)
            self._exact(known, key)
        return QueryWord(word, known.members.copy(), known.kinds.copy())

    def _exact(self, made: QueryWord, key: str) -> None:
        if sign := self._sign(key):
            made.add(sign, 1.0, "word")
        for sign in self._postings.words.families.get(root(key), ""):
            if self._postings.of(sign):
                made.add(sign, _FAMILY, "word")
        for other, same in (*synonyms_of(key), *(synonyms_of(root(key)) if root(key) != key else ())):
            if (self._synonyms or same) and (sign := self._sign(other)):
                made.add(sign, _SAME if same else self._synonyms, "synonym")

    def _joined(self, made: QueryWord, words: Sequence[tuple[str, str]], i: int) -> None:
        """Two words that the catalogue writes as one."""
        for first in (i - 1, i):
            if 0 <= first < len(words) - 1 and (sign := self._sign(stem(words[first][0] + words[first + 1][0]))):
                made.add(sign, _COMPOUND, "compound")

    def _phrase(self, made: QueryWord, verb: str) -> None:
        """Words that together say what one verb says."""
        if sign := self._sign(stem(made.text.replace(" ", ""))):
            made.add(sign, 1.0, "compound")
        if sign := self._sign(stem(made.text.split()[0])):
            made.add(sign, 1.0, "word")
        if self._synonyms:
            for key in (stem(verb), *(other for other, _ in synonyms_of(stem(verb)))):
                if sign := self._sign(key):
                    made.add(sign, _PHRASE, "synonym")

    def _guess(
        self, made: QueryWord, word: str, key: str, meant: dict[str, str], maybe: dict[str, str], *, wordy: bool
    ) -> None:
        """Add something in place of a word that no tool has. In a *wordy* query, which speaks of more than a tool's own
        words, only plain spelling mistakes are corrected. An English word is not a mistake: *maybe* has what is like
        it.
        """
        level = frequency(word)
        shortest = _WHOLE_PART if level else _PART
        for start in range(shortest, len(word) - shortest + 1):
            left, right = self._sign(stem(word[:start])), self._sign(stem(word[start:]))
            if left and right:
                made.add(left, _COMPOUND, "compound")
                made.add(right, _COMPOUND, "compound")
                return
        corrections = self._spelling.corrections(word)
        if wordy:
            corrections = [found for found in corrections if found[1] == 1 and len(word) > _SHORT]
        if level and corrections:
            maybe[word] = corrections[0][2]
            corrections = [found for found in corrections if found[1] == 1 and _is_slip(level, found[2])]
        completions = self._spelling.completions(key, word if level else key) if not wordy else []
        if corrections and (corrections[0][1] == 1 or not completions):
            for sign, apart, _ in corrections:
                made.add(sign, _ONE_LETTER if apart == 1 else _TWO_LETTERS, "spelling")
            meant[word] = corrections[0][2]
            return
        for sign in completions:
            made.add(sign, _COMPLETION, "prefix")
        if not completions and not wordy and not level:
            for sign in self._spelling.shortened(word):
                made.add(sign, _SHORTENED, "prefix")


def word_count(text: str) -> int:
    """Return how many words a query has, each once, without stop words unless there is nothing else."""
    return len(_words(text[:MAX_QUERY]))


def _is_slip(level: int, other: str) -> bool:
    """Return whether a real word of this frequency is so much rarer than *other* that it was hardly meant:
    `calender`."""
    return level < COMMON and frequency(other) - level >= _MUCH_RARER


def _whole(piece: str) -> str:
    """Return a piece with digits or hyphens inside, such as `k8s` or `to-do`, as one word; empty for all others."""
    return piece.lower().replace("-", "") if _MIXED.fullmatch(piece) else ""


def _words(text: str) -> list[tuple[str, str]]:
    """Return the words of a query, each once, with their stems; without stop words, unless there is nothing else. Two
    words that say what a verb says count as one."""
    pairs: list[tuple[str, str]] = []
    for piece in text.split():
        if piece.isalpha() and piece.islower() and piece.isascii():
            pairs.append((piece, stem(piece)))
        elif not piece.isascii():
            pairs += [(key, key) for key in stems_of(piece)]
        elif synonyms_of(whole := _whole(piece)):
            pairs.append((whole, whole))
        else:
            pairs += [(word, stem(word)) for word in split_words(piece)]
    joined: dict[str, str] = {}
    skipped: set[int] = set()
    for i, (word, key) in enumerate(pairs):
        if i in skipped:
            continue
        ahead = range(i + 1, min(i + 1 + _MAX_GAP, len(pairs))) if word in _VERBS else ()
        particle = next((j for j in ahead if f"{word} {pairs[j][0]}" in PHRASES), None)
        if particle is None:
            joined.setdefault(word, key)
        else:
            phrase = f"{word} {pairs[particle][0]}"
            joined.setdefault(phrase, stem(phrase.replace(" ", "")))
            skipped.add(particle)
    telling = [(word, key) for word, key in joined.items() if word not in STOP_WORDS]
    return telling or list(joined.items())
