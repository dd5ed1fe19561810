"""The keywords of a schema that keep their meaning, and what their values must be like."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from math import isfinite
from typing import Final

import jsonschema_rs

from toolexec.backend.providers.openapi.document import string_of
from toolexec.model.json_value import JSONObject, JSONValue

_MAX_TEXT: Final = 2000
_MAX_EXAMPLE: Final = 100
_MAX_EXAMPLES: Final = 3
_MAX_DEFAULT_DEPTH: Final = 8
_ABSENT: Final = None
_TYPES: Final[Mapping[str, str]] = {
    **{name: name for name in ("string", "number", "integer", "boolean", "object", "array", "null")},
    **dict.fromkeys(("int", "int32", "int64", "long"), "integer"),
    **dict.fromkeys(("float", "double", "decimal", "numeric"), "number"),
    **dict.fromkeys(("bool",), "boolean"),
    **dict.fromkeys(("str", "text", "date", "datetime", "date-time", "uuid", "file", "byte", "binary"), "string"),
    **dict.fromkeys(("map", "dict", "hash"), "object"),
    **dict.fromkeys(("list",), "array"),
}
"""The types, and what is written in their place by mistake; anything else says nothing."""


def types_of(value: object) -> list[str]:
    """Return the types that a `type` keyword names, without those that do not exist."""
    names = value if isinstance(value, list) else [value]
    found = [_TYPES.get(name) or _TYPES.get(name.lower()) for name in names if isinstance(name, str)]
    return list(dict.fromkeys(name for name in found if name))


def enum_of(value: object, types: list[str], *, nullable: bool) -> list[JSONValue] | None:
    """Return the values of an `enum` as the one type of *types*, with null where that is allowed; None for no enum.

    Numbers and `true` among strings come from authors who left out the quotes.
    """
    if not isinstance(value, list) or not value:
        return None
    if types == ["string"]:
        value = [_as_string(item) for item in value]
    elif types == ["integer"]:
        value = [int(item) if isinstance(item, str) and _is_integer(item) else item for item in value]
    return [*value, None] if nullable and None not in value else value


def examples_of(schema: JSONObject) -> list[JSONValue]:
    """Return the short examples of a schema, at most three."""
    given = schema.get("examples")
    values = [*given] if isinstance(given, list) else []
    if "example" in schema:
        values.insert(0, schema["example"])
    return [value for value in values[:_MAX_EXAMPLES] if _is_short(value)]


def plain_value(value: object) -> bool:
    """Return whether *value*, a default or a constant, is nested no deeper than a schema may be."""
    return _depth(value, _MAX_DEFAULT_DEPTH)


@lru_cache(maxsize=4096)
def is_pattern(text: str) -> bool:
    """Return whether a regular expression can be compiled."""
    try:
        jsonschema_rs.Draft202012Validator({"pattern": text})
    except (jsonschema_rs.ValidationError, ValueError):
        return False
    return True


def _depth(value: object, left: int) -> bool:
    if not isinstance(value, dict | list):
        return True
    return left > 0 and all(_depth(item, left - 1) for item in (value.values() if isinstance(value, dict) else value))


def _as_string(item: object) -> object:
    if isinstance(item, bool):
        return "true" if item else "false"
    return str(item) if isinstance(item, int | float) else item


def _is_integer(text: str) -> bool:
    return text.isascii() and text.removeprefix("-").isdecimal() and len(text) < 20


def _is_short(value: object) -> bool:
    if isinstance(value, str):
        return len(value) <= _MAX_EXAMPLE
    return isinstance(value, bool) or _number(value) is not _ABSENT


def _count(value: object) -> JSONValue:
    if isinstance(value, str) and _is_integer(value):
        value = int(value)
    number = _number(value)
    return int(number) if number is not _ABSENT and number >= 0 and number == int(number) else _ABSENT


def _number(value: object) -> JSONValue:
    if isinstance(value, float):
        return value if isfinite(value) else _ABSENT
    return value if isinstance(value, int) and not isinstance(value, bool) else _ABSENT


def _positive(value: object) -> JSONValue:
    number = _number(value)
    return number if number is not _ABSENT and number > 0 else _ABSENT


def _true(value: object) -> JSONValue:
    return True if value is True else _ABSENT


def _text(value: object) -> JSONValue:
    return string_of(value, _MAX_TEXT) or _ABSENT


def _word(value: object) -> JSONValue:
    return value if isinstance(value, str) and 0 < len(value) <= _MAX_EXAMPLE else _ABSENT


def _pattern(value: object) -> JSONValue:
    return value if isinstance(value, str) and len(value) <= _MAX_TEXT and is_pattern(value) else _ABSENT


def _names(value: object) -> JSONValue:
    names = [name for name in value if isinstance(name, str)] if isinstance(value, list) else []
    return list(dict.fromkeys(names)) or _ABSENT


def _name_lists(value: object) -> JSONValue:
    found = {name: _names(names) for name, names in value.items()} if isinstance(value, dict) else {}
    return {name: names for name, names in found.items() if names} or _ABSENT


PLAIN: Final[Mapping[str, Callable[[JSONValue], JSONValue]]] = {
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), _count),
    **dict.fromkeys(("minContains", "maxContains"), _count),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _number),
    **dict.fromkeys(("uniqueItems", "deprecated", "writeOnly"), _true),
    **dict.fromkeys(("title", "format", "contentEncoding", "contentMediaType"), _word),
    "description": _text,
    "multipleOf": _positive,
    "pattern": _pattern,
    "required": _names,
    "dependentRequired": _name_lists,
}
"""Keywords whose values hold no schemas, each with the function that gives the value to use, or None for one that is
not valid: the keyword is then left out."""
