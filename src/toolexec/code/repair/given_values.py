"""Arguments whose values are of another kind than their tool takes, as what to write in their place.

The values are those of the call that was refused, so it does not matter how a program has written them: an object is
given for a part of it, a number for its text, or a list for the object that it stands for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from toolexec.code.repair.near_keys import fold
from toolexec.code.repair.shapes import WRAPPERS
from toolexec.code.repair.shown import kind_of
from toolexec.code.repair.source import instead, split
from toolexec.model.json_value import JSONValue

_KINDS: Final[Mapping[str, tuple[type, ...]]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_TEXTS: Final = WRAPPERS | {"message", "text"}
_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?")
_CONVERSIONS: Final = {"integer": ("int", "Number"), "number": ("float", "Number"), "string": ("str", "String")}


def fits(value: JSONValue, schema: object) -> bool:
    """Return whether a value is of the kind of a schema, where that says one, and has the parts that it needs."""
    if not isinstance(schema, Mapping):
        return True
    if isinstance(ways := schema.get("anyOf"), list):
        return any(fits(value, each) for each in ways)
    kind = schema.get("type")
    kinds = _KINDS.get(kind) if isinstance(kind, str) else None
    needed = schema.get("required")
    if isinstance(value, dict) and isinstance(needed, list) and not {*needed} <= {*value}:
        return False
    return kinds is None or (isinstance(value, kinds) and (isinstance(value, bool) is (kind == "boolean")))


def about_given_values(
    call: tuple[str, str, str], given: Mapping[str, JSONValue], properties: Mapping[str, Any], *, is_python: bool
) -> str:
    """Return what to write for the first argument that is of another kind, else what it is; "" where all fit. *call*
    is the name, the text, and what is in the brackets of the call that was refused with *given*."""
    for name, schema in properties.items():
        if name not in given or fits(given[name], schema):
            continue
        value, plain = given[name], _plain(schema)
        made = _made(name, value, plain, is_python=is_python)
        written = _written(name, call[2], is_python=is_python)
        about = f"`{name}` is given {kind_of(value)}"
        if not made or written is None:
            return about
        part, expression = written
        new = made.format(expression if re.fullmatch(r"[\w.$\[\]'\"()]+", expression) else f"({expression})")
        separator = "=" if is_python else ": "
        old = re.escape(part)
        if len(re.findall(rf"(?<![\w.]){old}(?![\w.\[(])", call[1])) != 1:
            return about
        return f"{about}: {instead(part, f'{name}{separator}{new}')}"
    return ""


def _plain(schema: Any) -> Mapping[str, Any]:
    """Return a schema without null beside it."""
    ways = schema.get("anyOf") if isinstance(schema, Mapping) else None
    found = [each for each in ways if isinstance(each, Mapping) and each.get("type") != "null"] if ways else [schema]
    return found[0] if len(found) == 1 and isinstance(found[0], Mapping) else {}


def _written(name: str, inner: str, *, is_python: bool) -> tuple[str, str] | None:
    """Return how an argument is written in a call: as a whole, and its value."""
    parts = split(inner if is_python else inner.strip().removeprefix("{").removesuffix("}"))
    for part in parts:
        found = re.match(rf"(['\"]?){re.escape(name)}\1\s*(?:=(?!=)|:|$)\s*", part)
        if found is not None:
            return part, part[found.end() :] or name
    return None


def _made(name: str, value: JSONValue, schema: Mapping[str, Any], *, is_python: bool) -> str:
    """Return a template of what makes the wanted of a value; "" where there is not one way."""
    kind = str(schema.get("type", ""))
    if isinstance(value, dict):
        return _of_object(name, value, schema, is_python=is_python)
    if isinstance(value, list):
        return _of_list(name, value, schema, is_python=is_python)
    if kind == "array":
        return "[{0}]" if fits(value, schema.get("items")) else ""
    if kind == "string" and isinstance(value, bool):
        return ""
    is_number = isinstance(value, int | float) or (isinstance(value, str) and _NUMBER.fullmatch(value) is not None)
    if kind == "integer" and is_number and not float(str(value)).is_integer():
        return ""
    return f"{_CONVERSIONS[kind][not is_python]}({{0}})" if kind in _CONVERSIONS and is_number else ""


def _key(key: str, *, is_python: bool) -> str:
    return f'{{0}}["{key}"]' if is_python or not key.isidentifier() else f"{{0}}.{key}"


def _of_object(name: str, value: Mapping[str, JSONValue], schema: Mapping[str, Any], *, is_python: bool) -> str:
    needed = schema.get("required")
    if schema.get("type") == "object":
        inner = [key for key, part in value.items() if isinstance(part, dict) and needed and {*needed} <= {*part}]
        return _key(inner[0], is_python=is_python) if len(inner) == 1 else ""
    if schema.get("type") == "array" and fits(dict(value), schema.get("items")):
        return "[{0}]"
    same = [key for key in value if fold(key) == fold(name) and fits(value[key], schema)]
    ends = [key for key in value if fold(name).endswith(fold(key)) and fits(value[key], schema)]
    if not (same or ends) and schema.get("type") == "string" and name in _TEXTS:
        return "json.dumps({0})" if is_python else "JSON.stringify({0})"
    found = same or ends
    return _key(found[0], is_python=is_python) if len(found) == 1 else ""


def _of_list(name: str, value: list[JSONValue], schema: Mapping[str, Any], *, is_python: bool) -> str:
    if schema.get("type") == "array":
        rows = [each for each in value if isinstance(each, dict)]
        items = schema.get("items")
        if not rows or len(rows) != len(value) or not isinstance(items, Mapping):
            return ""
        key = _of_object(name.removesuffix("s"), rows[0], items, is_python=is_python)
        each = key.format("each") if key else ""
        return ("[" + each + " for each in {0}]" if is_python else "{0}.map((each) => " + each + ")") if each else ""
    keys = [*schema.get("properties", ())] if schema.get("type") == "object" else []
    if keys and len(keys) == len(value) and not any(isinstance(each, dict | list) for each in value):
        pairs = ", ".join(
            f'"{key}": {{0}}[{at}]' if is_python else f"{key}: {{0}}[{at}]" for at, key in enumerate(keys)
        )
        return f"{{{{{pairs}}}}}"
    return "{0}[0]" if len(value) == 1 and fits(value[0], schema) else ""
