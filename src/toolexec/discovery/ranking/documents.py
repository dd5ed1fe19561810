"""What of a tool is searched, and how much a word counts where."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import lcm
from typing import Final, NamedTuple

from toolexec.discovery.ranking.postings import MAX_COUNT
from toolexec.discovery.ranking.vocabulary import Vocabulary
from toolexec.discovery.search import SearchDoc
from toolexec.model.tool import Tool

__all__ = ["MAX_TEXT", "Fields", "count_words", "fields_of", "texts_of"]

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
    parts = [Fraction(round(boost * _MAX_PARTS), _MAX_PARTS) for boost in boosts]
    unit = lcm(*(part.denominator for part in parts))
    return Fields(*(int(part * unit) for part in parts)), unit


def texts_of(tool: Tool) -> dict[str, str]:
    """Return the texts of a tool by field."""
    doc = SearchDoc(tool)
    return {
        "name": doc.name,
        "namespace": doc.namespace,
        "tags": " ".join(doc.tags),
        "description": f"{doc.description} {doc.extra}".strip()[:MAX_TEXT],
        "parameters": doc.parameters[:MAX_TEXT],
    }


def count_words(tool: Tool, fields: Fields, words: Vocabulary) -> Mapping[str, int]:
    """Return the counts of a tool's words in units, by sign."""
    read = words.read
    description = f"{tool.title} {tool.description}"
    if tool.has_meta:
        doc = SearchDoc(tool)
        description = f"{doc.description} {doc.extra}"
    if len(description) > MAX_TEXT:
        description = description[:MAX_TEXT]
    pieces = read(description) * fields.description
    if fields.parameters:
        pieces += read(_parameters(tool.input_schema.text)) * fields.parameters
    counts = Counter(pieces)
    if len("".join(counts)) != len(counts):  # some identifiers among them
        for piece in [piece for piece in counts if len(piece) != 1]:
            count = counts.pop(piece)
            for sign in piece:
                counts[sign] += count
    get = counts.get
    short = ((tool.name, fields.name), (tool.namespace, fields.namespace), (" ".join(tool.tags), fields.tags))
    for text, units in short:
        if units:
            for piece in read(text, stop_words=True):
                for sign in piece:
                    counts[sign] = get(sign, 0) + units
    if counts and max(counts.values()) > MAX_COUNT:
        for sign, count in counts.items():
            if count > MAX_COUNT:
                counts[sign] = MAX_COUNT
    return counts


def _parameters(schema_text: str) -> str:
    """Return the names and descriptions of the top-level parameters of a schema."""
    if '"properties"' not in schema_text:
        return ""
    schema: object = _decode(schema_text)[0]
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return ""
    parts = [part for part in properties.values() if isinstance(part, dict)]
    texts = [*properties, *[told for part in parts if isinstance(told := part.get("description"), str)]]
    text = " ".join(texts).replace("_", " ")
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT]
