"""Every word of the catalogue with its sign, and text as a string of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from toolexec.discovery.ranking.stems import STOP_WORDS, root, stem, stems_of
from toolexec.discovery.words import split_words

FIRST_SIGN: Final = 256
"""Characters below are left to frequencies, which share a string with those of words."""
MAX_WORDS: Final = 1_000_000
_MAX_KNOWN: Final = 20_000
_MAX_REMEMBERED: Final = 64
_MAX_WORD: Final = 64
_MAX_FORMS: Final = 4


class Vocabulary:
    """Assigns each word (by its stem) of a catalogue a sign, a single character from U+0100 up.

    A text then is a string of these characters, made by one dictionary look-up for each piece between blanks. At most a
    million words have a sign; words are cut at 64 characters. Not safe for use by several threads at once.
    """

    def __init__(self) -> None:
        self.signs: dict[str, str] = {}
        self.families: dict[str, str] = {}
        """For each root, the sign of every stem with it."""
        self.changes: int = 0
        """Grows when a word comes or goes."""
        self._stems: list[str] = []
        self._forms: list[tuple[str, ...]] = []
        self._free: list[str] = []
        self.derived: list[dict[Any, Any]] = []
        """What others remember by sign, to be emptied when a sign is given up."""
        self.telling: Mapping[str, str] = _Pieces(self, STOP_WORDS)
        """Gives the sign of any piece of text: none of a stop word, several of an identifier. New words get one."""
        self.every: Mapping[str, str] = _Pieces(self, frozenset())
        """The same, stop words included."""
        self.phrases: _Phrases = _Phrases(self.telling)
        """Gives those of all pieces of a phrase that several tools may have; `_` parts words, too. To be cleared when
        all tools have been read."""
        self.derived.append(self.phrases)

    def sign(self, key: str, form: str) -> str:
        """Return the sign of a stem, a new one if need be; empty when there is no room for it. *form* is the word as it
        was written, to show it to people."""
        sign = self.signs.get(key)
        if sign is None:
            if len(self.signs) >= MAX_WORDS:
                return ""
            if self._free:
                sign = self._free.pop()
                place = ord(sign) - FIRST_SIGN
                self._stems[place], self._forms[place] = key, (form,)
            else:
                sign = chr(len(self._stems) + FIRST_SIGN)
                self._stems.append(key)
                self._forms.append((form,))
            self._know(key, sign)
            self.changes += 1
        elif form not in (forms := self._forms[ord(sign) - FIRST_SIGN]) and len(forms) < _MAX_FORMS:
            self._forms[ord(sign) - FIRST_SIGN] = (*forms, form)
            self.changes += 1
        return sign

    def _know(self, key: str, sign: str) -> None:
        self.signs[key] = sign
        family = root(key)
        self.families[family] = self.families.get(family, "") + sign

    def stem_of(self, sign: str) -> str:
        """Return the stem with a sign."""
        return self._stems[ord(sign) - FIRST_SIGN]

    def form_of(self, sign: str) -> str:
        """Return the word with a sign, as it was first written."""
        return self._forms[ord(sign) - FIRST_SIGN][0]

    def forms_of(self, sign: str) -> tuple[str, ...]:
        """Return the word with a sign, in the first few ways that it was written."""
        return self._forms[ord(sign) - FIRST_SIGN]

    def forget(self, signs: Sequence[str]) -> None:
        """Give up each of these: no tool has its word any more."""
        for sign in signs:
            key = self.stem_of(sign)
            del self.signs[key]
            rest = self.families.pop(root(key)).replace(sign, "")
            if rest:
                self.families[root(key)] = rest
        self._free.extend(signs)
        for known in self.derived:
            known.clear()
        self.changes += 1

    def entries(self) -> list[tuple[str, ...] | None]:
        """For each sign in order, its stem and the forms of that; None for a sign that is free. `restore` takes it."""
        free = set(self._free)
        pairs = zip(self._stems, self._forms, strict=True)
        return [None if chr(place + FIRST_SIGN) in free else (key, *forms) for place, (key, forms) in enumerate(pairs)]

    def restore(self, entries: Sequence[Sequence[str] | None]) -> None:
        """Take over the words of another vocabulary, into one that has none yet."""
        for place, entry in enumerate(entries):
            sign = chr(place + FIRST_SIGN)
            if entry is None:
                self._free.append(sign)
            else:
                self._know(entry[0], sign)
            self._stems.append(entry[0] if entry else "")
            self._forms.append(tuple(entry[1:]) if entry else ())
        self.changes += 1

    def words_in(self, piece: str) -> list[tuple[str, str]]:
        """Return the words of a piece of text with their stems."""
        if piece.isalpha() and piece.islower() and piece.isascii():
            word = piece[:_MAX_WORD]
            return [(word, stem(word))]
        if not piece.isascii():
            return [(key[:_MAX_WORD], key[:_MAX_WORD]) for key in stems_of(piece)]
        return [(word, stem(word)) for word in [word[:_MAX_WORD] for word in split_words(piece)]]


class _Pieces(dict[str, str]):
    """For each piece of text that was met before, the sign of every word in it; others are computed."""

    def __init__(self, words: Vocabulary, stopped: frozenset[str]) -> None:
        super().__init__()
        self._words = words
        self._stopped = stopped
        words.derived.append(self)

    def __missing__(self, piece: str) -> str:
        words = self._words
        signs = "".join([words.sign(key, form) for form, key in words.words_in(piece) if form not in self._stopped])
        if len(piece) <= _MAX_REMEMBERED:
            if len(self) >= _MAX_KNOWN:
                self.clear()
            self[piece] = signs
        return signs


class _Phrases(dict[str, list[str]]):
    """Pieces of phrases that were met before."""

    def __init__(self, pieces: Mapping[str, str]) -> None:
        super().__init__()
        self._pieces = pieces

    def __missing__(self, text: str) -> list[str]:
        if len(self) >= _MAX_KNOWN:
            self.clear()
        found = self[text] = [*filter(None, map(self._pieces.__getitem__, text.replace("_", " ").split()))]
        return found
