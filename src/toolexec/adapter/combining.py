"""Two schemas that both hold for a value, as one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from toolexec.model.json_value import JSONDict, JSONValue
from toolexec.model.schema import same_json

ANNOTATIONS: Final = frozenset(
    {"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment", "$schema", "$id"}
)
"""The keywords that say something of a value and rule nothing out."""

MAX_PARTS: Final = 100
"""The most schemas that are made one."""

_MAX_PAIRS: Final = 100_000
_MAX_TYPES: Final = 20
_LARGER: Final = frozenset(
    {"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties", "minContains"},
)
_SMALLER: Final = frozenset({"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties", "maxContains"})


def combined(left: Mapping[str, object], right: Mapping[str, object]) -> JSONDict | None:
    """Return what fits *left* and *right*; what they say of the value is that of *left*. None where no schema says it
    without `allOf`."""
    closed = [node for node in (left, right) if "additionalProperties" in node or "unevaluatedProperties" in node]
    names = [_names(node) for node in (left, right)]
    if closed and names[0] != names[1] and all(names):
        return None  # which names are "additional" depends on the properties beside the keyword
    result = dict(left)
    for key, value in right.items():
        if key not in result or same_json(result[key], value):
            result.setdefault(key, value)
        elif key not in ANNOTATIONS:
            both = _both(key, result[key], value)
            if both is None:
                return None
            result[key] = both
    return result


def _names(node: Mapping[str, object]) -> set[str]:
    return {*_mapping(node.get("properties")), *(f"/{name}" for name in _mapping(node.get("patternProperties")))}


def _both(key: str, left: object, right: object) -> JSONValue:
    """Return the value of a keyword that says what two of its values say; None if there is none."""
    if key == "properties" and isinstance(left, dict) and isinstance(right, dict):
        return {**right, **left, **{name: _each(left[name], right[name]) for name in left if name in right}}
    if isinstance(left, list) and isinstance(right, list):
        if key == "required":
            return list(dict.fromkeys([*left, *right]))
        if key == "allOf":
            return [*left, *right]
        if key == "enum" and len(left) * len(right) <= _MAX_PAIRS:
            return [value for value in left if any(same_json(value, other) for other in right)]
    if key == "type":
        return _types(left, right)
    if isinstance(left, int | float) and isinstance(right, int | float):
        return max(left, right) if key in _LARGER else min(left, right) if key in _SMALLER else None
    return None


def _each(left: object, right: object) -> JSONValue:
    return left if same_json(left, right) else {"allOf": [left, right]}


def _types(left: object, right: object) -> JSONValue:
    lists = [[name for name in _listed(value) if isinstance(name, str)][:_MAX_TYPES] for value in (left, right)]
    kept = [name for name in lists[0] if name in lists[1] or (name == "integer" and "number" in lists[1])]
    kept += [name for name in lists[1] if name == "integer" and "number" in lists[0] and name not in kept]
    return (kept[0] if len(kept) == 1 else kept) if kept else None


def _listed(value: object) -> list[JSONValue]:
    return value if isinstance(value, list) else [value]


def _mapping(value: object) -> JSONDict:
    return value if isinstance(value, dict) else {}
