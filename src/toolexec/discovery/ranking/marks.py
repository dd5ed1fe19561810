"""Marks: what filters and counts go by, kept in the index like words."""

from __future__ import annotations

from collections.abc import Sequence

from toolexec.discovery.ranking.ranker import Clause
from toolexec.discovery.ranking.spelling import MARK
from toolexec.discovery.ranking.vocabulary import Vocabulary
from toolexec.discovery.summary import Filters
from toolexec.model.binding import Binding
from toolexec.model.tool import HINTS, Tool

__all__ = ["Marks", "value_of"]


def value_of(stem: str) -> tuple[str, str]:
    """Return the kind (`namespace`, `tag`, `backend`, `hint`) and the value of a mark's stem."""
    _, kind, value = stem.split(MARK, 2)
    return kind, value


class Marks:
    """Gives tools their marks: namespace, tags, kinds and names of backends, and the hints that are on."""

    def __init__(self, words: Vocabulary) -> None:
        self._words = words
        self._namespaces, self._tags, self._backends, self._hints = (
            _Signs(words, kind) for kind in ("namespace", "tag", "backend", "hint")
        )

    def of(self, tool: Tool, bindings: Sequence[Binding]) -> str:
        """Return the signs of a tool's marks, each once."""
        tags, backends, hints = self._tags, self._backends, self._hints
        made = [self._namespaces[tool.namespace]]
        made += [tags[tag] for tag in tool.tags]
        made += [hints[name] for name in tool.annotations.on()]
        for binding in bindings:
            made += (backends[binding.kind], backends[binding.backend])
        return "".join(dict.fromkeys(made))

    def clauses(self, filters: Filters) -> tuple[Clause, ...]:
        """Return the filters as conditions on marks."""
        found: list[Clause] = []
        if filters.namespace is not None:
            found.append(self._clause("namespace", filters.namespace))
        found += [self._clause("tag", tag) for tag in filters.tags]
        if filters.backend is not None:
            found.append(self._clause("backend", filters.backend))
        asked = (filters.read_only, filters.idempotent, filters.destructive, filters.open_world)
        found += [self._clause("hint", name, want) for name, want in zip(HINTS, asked, strict=True) if want is not None]
        return tuple(found)

    def _clause(self, kind: str, value: str, wanted: bool = True) -> Clause:
        return Clause(self._words.signs.get(f"{MARK}{kind}{MARK}{value}", ""), wanted)


class _Signs(dict[str, str]):
    """The signs of the marks of one kind, by value."""

    def __init__(self, words: Vocabulary, kind: str) -> None:
        super().__init__()
        self._words = words
        self._kind = kind
        words.derived.append(self)

    def __missing__(self, value: str) -> str:
        sign = self[value] = self._words.sign(f"{MARK}{self._kind}{MARK}{value}", "")
        return sign
