"""Strict JSON: which Python values are JSON, and where one that is not goes wrong.

JSON here means dicts with text keys, lists (or tuples), text, integers of any size, finite floats, booleans and
None, at most 120 levels deep. The depth limit also ends values that contain themselves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

import jsonschema_rs

from toolexec.errors import Violation

__all__ = ["MAX_DEPTH", "explain_not_json", "is_json", "pointer", "shorten"]

MAX_DEPTH: Final = 120
"""The most levels of dicts and lists that a value may have."""

_MAX_REPORTED: Final = 20
_SCALARS: Final[list[dict[str, Any]]] = [
    {"type": ["number", "boolean", "null"]},
    # No text is two things at once, so this excludes nothing; but it makes the validator read the text, and with
    # that refuse a lone surrogate, which it would otherwise let through.
    {"type": "string", "not": {"const": "a", "enum": ["b"]}},
]


def _json_of_depth(levels: int) -> dict[str, Any]:
    # jsonschema-rs looks at a value only where a keyword asks it to, so the whole of JSON is spelled out as a
    # schema, level by level: one check in compiled code is some twenty times as fast as a walk in Python.
    defs: dict[str, Any] = {f"level{levels}": {"anyOf": _SCALARS}}
    for level in range(levels):
        deeper = {"$ref": f"#/$defs/level{level + 1}"}
        defs[f"level{level}"] = {
            "anyOf": [
                *_SCALARS,
                {"type": "object", "additionalProperties": deeper},
                {"type": "array", "items": deeper},
            ]
        }
    return {"$defs": defs, "$ref": "#/$defs/level0"}


_is_json = jsonschema_rs.Draft202012Validator(_json_of_depth(MAX_DEPTH)).is_valid


def is_json(value: object) -> bool:
    """Whether *value* is strict JSON; `explain_not_json` says what is wrong with one that is not."""
    try:
        return _is_json(value)
    except ValueError:  # a type, a key or a text (a lone surrogate) that JSON does not have
        return False


def explain_not_json(value: object) -> list[Violation]:
    """Where *value* is not JSON, at most 20 places; empty when it is."""
    if is_json(value):
        return []
    found: list[Violation] = []
    for violation in _walk(value, "", 0):
        found.append(violation)
        if len(found) == _MAX_REPORTED:
            break
    return found


def _walk(value: object, path: str, depth: int) -> Iterator[Violation]:
    if value is None or isinstance(value, bool | int):
        return
    if isinstance(value, float):
        if not math.isfinite(value):
            yield _violation(path, f"{value} is not a JSON number", got=str(value))
    elif isinstance(value, str):
        if _has_surrogate(value):
            yield _violation(path, "the text has a lone surrogate, which UTF-8 cannot carry")
    elif isinstance(value, dict | list | tuple):
        if depth >= MAX_DEPTH:
            yield _violation(path[:100] + "/...", f"nested more than {MAX_DEPTH} levels deep, or contains itself")
            return
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            if isinstance(value, dict) and not isinstance(key, str):
                yield _violation(path, f"the key {shorten(repr(key))} is not text")
            elif isinstance(key, str) and _has_surrogate(key):
                yield _violation(path, f"the key {shorten(repr(key))} has a lone surrogate, which UTF-8 cannot carry")
            else:
                yield from _walk(item, f"{path}/{pointer(key)}", depth + 1)
    else:
        yield _violation(path, f"{type(value).__name__} is not a JSON type", got=type(value).__name__)


def _has_surrogate(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text)


def _violation(path: str, message: str, got: str | None = None) -> Violation:
    return Violation(path=path, keyword="json", message=message, expected="strict JSON", got=got)


def pointer(key: object) -> str:
    """One step of a JSON pointer (RFC 6901)."""
    return str(key).replace("~", "~0").replace("/", "~1")


def shorten(text: str, limit: int = 100) -> str:
    """Cut long text at *limit* characters, with an ellipsis."""
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
