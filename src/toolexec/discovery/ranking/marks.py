"""Marks: what filters and counts go by, kept in the index like words."""

from __future__ import annotations

from collections.abc import Sequence

from toolexec.discovery.ranking.ranker import Clause
from toolexec.discovery.ranking.spelling import MARK
from toolexec.discovery.ranking.vocabulary import Vocabulary
from toolexec.discovery.summary import Filters
from toolexec.model.binding import Binding
from toolexec.model.tool import HINTS, Tool


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
        self._hinted: dict[tuple[bool | None, ...], str] = {}
        self._homes: dict[tuple[str, str], str] = {}
        words.derived += (self._hinted, self._homes)

    def of(self, tool: Tool, bindings: Sequence[Binding]) -> str:
        """Return the sign of each of a tool's marks, once."""
        notes = tool.annotations
        asked = (notes.read_only, notes.idempotent, notes.destructive, notes.open_world)
        hints = self._hinted.get(asked)
        if hints is None:
            hints = self._hinted[asked] = "".join([self._hints[name] for name in notes.on()])
        made = [self._namespaces[tool.namespace], *map(self._tags.__getitem__, tool.tags), hints]
        if len(bindings) == 1:
            home = bindings[0].kind, bindings[0].backend
            made.append(self._homes.get(home) or self._home(home))
            return "".join(made)
        backends = self._backends
        homes = [backends[name] for binding in bindings for name in (binding.kind, binding.backend)]
        return "".join((*made, *dict.fromkeys(homes)))

    def _home(self, home: tuple[str, str]) -> str:
        made = self._homes[home] = "".join(dict.fromkeys(map(self._backends.__getitem__, home)))
        return made

    def of_namespace(self, namespace: str) -> str:
        """Return the sign of the mark of a namespace; empty where no tool is in it."""
        return self._mark("namespace", namespace)

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
        return Clause(self._mark(kind, value), wanted)

    def _mark(self, kind: str, value: str) -> str:
        return self._words.signs.get(f"{MARK}{kind}{MARK}{value}", "")


class _Signs(dict[str, str]):
    """The sign of each mark of one kind, by value."""

    def __init__(self, words: Vocabulary, kind: str) -> None:
        super().__init__()
        self._words = words
        self._kind = kind
        words.derived.append(self)

    def __missing__(self, value: str) -> str:
        sign = self[value] = self._words.sign(f"{MARK}{self._kind}{MARK}{value}", "")
        return sign
