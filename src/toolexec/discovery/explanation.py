"""Why a tool was found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from toolexec.model.json_value import JSONDict

MatchKind: TypeAlias = Literal["word", "synonym", "prefix", "spelling", "compound"]
"""How a word of the query led to a word of the tool: as the same word (by its stem), as one that means the same, as its
beginning, as what was probably meant by a misspelling, or by joining or parting words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WordMatch:
    """One word of the query and the tool's word that it matched, the fields which have that (`name`, `namespace`,
    `tags`, `description`, `parameters`), and what this added to the score."""

    query_word: str
    word: str
    kind: MatchKind = "word"
    fields: tuple[str, ...] = ()
    weight: float = 0.0

    def to_dict(self) -> JSONDict:
        """Return the same as JSON-able data."""
        return {
            "queryWord": self.query_word,
            "word": self.word,
            "kind": self.kind,
            "fields": list(self.fields),
            "weight": round(self.weight, 4),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why a tool was found: the words that matched, heaviest first; *snippet*, the piece of its description (or name)
    around them, with each matching word between `**`; and the parts that the score is made of, by searcher
    (`bm25`, `embedding`), when there are several."""

    matches: tuple[WordMatch, ...] = ()
    snippet: str = ""
    parts: Mapping[str, float] = field(default_factory=dict[str, float])

    def to_dict(self) -> JSONDict:
        """Return the same as JSON-able data, without what is empty."""
        data: JSONDict = {"matches": [match.to_dict() for match in self.matches]}
        if self.snippet:
            data["snippet"] = self.snippet
        if self.parts:
            data["parts"] = {name: round(value, 4) for name, value in self.parts.items()}
        return data


@runtime_checkable
class Explains(Protocol):
    """A searcher that can say why it found a tool."""

    def explain(self, query: str, tool_id: str) -> Explanation | None:
        """Return why *query* finds the tool; None when it does not, or the tool is unknown."""
        ...
