"""Keywords that a dialect does not have, said with those that it has: one node of a schema at a time."""

from __future__ import annotations

import math
from typing import Final

from toolexec.adapter.combining import MAX_PARTS, combined
from toolexec.adapter.dialects import Dialect
from toolexec.adapter.features import SchemaFeature
from toolexec.adapter.losses import Losses
from toolexec.model.json_value import JSONDict, JSONValue
from toolexec.model.schema import same_json

_OF_TYPES: Final = {
    "string": ("pattern", "format", "minLength", "maxLength"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "integer": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "array": ("items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains"),
    "object": ("properties", "required", "additionalProperties", "minProperties", "maxProperties", "patternProperties"),
}
_ANY_JSON: Final = ("string", "number", "boolean")
_TYPE_NAMES: Final = ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"), (type(None), "null"))


def rewrite(node: JSONDict, path: str, dialect: Dialect, losses: Losses) -> None:
    """Change *node*, which has no `$ref` and no `allOf` that could go, where the dialect has other keywords for it.

    What it has no keywords for is left in the node.
    """
    has = dialect.features
    if "const" in node and SchemaFeature.CONST not in has and SchemaFeature.ENUM in has and "enum" not in node:
        node["enum"] = [node.pop("const")]
        losses.add("const", path, "rewritten", "as an enum of one value")
    if "oneOf" in node and SchemaFeature.ONE_OF not in has and SchemaFeature.ANY_OF in has and "anyOf" not in node:
        node["anyOf"] = node.pop("oneOf")
        losses.add("oneOf", path, "loosened", "as anyOf: several may fit")
    _tuple(node, path, dialect, losses)
    if not dialect.type_lists:
        _one_type(node, path, losses)
    elif SchemaFeature.NULLABLE not in has:
        _null_in_type(node, path, losses)
    _bounds(node, path, dialect, losses)
    _enum(node, path, dialect, losses)
    if dialect.needs_items and _is(node, "array") and "items" not in node:
        node["items"] = {}
    if dialect.needs_type:
        _need_type(node, path, losses)


def without_null(branches: list[JSONValue]) -> list[JSONValue]:
    """Return the branches of an `anyOf` that are not just for null."""
    return [b for b in branches if not (isinstance(b, dict) and (b.get("type") == "null" or _only_null(b)))]


def _only_null(branch: JSONDict) -> bool:
    return ("const" in branch and branch["const"] is None) or branch.get("enum") == [None]


def _is(node: JSONDict, name: str) -> bool:
    kind = node.get("type")
    return kind == name or (isinstance(kind, list) and name in kind)


def _bounds(node: JSONDict, path: str, dialect: Dialect, losses: Losses) -> None:
    """`exclusiveMinimum` of integers as `minimum`, and the like."""
    sides = (("exclusiveMinimum", "minimum", max), ("exclusiveMaximum", "maximum", min))
    for exclusive, inclusive, tighter in sides:
        value = node.get(exclusive)
        if SchemaFeature(exclusive) in dialect.features or SchemaFeature(inclusive) not in dialect.features:
            continue
        if node.get("type") == "integer" and isinstance(value, int | float) and not isinstance(value, bool):
            bound = math.floor(value) + 1 if inclusive == "minimum" else math.ceil(value) - 1
            known = node.get(inclusive)
            node[inclusive] = tighter(bound, known) if isinstance(known, int | float) else bound
            del node[exclusive]
            losses.add(exclusive, path, "rewritten", f"as {inclusive} {node[inclusive]}")


def _tuple(node: JSONDict, path: str, dialect: Dialect, losses: Losses) -> None:
    """`prefixItems` as `items` that are any of them."""
    first = node.get("prefixItems")
    if not isinstance(first, list) or SchemaFeature.PREFIX_ITEMS in dialect.features:
        return
    rest = node.get("items")
    kinds: list[JSONValue] = []
    if len(first) > MAX_PARTS:
        first, rest = [], None
    for kind in [*first, *([rest] if isinstance(rest, dict) else [])]:
        if not any(same_json(kind, known) for known in kinds):
            kinds.append(kind)
    del node["prefixItems"]
    node["items"] = kinds[0] if len(kinds) == 1 else {"anyOf": kinds} if kinds else {}
    losses.add("prefixItems", path, "loosened", "each item may be any of them")


def _null_in_type(node: JSONDict, path: str, losses: Losses) -> None:
    """`nullable` as one more type."""
    kind = node.get("type")
    if node.get("nullable") is True and isinstance(kind, str):
        node["type"] = [kind, "null"]
        if isinstance(node.get("enum"), list) and None not in node["enum"]:
            node["enum"] = [*node["enum"], None]
        del node["nullable"]
        losses.add("nullable", path, "rewritten", "null is one more type")
    elif node.get("nullable") is False:
        del node["nullable"]


def _one_type(node: JSONDict, path: str, losses: Losses) -> None:
    """A list of types as one type, `nullable`, and `anyOf`."""
    branches = node.get("anyOf")
    if isinstance(branches, list) and len(rest := without_null(branches)) < len(branches):
        node["nullable"] = True
        losses.add("anyOf", path, "rewritten", "null as nullable")
        alone = {key: value for key, value in node.items() if key != "anyOf"}
        single = combined(alone, rest[0]) if len(rest) == 1 and isinstance(rest[0], dict) else None
        if single is not None:
            node.clear()
            node.update(single)
        else:
            node["anyOf"] = rest
    kinds = node.get("type")
    if not isinstance(kinds, list):
        return
    real = list(dict.fromkeys(kind for kind in kinds if isinstance(kind, str) and kind != "null"))
    if "null" in kinds:
        node["nullable"] = True
        if isinstance(node.get("enum"), list):
            node["enum"] = [value for value in node["enum"] if value is not None]
    losses.add("type", path, "rewritten", "several types as nullable and anyOf")
    if len(real) <= 1:
        node["type"] = real[0] if real else "null"
        return
    del node["type"]
    if "anyOf" not in node and "enum" not in node:
        mine = {kind: [key for key in _OF_TYPES.get(kind, ()) if key in node] for kind in real}
        node["anyOf"] = [{"type": kind, **{key: node[key] for key in mine[kind]}} for kind in real]
        for key in {key for keys in mine.values() for key in keys}:
            del node[key]


def _enum(node: JSONDict, path: str, dialect: Dialect, losses: Losses) -> None:
    """Values of types that an `enum` may not have."""
    values, types = node.get("enum"), dialect.enum_types
    if not isinstance(values, list) or types is None or SchemaFeature.ENUM not in dialect.features:
        return
    kinds = {_type_of(value) for value in values}
    only_text = set(types) == {"string"}
    if only_text and kinds <= {"integer"} and values and node.get("type", "integer") == "integer":
        node |= {"type": "integer", "format": "enum", "enum": [str(value) for value in values]}
        losses.add("enum", path, "rewritten", "its numbers as text")
    elif only_text and "" in values and kinds == {"string"}:
        node["enum"] = [value for value in values if value]
        losses.add("enum", path, "loosened", "without the empty text")
        if not node["enum"]:
            del node["enum"]
    elif "null" in kinds - types and kinds - {"null"} and kinds - {"null"} <= types and _is(node, "null"):
        node["enum"] = [value for value in values if value is not None]
        losses.add("enum", path, "loosened", "without null")


def _need_type(node: JSONDict, path: str, losses: Losses) -> None:
    """A type where there is none."""
    if "type" in node or "anyOf" in node or "$ref" in node:
        return
    values = node.get("enum")
    kinds = {_type_of(value) for value in values} if isinstance(values, list) else set()
    found = next((kind for kind, keys in _OF_TYPES.items() if any(key in node for key in keys)), "")
    if kinds == {"string"} or found:
        node["type"] = found or "string"
    elif not kinds:
        node["anyOf"] = [{"type": kind} for kind in _ANY_JSON]
        losses.add("type", path, "loosened", "any value as text, a number or a boolean")


def _type_of(value: object) -> str:
    return next((name for kind, name in _TYPE_NAMES if isinstance(value, kind)), "object")
