"""Constraints in plain words, for forms that have no place for them but the description."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Final

from toolexec.model.json_value import JSONValue

_MAX_PHRASE: Final = 200
_MAX_WORDS: Final = 600


def phrase(keyword: str, value: object) -> str:
    """Return what `keyword: value` asks for, in a few words; empty when it asks for nothing, or takes too long to say.

    >>> phrase("minimum", 1), phrase("maxItems", 1), phrase("enum", [1, None]), phrase("uniqueItems", False)
    ('minimum 1', 'at most 1 item', 'one of 1, null', '')
    """
    say = _PHRASES.get(keyword)
    try:
        text = say(value) if say is not None else f"{keyword} {_json(value)}"
    except (TypeError, ValueError, AttributeError):
        text = ""
    return text if len(text) <= _MAX_PHRASE else ""


def described(description: object, phrases: Sequence[str]) -> str:
    """Return the description with the phrases behind it in brackets, as many of them as fit.

    >>> described("How many.", ["minimum 1", "maximum 500"])
    'How many. (minimum 1, maximum 500)'
    """
    text = description if isinstance(description, str) else ""
    kept: list[str] = []
    for words in phrases:
        if words not in kept and sum(map(len, kept)) + len(words) <= _MAX_WORDS:
            kept.append(words)
    if not kept:
        return text
    return f"{text} ({', '.join(kept)})" if text else f"({', '.join(kept)})"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _count(word: str, bound: str) -> Callable[[JSONValue], str]:
    plural = "properties" if word == "property" else f"{word}s"
    return lambda value: f"{bound} {_json(value)} {word if value == 1 else plural}"


def _flag(word: str) -> Callable[[JSONValue], str]:
    return lambda value: word if value is True else ""


def _additional(value: object) -> str:
    return "" if isinstance(value, bool) else f"other properties: {_json(value)}"


def _listed(value: JSONValue) -> str:
    return ", ".join(map(_json, value))


_PHRASES: Final[dict[str, Callable[[JSONValue], str]]] = {
    "additionalProperties": _additional,
    "const": lambda value: f"always {_json(value)}",
    "default": lambda value: f"default {_json(value)}",
    "deprecated": _flag("deprecated"),
    "enum": lambda value: f"one of {_listed(value)}",
    "examples": lambda value: f"for example {_listed(value)}",
    "exclusiveMaximum": lambda value: f"less than {_json(value)}",
    "exclusiveMinimum": lambda value: f"more than {_json(value)}",
    "format": lambda value: f"format {value}",
    "maxItems": _count("item", "at most"),
    "maxLength": _count("character", "at most"),
    "maxProperties": _count("property", "at most"),
    "maximum": lambda value: f"maximum {_json(value)}",
    "minItems": _count("item", "at least"),
    "minLength": _count("character", "at least"),
    "minProperties": _count("property", "at least"),
    "minimum": lambda value: f"minimum {_json(value)}",
    "multipleOf": lambda value: f"a multiple of {_json(value)}",
    "nullable": _flag("may be null"),
    "pattern": lambda value: f"matches the pattern {value}",
    "readOnly": _flag("read-only"),
    "title": str,
    "uniqueItems": _flag("no item twice"),
    "writeOnly": _flag("write-only"),
    **{
        keyword: lambda _value: ""
        for keyword in (
            "$anchor",
            "$comment",
            "$defs",
            "$dynamicAnchor",
            "$dynamicRef",
            "$id",
            "$schema",
            "definitions",
        )
    },
}
