"""A JSON Schema in words that fit into a table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from toolexec.model.json_value import JSONObject

_MAX_DEPTH: Final = 8
_SHOWN_DEPTH: Final = 2
_MAX_CHOICES: Final = 8
_BRANCHES: Final = ("anyOf", "oneOf", "allOf")


@dataclass(frozen=True, slots=True)
class Parameter:
    """One property of an object: `default` is its JSON, or empty when there is none."""

    name: str
    type: str
    required: bool
    default: str
    description: str


def follow(schema: object, root: object) -> JSONObject:
    """Return the schema that *schema* stands for, after its local references; an empty one where that leads nowhere."""
    for _ in range(_MAX_DEPTH):
        if not isinstance(schema, Mapping):
            return {}
        ref = schema.get("$ref")
        if not isinstance(ref, str) or not ref.startswith("#"):
            return schema
        schema = root
        for step in ref[1:].split("/")[1:]:
            schema = schema.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(schema, Mapping) else None
    return {}


def accepted_types(schema: object, root: object, depth: int = 0) -> set[str]:
    """Return the JSON types that the schema allows for a value; empty when it leaves them open."""
    schema = follow(schema, root)
    found = set(_named_types(schema))
    choices = schema.get("enum", [schema["const"]] if "const" in schema else [])
    if not found and isinstance(choices, list):
        found = {_type_of(choice) for choice in choices}
    if not found and depth < _MAX_DEPTH:
        for key in _BRANCHES:
            branches = schema.get(key)
            for branch in branches if isinstance(branches, list) else ():
                found |= accepted_types(branch, root, depth + 1)
    return found


def _named_types(schema: Mapping[str, object]) -> list[str]:
    kinds = schema.get("type")
    return [kind for kind in (kinds if isinstance(kinds, list) else [kinds]) if isinstance(kind, str)]


def _type_of(value: object) -> str:
    match value:
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case None:
            return "null"
        case list():
            return "array"
        case _:
            return "object"


def parameters(schema: object) -> list[Parameter]:
    """Return the properties of an object's schema, the required ones first."""
    top = follow(schema, schema)
    properties, required = top.get("properties"), top.get("required")
    names = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
    found: list[Parameter] = []
    for name, part in properties.items() if isinstance(properties, Mapping) else ():
        target = follow(part, schema)
        own = part if isinstance(part, Mapping) else {}
        default = own.get("default", target.get("default"))
        has_default = "default" in own or "default" in target
        description = own.get("description") or target.get("description")
        found.append(
            Parameter(
                name=name,
                type=type_words(part, schema),
                required=name in names,
                default=json.dumps(default, ensure_ascii=False) if has_default else "",
                description=description if isinstance(description, str) else "",
            )
        )
    return sorted(found, key=lambda parameter: not parameter.required)


def type_words(schema: object, root: object, depth: int = 0) -> str:
    """Return the type in a few words: `integer, 1 to 10`, `"a" | "b"`, `list of string`, `object {x, y}`."""
    schema = follow(schema, root)
    if depth > _MAX_DEPTH:
        return "any"
    choices = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if isinstance(choices, list):
        shown = [json.dumps(choice, ensure_ascii=False) for choice in choices[:_MAX_CHOICES]]
        return " | ".join(shown + ["…"] * (len(choices) > _MAX_CHOICES))
    for key in ("anyOf", "oneOf"):
        branches = schema.get(key)
        if isinstance(branches, list):
            return " | ".join(dict.fromkeys(type_words(branch, root, depth + 1) for branch in branches))
    words = [_one_type(kind, schema, root, depth) for kind in _named_types(schema)]
    return " | ".join(words) or ("object" if "properties" in schema else "any")


def _one_type(kind: str, schema: Mapping[str, object], root: object, depth: int) -> str:
    match kind:
        case "array":
            items = schema.get("items")
            inner = type_words(items, root, depth + 1) if isinstance(items, Mapping) else ""
            return f"list of {inner}" if inner and inner != "any" else "list"
        case "object":
            properties = schema.get("properties")
            if isinstance(properties, Mapping) and properties and depth < _SHOWN_DEPTH:
                return f"object {{{', '.join(map(str, properties))}}}"
            return "object"
        case "integer" | "number":
            return f"{kind}{_bounds(schema)}"
        case "string":
            form = schema.get("format")
            return f"string ({form})" if isinstance(form, str) else "string"
        case _:
            return kind


def _bounds(schema: Mapping[str, object]) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    if low is not None and high is not None:
        return f", {low} to {high}"
    shown = [("≥", low), (">", above), ("≤", high), ("<", below)]
    return "".join(f" {sign} {bound}" for sign, bound in shown if bound is not None)
