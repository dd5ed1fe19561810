"""The best tools for weighted words: one by one where few have them, all at once by bit sets where many do."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Final, NamedTuple, TypeAlias, TypeVar

from toolexec.discovery.ranking.planes import (
    Levels,
    Member,
    Tiers,
    WordPlanes,
    add_planes,
    best_of,
    bits_of,
    build_planes,
    build_tiers,
    length_class,
    slots_of,
)
from toolexec.discovery.ranking.postings import Postings

Word: TypeAlias = Sequence[tuple[str, float]]
"""A word of a query: the sign of each word that stands for it, with a weight from 0 to 1."""
Scored: TypeAlias = tuple[float, int]
"""A score and a slot."""

_FEW_POSTINGS: Final = 256
_MANY_WANTED: Final = 200
_MANY_EQUAL: Final = 4000
_MAX_KEPT_BYTES: Final = 10 << 20
_RARE: Final = 512
"""One in so many tools has a word whose tiers are worth to be kept."""
_LARGE: Final = 30_000
"""From so many tools on words have coarse tiers at first. Those that made it necessary to look at more than
`_MANY_LOOKED_AT` tools one by one get fine ones when that has happened `_AGAIN` times: of 100,000 tools a frequent word
alone takes 4.7 ms with coarse tiers and 1.7 ms with fine ones, which take 6 ms to build."""
_AGAIN: Final = 2
_MANY_LOOKED_AT: Final = 500
_MINOR: Final = 0.3
_SOME_EQUAL: Final = 400
_MAX_KNOWN: Final = 256
_MAX_COSTLY: Final = 4096
_MAX_DRIFT: Final = 1.1
_SURE: Final = 1 + 1e-9


class Clause(NamedTuple):
    """A condition on tools: to have any of these marks (a sign each), or with *wanted* false, none of them."""

    marks: str
    wanted: bool = True


class Choice(NamedTuple):
    """Which tools may be in an answer: all clauses hold, and *accept*, if any, says yes to the slot. *bits*, if any,
    has the slots to which it does."""

    clauses: tuple[Clause, ...] = ()
    accept: Callable[[int], bool] | None = None
    bits: int | None = None


_factor = attrgetter("factor")

K = TypeVar("K")
V = TypeVar("V", Tiers, WordPlanes)


class _Kept(dict[K, V]):
    """Values within a bound of bytes; the oldest are given up first."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def keep(self, key: K, value: V) -> None:
        """Add a value, or put another in its place."""
        known = self.pop(key, None)
        self.bytes += value.size - (known.size if known is not None else 0)
        self[key] = value
        while self.bytes > _MAX_KEPT_BYTES and len(self) > 1:
            self.bytes -= self.pop(next(iter(self))).size

    def clear(self) -> None:
        """Give up all."""
        super().clear()
        self.bytes = 0


