"""What of a tool is searched, and how much a word counts where."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from math import gcd
from typing import Any, Final, NamedTuple

from toolexec.discovery.ranking.vocabulary import Vocabulary
from toolexec.discovery.search import SearchDoc
from toolexec.model.tool import Tool

MAX_TEXT: Final = 20_000
"""Characters of a field that are read; the rest of a longer one is not searched."""
_MAX_PARTS: Final = 8
_decode = json.JSONDecoder().raw_decode


class Fields(NamedTuple):
    """How many units a word counts, by field."""

    name: int
    namespace: int
    tags: int
    description: int
    parameters: int


def fields_of(boosts: Sequence[float]) -> tuple[Fields, int]:
    """Boosts (in the order of `Fields`) in whole units, and how many units a boost of 1 is: as few as need be, at most
    8, to which boosts are rounded."""
    parts = [round(boost * _MAX_PARTS) for boost in boosts]
    common = gcd(_MAX_PARTS, *parts)
    return Fields(*(part // common for part in parts)), _MAX_PARTS // common


def strings_of(tool: Tool) -> dict[str, str]:
    """Return the strings of a tool by field."""
    doc = SearchDoc(tool)
    return {
        "name": doc.name,
        "namespace": doc.namespace,
        "tags": " ".join(doc.tags),
        "description": f"{doc.description} {doc.extra}".strip()[:MAX_TEXT],
        "parameters": doc.parameters[:MAX_TEXT],
    }


def count_words(tool: Tool, fields: Fields, words: Vocabulary) -> dict[str, int]:
    """Return the counts of a tool's words in units, by sign; they may be more than a posting holds."""
    telling, every = words.telling.__getitem__, words.every.__getitem__
    description = f"{_title(tool)} {tool.description}"
    if tool.has_meta:
        doc = SearchDoc(tool)
        description = f"{doc.description} {doc.extra}"
    if len(description) > MAX_TEXT:
        description = description[:MAX_TEXT]
    pieces = [*filter(None, map(telling, description.split()))] * fields.description
    if fields.parameters:
        found: list[str] = []
        for text in _parameters(tool.input_schema.text):
            found += words.phrases[text]
        pieces += found * fields.parameters
    counts = Counter(pieces)
    for text in tool.name.split("_") if fields.name else ():
        counts[every(text)] += fields.name
    if fields.namespace:
        counts[every(tool.namespace)] += fields.namespace
    for text in tool.tags if fields.tags else ():
        counts[every(text)] += fields.tags
    counts.pop("", None)  # of stop words
    if len("".join(counts)) != len(counts):  # some identifiers among them
        for piece in [piece for piece in counts if len(piece) != 1]:
            count = counts.pop(piece)
            for sign in piece:
                counts[sign] += count
    return counts


def _title(tool: Tool) -> str:
    """Return the title, unless the description says it again: its words count once then."""
    title = tool.title
    return "" if title and title in tool.description else title  # as in SearchDoc, which is slower


def _parameters(schema_text: str) -> list[str]:
    """Return the names and descriptions of the top-level parameters of a schema."""
    if '"properties"' not in schema_text:
        return []
    schema = _parsed(schema_text)
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return []
    found = [
        f"{name} {text}" if isinstance(part, dict) and isinstance(text := part.get("description"), str) else name
        for name, part in properties.items()
    ]
    return found if len(schema_text) <= MAX_TEXT else " ".join(found)[:MAX_TEXT].split()


def _parsed(text: str) -> object:
    """Return the value of JSON text; by pydantic's parser, which takes two thirds of the time, where the program has
    imported it: that alone takes as long as to read the schemas of 5,000 tools."""
    core: Any = sys.modules.get("pydantic_core")
    from_json = getattr(core, "from_json", None)
    if from_json is not None:
        try:
            return from_json(text)
        except ValueError:  # it refuses some of what we accept
            pass
    return _decode(text)[0]
