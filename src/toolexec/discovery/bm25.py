"""Ranked search: Okapi BM25 over weighted fields, kept up to date change by change.

A word counts by its field (name 3, namespace 2, tags 2, parameters a half, other strings 1), as in BM25F with
one length for the whole document: Robertson, Zaragoza, Taylor, "Simple BM25 Extension to Multiple Weighted Fields",
CIKM 2004. Tools whose name or title has just the words of the query come before all others.
"""

from __future__ import annotations

import math
import threading
from bisect import bisect_left, insort
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from toolexec.discovery.explanation import Explanation, MatchKind
from toolexec.discovery.facets import Facets
from toolexec.discovery.many import FEW, are_long
from toolexec.discovery.ranking.documents import count_words, fields_of
from toolexec.discovery.ranking.exact import Exact, codes_of
from toolexec.discovery.ranking.expansion import MAX_QUERY, Expander, Query
from toolexec.discovery.ranking.marks import Marks, value_of
from toolexec.discovery.ranking.namespaces import (
    LOOKED_AT,
    LOOKUP,
    MAKER,
    MANY_TOOLS,
    Said,
    by_namespaces,
    looks_up,
    makes,
)
from toolexec.discovery.ranking.planes import bits_of, slots_of
from toolexec.discovery.ranking.postings import Postings
from toolexec.discovery.ranking.ranker import Choice, Ranker, Scored, Word
from toolexec.discovery.ranking.spelling import MARK
from toolexec.discovery.ranking.steps import LONG, clauses_of, is_task, spread
from toolexec.discovery.ranking.synonyms import synonyms_of
from toolexec.discovery.search import Accept, Hit, Hits
from toolexec.discovery.selection import Selection
from toolexec.errors import ConfigurationError
from toolexec.model.binding import Binding
from toolexec.model.settings import checked
from toolexec.model.tool import Tool

_MAX_BOOST = 100
_MAX_SETS = 16


@checked("BM25Config")
@dataclass(frozen=True, slots=True, kw_only=True)
class BM25Config:
    """How much a word counts in each field, and BM25's two knobs: `k1` (how fast repetition saturates) and `b` (how
    much long documents are held back). Boosts are rounded to eighths; one of 0 switches a field off.

    `synonyms` is the weight of words that mean the same as one of the query (0: they do not count). `lenient` says
    whether words that no tool has are completed and corrected; `exact_first`, whether tools whose name or title has
    just the words of the query come before all others (never with a `name_boost` of 0). Negative values, and boosts
    over 100, raise ConfigurationError.
    """

    name_boost: float = 3.0
    namespace_boost: float = 2.0
    tags_boost: float = 2.0
    text_boost: float = 1.0
    parameters_boost: float = 0.5
    k1: float = 1.2
    b: float = 0.75
    synonyms: float = 0.5
    lenient: bool = True
    exact_first: bool = True

    def __post_init__(self) -> None:
        boosts = ("name_boost", "namespace_boost", "tags_boost", "text_boost", "parameters_boost")
        most = {**dict.fromkeys(boosts, _MAX_BOOST), "k1": math.inf, "b": 1, "synonyms": 1}
        for name, limit in most.items():
            value = getattr(self, name)
            if not (math.isfinite(value) and 0 <= value <= limit):
                between = "0 or more" if limit == math.inf else f"between 0 and {limit}"
                raise ConfigurationError(f"BM25: {name} must be {between}, not {value!r}")


