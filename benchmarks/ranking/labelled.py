"""Read the labelled set: the tools, the queries with their right answers, and the halves for tuning and for reporting.

`tools/<service>.json` holds the operations of one service, each as a row of name, summary, description, parameters
(separated by blanks) and tag. Names, parameters and what an operation does are those of the real service, in its own
style of naming; the texts are ours. **The summary is in no tool's document**: it is only asked for, as the query of the
kind `summary`. `queries/<kind>.json` holds the other kinds as rows of a query and the IDs of the tools that answer it.
Standard library only, since the peers' programs read it too.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, TypeAlias

Half: TypeAlias = Literal["dev", "test"]

FOLDER = Path(__file__).parent
KINDS = ("summary", "misspelt", "abbreviated", "synonym", "goal")
HALVES: tuple[Half, ...] = ("dev", "test")
_SUMMARIES = 140
_TYPES = ("integer", "number", "boolean", "array", "object")


@dataclass(frozen=True, slots=True)
class Operation:
    """One tool. `parameters` are names with their descriptions, which may be empty; `summary` is not for the index."""

    namespace: str
    name: str
    summary: str
    description: str
    parameters: dict[str, str]
    types: dict[str, str]
    tag: str

    @property
    def id(self) -> str:
        """The tool's ID."""
        return f"{self.namespace}:{self.name}"

    def to_dict(self) -> dict[str, Any]:
        """The tool in the form that `Tool.from_dict` reads."""
        properties = {
            name: {"type": self.types[name]} | ({"description": text} if text else {})
            for name, text in self.parameters.items()
        }
        return {
            "namespace": self.namespace,
            "name": self.name,
            "description": self.description,
            "tags": [self.tag],
            "inputSchema": {"type": "object", "properties": properties},
        }

    def text(self) -> str:
        """All of it as one text, for engines that know no fields."""
        words = [self.name, self.namespace, self.description, self.tag]
        for name, description in self.parameters.items():
            words += [name, description]
        return " ".join(words)


@dataclass(frozen=True, slots=True)
class Labelled:
    """A query, the tools that answer it, what kind of query it is, and which half it belongs to."""

    text: str
    relevant: frozenset[str]
    kind: str
    half: Half


@cache
def operations() -> tuple[Operation, ...]:
    """All tools, by service and in the order of the files."""
    return tuple(op for path in sorted((FOLDER / "tools").glob("*.json")) for op in _service(path))


@cache
def queries() -> tuple[Labelled, ...]:
    """All queries. A query stays in its half whatever else is added. Raises ValueError for an unknown ID."""
    known = {op.id for op in operations()}
    found: dict[str, Labelled] = {}
    for kind in KINDS:
        for text, ids in _summaries() if kind == "summary" else _rows(kind):
            unknown = set(ids) - known
            if unknown or not ids or text in found:
                raise ValueError(f"{kind} query {text!r}: repeated, without an answer, or unknown tools {unknown}")
            found[text] = Labelled(text, frozenset(ids), kind, HALVES[_number(text) % 2])
    return tuple(found.values())


def _service(path: Path) -> Iterable[Operation]:
    data = json.loads(path.read_text(encoding="utf-8"))
    for name, summary, description, parameters, tag in data["tools"]:
        texts: dict[str, str] = {}
        types: dict[str, str] = {}
        for parameter in parameters.split():
            kind, _, text = data["parameters"].get(parameter, "").partition(": ")
            texts[parameter] = text if kind in _TYPES else data["parameters"].get(parameter, "")
            types[parameter] = kind if kind in _TYPES else "string"
        yield Operation(data["namespace"], name, summary, description, texts, types, tag)


def _rows(kind: str) -> list[tuple[str, list[str]]]:
    return json.loads((FOLDER / "queries" / f"{kind}.json").read_text(encoding="utf-8"))


def _summaries() -> list[tuple[str, list[str]]]:
    """Some of the tools' summaries, chosen by the hash of their text. Tools with the same one all answer it."""
    same: defaultdict[str, list[str]] = defaultdict(list)
    for op in operations():
        same[op.summary].append(op.id)
    chosen = sorted(same, key=lambda summary: _number(f"summary {summary}"))[:_SUMMARIES]
    return [(summary, same[summary]) for summary in sorted(chosen)]


def _number(text: str) -> int:
    return int.from_bytes(sha256(text.encode()).digest()[:8], "big")