class Ranker:
    """Finds the best slots of `postings` by Okapi BM25, exactly. A word that counts once has a count of *unit*.

    Call `changed` for every slot that is put or taken. Not safe for use by several threads at once.
    """

    def __init__(self, postings: Postings, k1: float, b: float, unit: int) -> None:
        self.postings = postings
        self._k1 = k1
        self._b = b
        self._unit = unit
        self._flat = k1 * (1 - b) * unit  # as counts are in units, so is what is added to them
        self._classes = bytearray()
        self._tiers: _Kept[tuple[str, bool], Tiers] = _Kept()
        self._tiers_mean = 1.0
        self._coarse = self._fine = Levels(0.0, 1.0, fine=True)
        self._costly: Counter[str] = Counter()
        self._planes: _Kept[tuple[float | tuple[str, float], ...], WordPlanes] = _Kept()
        self._marks: dict[str, int] = {}
        self._known: dict[tuple[tuple[str, float], ...], list[Member]] = {}
        self._changed: set[int] = set()
        self._changed_bits = 0

    def changed(self, slot: int) -> None:
        """Take note that another tool, or none, is now in a slot."""
        if self._known:
            self._known.clear()
        kind = length_class(self.postings.lengths[slot])
        if slot == len(self._classes):
            self._classes.append(kind)
        else:
            self._classes[slot] = kind
        if not self._planes and not self._marks and not self._tiers:
            return
        self._changed.add(slot)
        self._changed_bits |= 1 << slot
        if len(self._changed) > max(64, len(self._classes) >> 9):
            self._drop()

    def changed_all(self) -> None:
        """Take note that every slot may have another tool, or none."""
        lengths = self.postings.lengths
        kinds = {length: length_class(length) for length in set(lengths)}
        self._classes[:] = bytes(map(kinds.__getitem__, lengths))
        self._drop()

    def _drop(self) -> None:
        self._known.clear()
        self._tiers.clear()
        self._planes.clear()
        self._marks.clear()
        self._changed.clear()
        self._changed_bits = 0

    # -- the best -----------------------------------------------------------------------------------------------

    def best(self, words: Sequence[Word], limit: int, choice: Choice, key: Callable[[int], str]) -> list[Scored]:
        """Return the *limit* best slots, by score and then by *key*; only those with any of the words."""
        groups = [members for word in words if (members := self._members(word))]
        if not groups or limit < 1:
            return []
        found: list[Scored] | None = None
        size = sum(len(member.postings) for members in groups for member in members)
        if size > _FEW_POSTINGS and limit <= _MANY_WANTED:
            found = self._by_planes(groups, limit, choice)
            if self._coarse is not self._fine and (found is None or len(found) > _MANY_LOOKED_AT):
                self._note_many(groups)
        if found is None:
            found = self._one_by_one(groups, choice)
        found.sort(reverse=True)
        if len(found) > limit:
            worst = found[limit - 1][0]
            end = limit
            while end < len(found) and found[end][0] == worst:
                end += 1
            del found[end:]
        if len({score for score, _ in found}) < len(found):
            found.sort(key=lambda item: (-item[0], key(item[1])))
        return found[:limit]

    def parts(self, words: Sequence[Word], slot: int) -> list[tuple[str, float]]:
        """For each word: the sign of the best of those that stand for it and what that adds to the score of a slot;
        ("", 0.0) where the slot has none."""
        norm = self._norm(slot)
        postings = self.postings
        found: list[tuple[str, float]] = []
        for word in words:
            best = ("", 0.0)
            for member in self._members(word):
                count = postings.units(slot, member.sign)
                gain = member.factor * count / (count + norm)
                if gain > best[1]:
                    best = (member.sign, gain)
            found.append(best)
        return found

    def gains(self, words: Sequence[Word], slots: Sequence[int]) -> dict[int, list[float]]:
        """Return what each word adds to the score of each of these slots."""
        held, groups = self.postings.held, [self._members(word) for word in words]
        found: dict[int, list[float]] = {}
        for slot in slots:
            text = held[slot]
            half = len(text) >> 1
            norm = self._norm(slot)
            row = found[slot] = []
            for members in groups:
                best = 0.0
                for sign, _, factor, _ in members:
                    if factor <= best:
                        break  # a member adds less than its factor, and the others have lower ones
                    place = text.find(sign, 0, half)
                    if place >= 0:
                        count = ord(text[half + place])
                        best = max(best, factor * count / (count + norm))
                row.append(best)
        return found

    def allows(self, slot: int, choice: Choice) -> bool:
        """Return whether a slot may be in an answer."""
        return self._holds(slot, choice.clauses) and (choice.accept is None or choice.accept(slot))

    def matching(self, words: Sequence[Word], choice: Choice) -> int:
        """Return the bits of all slots that have any of the words (all slots if there are no words) and may be in an
        answer; what *accept* would say is left out."""
        bits = 0
        for word in words:
            for sign, _ in word:
                bits |= self.having(sign)
        if not words:
            bits = bits_of([slot for slot, text in enumerate(self.postings.held) if text], len(self.postings.held))
        for clause in choice.clauses:
            having = 0
            for mark in clause.marks:
                having |= self.having(mark)
            bits &= having if clause.wanted else ~having
        return bits if choice.bits is None else bits & choice.bits

    def having(self, sign: str) -> int:
        """Return the bits of the slots that have a word or mark, as things are now."""
        return bits_of([posting >> 8 for posting in self.postings.of(sign)], len(self.postings.held))

    # -- scoring ------------------------------------------------------------------------------------------------

    def _members(self, word: Word) -> list[Member]:
        """Return those of a word that any tool has, the highest factor first; the same list until something changes."""
        name = tuple(word)
        found = self._known.get(name)
        if found is not None:
            return found
        postings, count = self.postings, self.postings.count
        found = []
        ceiling = math.inf
        for sign, weight in word:
            having = postings.of(sign)
            if having:
                rarity = math.log(1 + (count - len(having) + 0.5) / (len(having) + 0.5))
                if weight >= 1:
                    ceiling = min(ceiling, rarity)  # a rare synonym must not count for more than the word itself
                found.append(Member(sign, weight, min(rarity, ceiling) * weight * (self._k1 + 1), having))
        found.sort(key=_factor, reverse=True)
        if len(self._known) >= _MAX_KNOWN:
            self._known.clear()
        self._known[name] = found
        return found

    def _norm(self, slot: int) -> float:
        return self._flat + self._slope * self.postings.lengths[slot]

    @property
    def _slope(self) -> float:
        return self._k1 * self._b * self._unit / self.postings.mean_length

    def _holds(self, slot: int, clauses: Sequence[Clause]) -> bool:
        text = self.postings.held[slot]
        half = len(text) // 2
        return all(any(text.find(mark, 0, half) >= 0 for mark in clause.marks) is clause.wanted for clause in clauses)

    def _one_by_one(self, groups: Sequence[Sequence[Member]], choice: Choice) -> list[Scored]:
        lengths = self.postings.lengths
        flat, slope = self._flat, self._slope
        scores: dict[int, float] = {}
        for members in groups:
            best: dict[int, float] = {} if len(members) > 1 and scores else scores
            fresh = not scores
            for member in members:
                factor = member.factor
                for posting in member.postings:
                    slot = posting >> 8
                    count = posting & 255
                    gain = factor * count / (count + (flat + slope * lengths[slot]))
                    if best is scores and not fresh:
                        scores[slot] = scores.get(slot, 0.0) + gain
                    elif gain > best.get(slot, 0.0):
                        best[slot] = gain
            if best is not scores:
                for slot, gain in best.items():
                    scores[slot] = scores.get(slot, 0.0) + gain
        if choice.clauses or choice.accept:
            return [(score, slot) for slot, score in scores.items() if self.allows(slot, choice)]
        return [(score, slot) for slot, score in scores.items()]

    def _exact(self, groups: Sequence[Sequence[Member]], slots: Sequence[int]) -> list[Scored]:
        """Return the slots with their scores, without those that have none of the words."""
        held, lengths = self.postings.held, self.postings.lengths
        flat, slope = self._flat, self._slope
        found: list[Scored] = []
        for slot in slots:
            text = held[slot]
            half = len(text) >> 1
            norm = flat + slope * lengths[slot]
            score = 0.0
            for members in groups:
                best = 0.0
                for sign, _, factor, _ in members:
                    if factor <= best:
                        break  # a member adds less than its factor, and the others have lower ones
                    place = text.find(sign, 0, half)
                    if place >= 0:
                        count = ord(text[half + place])
                        gain = factor * count / (count + norm)
                        if gain > best:
                            best = gain
                score += best
            if score:
                found.append((score, slot))
        return found

    # -- bit sets -----------------------------------------------------------------------------------------------

    def _by_planes(self, groups: Sequence[Sequence[Member]], limit: int, choice: Choice) -> list[Scored] | None:
        """Return the *limit* best and some more, not in order; None when too many are equal for this to pay.

        What frequent words of little weight add is taken into account only where the best depends on it."""
        for least, most in ((_MINOR, _SOME_EQUAL), (0.0, _MANY_EQUAL)):
            found = self._attempt(groups, limit, choice, least, most)
            if found is not None:
                return found
        return None

    def _attempt(
        self, groups: Sequence[Sequence[Member]], limit: int, choice: Choice, least: float, most: int
    ) -> list[Scored] | None:
        ready = [self._ready(members, least) for members in groups]
        lowest = min(planes.exponent for planes, _ in ready)
        total: list[int] = []
        for planes, _ in ready:
            add_planes(total, planes.planes, planes.exponent - lowest)
        unit = 2.0**lowest * max(drift for _, drift in ready) * _SURE
        among = ((1 << len(self._classes)) - 1) & ~self._changed_bits
        for clause in choice.clauses:
            having = 0
            for mark in clause.marks:
                having |= self._marked(mark)
            among &= having if clause.wanted else ~having
        if choice.bits is not None:
            among &= choice.bits
        found = self._exact(groups, [slot for slot in self._changed if self.allows(slot, choice)])
        wanted = limit + 6
        while True:
            sure, equal, bound = best_of(total, among, wanted)
            found += self._exact(groups, self._accepted(sure, choice))
            if not bound:
                return found
            if self._settled(found, limit, bound * unit):
                return found
            if equal.bit_count() > most:
                return None
            found += self._exact(groups, self._accepted(equal, choice))
            if self._settled(found, limit, (bound - 1) * unit):
                return found
            among &= ~(sure | equal)
            wanted = max(wanted, len(found) // 2)

    def _accepted(self, bits: int, choice: Choice) -> list[int]:
        slots = slots_of(bits)
        accept = choice.accept if choice.bits is None else None
        return slots if accept is None else [slot for slot in slots if accept(slot)]

    @staticmethod
    def _settled(found: list[Scored], limit: int, bound: float) -> bool:
        """Return whether nothing that was not looked at can be among the best, its score being at most *bound*."""
        if len(found) < limit:
            return False
        found.sort(reverse=True)
        return found[limit - 1][0] > bound

    def _ready(self, members: Sequence[Member], least: float) -> tuple[WordPlanes, float]:
        """Return the planes of a word, and the factor by which scores may have grown since they were built. Members
        that have many tools, and less than the share *least* of the highest factor, count in full for all tools."""
        factors = tuple([member.factor for member in members])
        fine = self._costly[members[0].sign] >= _AGAIN
        name = (least, fine, *[(member.sign, member.weight) for member in members])
        mean = self.postings.mean_length
        known = self._planes.get(name)
        if known is not None:
            drift = max(mean / known.mean_length, 1.0)
            if known.factors != factors:
                drift *= max(1.0, *[factor / then for factor, then in zip(factors, known.factors, strict=True)])
            if drift < _MAX_DRIFT:
                return known, drift
        drift = max(mean / self._tiers_mean, 1.0)
        if drift > _MAX_DRIFT or not self._tiers:
            self._tiers.clear()
            self._coarse = self._fine = Levels(self._flat, self._slope, fine=True)
            if len(self._classes) > _LARGE:
                self._coarse = Levels(self._flat, self._slope, fine=False)
            self._tiers_mean, drift = mean, 1.0
        least *= factors[0]
        many = len(self._classes) // _RARE
        tiers = [
            None if member.factor < least and len(member.postings) > many else self._tiers_of(member, fine)
            for member in members
        ]
        built = build_planes(factors, tiers, (1 << len(self._classes)) - 1, drift, mean)
        self._planes.keep(name, built)
        return built, 1.0

    def _note_many(self, groups: Sequence[Sequence[Member]]) -> None:
        """Count for these words that many tools had to be looked at one by one."""
        if len(self._costly) >= _MAX_COSTLY:
            self._costly.clear()
        for members in groups:
            self._costly[members[0].sign] += 1

    def _tiers_of(self, member: Member, fine: bool) -> Tiers:
        name = (member.sign, fine)
        tiers = self._tiers.get(name)
        if tiers is None:
            tiers = build_tiers(member.postings, self._classes, self._fine if fine else self._coarse)
            if len(member.postings) * _RARE > len(self._classes):
                self._tiers.keep(name, tiers)
        return tiers

    def _marked(self, mark: str) -> int:
        bits = self._marks.get(mark)
        if bits is None:
            if len(self._marks) >= 256:
                del self._marks[next(iter(self._marks))]
            bits = self._marks[mark] = self.having(mark)
        return bits