@checked("BM25Searcher")
class BM25Searcher:
    """Ranks tools by BM25. Any word of the query may match; more and rarer words rank higher. Where the query has just
    the words of a tool's name or title, that tool comes first, with the score of the best one added to its own.

    The index changes in place with each tool, at the next search. Words count by their stems; words that mean the
    same count less; a word that no tool has is completed, parted or corrected, and `Hits.did_you_mean` says how.
    """

    name = "bm25"
    deterministic = True

    def __init__(self, config: BM25Config | None = None) -> None:
        self.config: BM25Config = config or BM25Config()
        config = self.config
        boosts = (config.name_boost, config.namespace_boost, config.tags_boost, config.text_boost)
        self._fields, unit = fields_of((*boosts, config.parameters_boost))
        self._lock = threading.Lock()
        self._pending: deque[tuple[str, Tool | None, tuple[Binding, ...]]] = deque()
        self._postings = Postings()
        self._ranker = Ranker(self._postings, config.k1, config.b, unit)
        self._expander = Expander(self._postings, synonyms=config.synonyms, lenient=config.lenient)
        self._marks = Marks(self._postings.words)
        self._exact = Exact()
        self._exact_is_first = config.exact_first and config.name_boost > 0
        self._slots: dict[str, int] = {}
        self._sizes: Counter[str] = Counter()
        self._tools: list[Tool | str | None] = []  # an ID: the tool is in `_restored`
        self._restored: Mapping[str, Tool] = {}
        self._ordered: list[str] | None = None
        self._changes = 0
        self._sets: deque[tuple[frozenset[str], int, int]] = deque(maxlen=_MAX_SETS)
        self._needed: dict[str, tuple[list[int], list[int]]] = {}

    @property
    def blocks(self) -> bool:
        """Whether a search would first read the words of many tools, or wait for another thread that does."""
        pending = self._pending
        if len(pending) > FEW or self._lock.locked():
            return True
        return bool(pending) and are_long(tool for _, tool, _ in [*pending] if tool is not None)

    def add(self, tool: Tool, bindings: Sequence[Binding] = ()) -> None:
        """Take in a new tool, or the new form of a known one; its words are read at the next search."""
        self._pending.append((tool.id, tool, tuple(bindings)))

    def remove(self, tool_id: str) -> None:
        """Forget a tool; unknown IDs are ignored."""
        self._pending.append((tool_id, None, ()))

    def search(self, query: str, limit: int, accept: Accept | None = None) -> Hits:
        """Return the best hits; the first tools by ID for a query without words."""
        if limit < 1:
            return Hits()
        with self._lock:
            self._take_in()
            choice = self._choice(accept)
            limit = min(limit, self._postings.count)
            read = self._expander.read(query)
            if not read.words and not read.unknown and not query.strip():
                return Hits(self._first(limit, choice))
            words: list[Word] = [word.members for word in read.words]
            if is_task(query, len(words) + len(read.unknown)):
                best = self._of_task(query, read, limit, choice)
            else:
                best = self._ranker.best(words, limit, choice, self._id)
            best = self._exact_first(read, words, best, choice)[:limit]
            meant = read.meant if best else read.maybe
            found = Hits([Hit(self._id(slot), score) for score, slot in best], did_you_mean=meant)
            found.note = self._note(read, bool(found))
            return found

    def _of_task(self, query: str, read: Query, limit: int, choice: Choice) -> list[Scored]:
        """Return the best slots for a query that is a task, those of its namespaces first, and among these what looks
        things up there or makes them, with its words or without; where it is short, after the one that is best by its
        words, since it may be about that alone."""
        words = [*read.words, *self._expander.shaped(query, read)]
        members = [word.members for word in words]
        best = self._ranker.best(members, max(limit, LOOKED_AT), choice, self._id)
        said = by_namespaces(self._postings, words, best[:LOOKED_AT], self._namespace, self._sizes)
        scores = {slot: score + said.get(self._namespace(slot), Said()).gain for score, slot in best[:LOOKED_AT]}
        gains = self._ranker.gains(members, list(scores))
        for space, (gain, of_all) in said.items():
            lookups, makers = self._first_needed(space)
            for slots, share in ((lookups, LOOKUP), (makers if of_all else (), MAKER)):
                for slot in slots:
                    if slot in scores or self._ranker.allows(slot, choice):
                        scores[slot] = scores.get(slot, gain) + share * gain
        places = clauses_of(query[:MAX_QUERY])
        clauses = [places.get(word.text.partition(" ")[0], -1) for word in words]
        found = spread({slot: scores[slot] for slot in sorted(scores, key=self._id)}, gains, clauses)
        if found and len(read.words) + len(read.unknown) < LONG:
            first = best[0][1]
            found = [(found[0][0], first), *(item for item in found if item[1] != first)]
        lowest = found[-1][0] if found else 0.0
        return found + [(min(score, lowest), slot) for score, slot in best[LOOKED_AT:] if slot not in scores]

    def _first_needed(self, namespace: str) -> tuple[list[int], list[int]]:
        """Return the slots of the tools of a namespace that look things up, and of those that make them; none of a
        very large one."""
        found = self._needed.get(namespace)
        if found is None:
            found = [], []
            if self._sizes[namespace] <= MANY_TOOLS:
                for posting in self._postings.of(self._marks.of_namespace(namespace)):
                    name = self._name(posting >> 8)
                    if looks_up(name):
                        found[0].append(posting >> 8)
                    elif makes(name):
                        found[1].append(posting >> 8)
            self._needed[namespace] = found
        return found

    def _name(self, slot: int) -> str:
        return self._id(slot).partition(":")[2]

    def _namespace(self, slot: int) -> str:
        return _namespace_of(self._id(slot))

    def _exact_first(self, read: Query, words: Sequence[Word], best: list[Scored], choice: Choice) -> list[Scored]:
        """Return *best* with the tools before it whose name or title has just the words of the query."""
        codes = [word.members[0][0] for word in read.words if word.kinds[word.members[0][0]] == "word"]
        if not (best and self._exact_is_first and codes) or read.unknown or len(codes) < len(read.words):
            return best
        units, held = self._postings.units, self._postings.held
        named = {
            slot
            for slot in self._exact.slots("".join(codes))
            if slot < len(held) and all(units(slot, sign) for sign in codes) and self._ranker.allows(slot, choice)
        }
        if named == {slot for _, slot in best[: len(named)]}:
            return best
        top = best[0][0]
        first = [(top + sum(gain for _, gain in self._ranker.parts(words, slot)), slot) for slot in named]
        first.sort(key=lambda item: (-item[0], self._id(item[1])))
        return [*first, *(item for item in best if item[1] not in named)]

    def explain(self, query: str, tool_id: str) -> Explanation | None:
        """Return why *query* finds the tool; None when it does not, or the tool is unknown."""
        with self._lock:
            self._take_in()
            slot = self._slots.get(tool_id)
            tool = self._tools[slot] if slot is not None else None
            tool = self._restored.get(tool) if isinstance(tool, str) else tool
            if slot is None or tool is None:
                return None
            read = self._expander.read(query)
            parts = self._ranker.parts([word.members for word in read.words], slot)
            forms = [self._postings.words.form_of(sign) if sign else "" for sign, _ in parts]
            stems = [self._postings.words.stem_of(sign) if sign else "" for sign, _ in parts]
        from toolexec.discovery.ranking.explaining import explain_words

        gains = [gain for _, gain in parts]
        kinds: list[MatchKind] = [
            word.kinds.get(sign, "word") for word, (sign, _) in zip(read.words, parts, strict=True)
        ]
        return explain_words(tool, [word.text for word in read.words], kinds, forms, stems, gains)

    def facets(self, query: str, accept: Accept | None = None) -> Facets:
        """Return the counts of all tools that a search for *query* would find; of all tools for a query without
        words."""
        with self._lock:
            self._take_in()
            choice = self._choice(accept)
            read = self._expander.read(query)
            words: list[Word] = [word.members for word in read.words]
            if not words and query.strip():
                return Facets()
            bits = self._ranker.matching(words, choice)
            if choice.accept is not None:
                allowed = [slot for slot in slots_of(bits) if choice.accept(slot)]
                bits = bits_of(allowed, bits.bit_length())
            counts: dict[str, dict[str, int]] = {}
            for stem, sign in self._postings.words.signs.items():
                if stem.startswith(MARK):
                    kind, value = value_of(stem)
                    counts.setdefault(kind, {})[value] = (bits & self._ranker.having(sign)).bit_count()
            return Facets.of(bits.bit_count(), counts)

    def dump(self) -> bytes:
        """Return a snapshot of the index without its tools, for `load`."""
        from toolexec.discovery.ranking.snapshot import pack

        with self._lock:
            self._take_in()
            self._exact.settle()
            ids = list(map(self._id, range(len(self._tools))))
            return pack(self._postings, ids, self._fields, self._exact.keys)

    @classmethod
    def load(cls, data: bytes, tools: Mapping[str, Tool], config: BM25Config | None = None) -> BM25Searcher:
        """Return a searcher as it was when it made a snapshot, with *tools* by ID, which it keeps and asks for a tool
        when it has to look at one.

        Those of the snapshot that are not among them are left out; `add` those that it does not have, or that have
        changed since. Raises CatalogueError when the snapshot cannot be used: it is damaged, or made by another
        version, or with other boosts.
        """
        from toolexec.discovery.ranking.snapshot import unpack

        made = cls(config)
        synonyms_of("")  # reads the table of synonyms, so that the first search does not have to
        known = dict(zip(tools, tools, strict=True))  # so that each ID is there once, and not twice
        found, made._exact.keys = unpack(data, made._postings, made._fields)
        ids = list(map(known.get, found, found))
        made._ranker.changed_all()
        made._slots = dict(zip(ids, range(len(ids)), strict=True))
        made._slots.pop("", None)  # slots that are free
        made._sizes.update(map(_namespace_of, made._slots))
        made._tools = [*ids]
        made._restored = tools
        for tool_id in made._slots.keys() - known.keys():
            made._drop(tool_id)
        return made

    def _choice(self, accept: Accept | None) -> Choice:
        if accept is None:
            return Choice()
        if isinstance(accept, Selection):
            clauses, ids = self._marks.clauses(accept.filters), accept.ids
            if ids is None:
                return Choice(clauses)
            return Choice(clauses, lambda slot: self._id(slot) in ids, self._among(ids))
        return Choice((), lambda slot: accept(self._id(slot)))

    def _among(self, ids: frozenset[str]) -> int:
        """Return the bits of the slots that have these tools; kept, since a view asks for the same until something
        changes."""
        for known, changes, bits in self._sets:
            if known is ids and changes == self._changes:
                return bits
        slots = self._slots
        bits = bits_of([slot for tool_id in ids if (slot := slots.get(tool_id)) is not None], len(self._tools))
        self._sets.append((ids, self._changes, bits))
        return bits

    def _id(self, slot: int) -> str:
        tool = self._tools[slot]
        return tool if isinstance(tool, str) else tool.id if tool is not None else ""

    def _first(self, limit: int, choice: Choice) -> list[Hit]:
        if self._ordered is None:
            self._ordered = sorted(self._slots)
        found: list[Hit] = []
        for tool_id in self._ordered:
            if self._ranker.allows(self._slots[tool_id], choice):
                found.append(Hit(tool_id, 0.0))
                if len(found) == limit:
                    break
        return found

    def _note(self, read: Query, found: bool) -> str:
        notes: list[str] = []
        if read.was_cut:
            notes.append("the query is too long; only its beginning was used")
        if read.unknown and found:
            notes.append(f"no tool has {_listed(read.unknown)}")
        if not found:
            if not self._postings.count:
                notes.append("there are no tools")
            elif read.words:
                notes.append("no tool that the filters let through has these words")
            elif read.unknown:
                notes.append(f"no tool has {_listed(read.unknown)}{'' if read.maybe else ', nor a word like it'}")
            else:
                notes.append("the query has no words")
        return "; ".join(notes)

    # -- changes ------------------------------------------------------------------------------------------------

    def _take_in(self) -> None:
        pending = self._pending
        if not pending:
            return
        self._changes += len(pending)
        self._expander.changed()
        self._needed.clear()
        while pending:
            tool_id, tool, bindings = pending.popleft()
            if tool is None:
                self._drop(tool_id)
            else:
                self._put(tool, bindings)
        self._postings.words.phrases.clear()

    def _put(self, tool: Tool, bindings: tuple[Binding, ...]) -> None:
        if tool.id in self._slots:
            self._drop(tool.id)
        counts = count_words(tool, self._fields, self._postings.words)
        slot = self._postings.put(counts, self._marks.of(tool, bindings))
        self._exact.put(slot, codes_of(tool, self._postings.words))
        self._ranker.changed(slot)
        if slot == len(self._tools):
            self._tools.append(tool)
        else:
            self._tools[slot] = tool
        self._slots[tool.id] = slot
        self._sizes[tool.namespace] += 1
        if self._ordered is not None:
            insort(self._ordered, tool.id)

    def _drop(self, tool_id: str) -> None:
        slot = self._slots.pop(tool_id, None)
        if slot is None:
            return
        self._sizes[_namespace_of(tool_id)] -= 1
        if isinstance(tool := self._tools[slot], Tool):  # one of a snapshot is left; its slot has other words then
            self._exact.take(slot, codes_of(tool, self._postings.words))
        self._postings.take(slot)
        self._ranker.changed(slot)
        self._tools[slot] = None
        if self._ordered is not None:
            del self._ordered[bisect_left(self._ordered, tool_id)]


def _namespace_of(tool_id: str) -> str:
    return tool_id.partition(":")[0] if ":" in tool_id else ""


def _listed(words: Sequence[str]) -> str:
    shown = ", ".join(repr(word[:40]) for word in words[:5])
    return f"{shown} and {len(words) - 5} more" if len(words) > 5 else shown
