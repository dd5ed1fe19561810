"""The root of a schema of arguments: an object, and for most vendors one without combinators."""

from __future__ import annotations

from typing import Final

from toolexec.adapter.combining import MAX_PARTS, combined
from toolexec.adapter.dialects import Dialect
from toolexec.adapter.losses import Losses
from toolexec.adapter.references import References
from toolexec.errors import InvalidSchemaError
from toolexec.model.json_value import JSONDict, JSONValue
from toolexec.model.schema import same_json

_MAX_LINKS: Final = 100
_CHOICES: Final = ("anyOf", "oneOf")
_MAX_SETS: Final = 12


def as_object(root: JSONDict, dialect: Dialect, references: References, losses: Losses) -> JSONDict:
    """Return the root as an object with properties, without `$ref`, and without combinators where *dialect* has none
    there.

    Raises InvalidSchemaError when no object fits it.
    """
    if dialect.root_combinators:
        return root
    node, trail = _resolved(root, references, losses, ())
    while isinstance(parts := node.get("allOf"), list):
        whole: JSONDict | None = {key: value for key, value in node.items() if key != "allOf"}
        for part in parts[:MAX_PARTS]:
            plain, trail = _resolved(part, references, losses, trail) if isinstance(part, dict) else ({}, trail)
            whole = combined(whole, plain) if whole is not None else None
        if whole is None or len(parts) > MAX_PARTS:
            losses.add("allOf", "", "dropped", "its parts cannot be said as one")
            node = {key: value for key, value in node.items() if key != "allOf"}
            break
        losses.add("allOf", "", "rewritten", "as one object")
        node = whole
    for key in _CHOICES:
        if key in node:
            node = _one_object(node, key, references, losses)
    for key in ("not", "enum", "const"):
        if key in node:
            losses.add(key, "", "dropped", "not at the root")
            node = {name: value for name, value in node.items() if name != key}
    return {**node, "type": object_type(node.get("type", "object"))}


def object_type(kind: object) -> str:
    """Give `object` for a type that objects have; raises InvalidSchemaError for any other."""
    if kind == "object" or (isinstance(kind, list) and "object" in kind):
        return "object"
    raise InvalidSchemaError(f"arguments are an object, and the schema is for {kind!r:.100}; make its type 'object'")


def _resolved(
    node: JSONDict, references: References, losses: Losses, trail: tuple[int, ...]
) -> tuple[JSONDict, tuple[int, ...]]:
    """Return the node with definitions in place of its own references."""
    source = node
    while "$ref" in node and len(trail) < _MAX_LINKS:
        rest = {key: value for key, value in node.items() if key != "$ref"}
        target = references.target(source, node["$ref"])
        if not isinstance(target, dict) or id(target) in trail:
            losses.add("$ref", "", "dropped", "it leads nowhere")
            return rest, trail
        losses.add("$ref", "", "rewritten", "the definition stands in its place")
        node = combined(rest, target) or {**target, **rest}
        source, trail = target, (*trail, id(target))
    return node, trail


def _one_object(node: JSONDict, key: str, references: References, losses: Losses) -> JSONDict:
    """Return a choice between objects as one object that has the properties of all of them."""
    rest = {name: value for name, value in node.items() if name != key}
    branches: list[JSONDict] = []
    for branch in node[key][:MAX_PARTS] if isinstance(node[key], list) else []:
        if isinstance(branch, dict):
            plain, _ = _resolved(branch, references, losses, ())
            if plain.get("type", "object") == "object":
                branches.append(plain)
    if not branches:
        losses.add(key, "", "dropped", "none of its branches is an object")
        return rest
    kinds: dict[str, list[JSONValue]] = {}
    for part in (rest, *branches):
        for name, child in _mapping(part.get("properties")).items():
            known = kinds.setdefault(name, [])
            if not any(same_json(child, other) for other in known):
                known.append(child)
    own = _list(rest.get("required"))
    sets = [[name for name in _list(branch.get("required")) if name not in own] for branch in branches]
    always = [name for name in sets[0] if all(name in other for other in sets[1:])]
    rest["properties"] = {name: found[0] if len(found) == 1 else {"anyOf": found} for name, found in kinds.items()}
    if own or always:
        rest["required"] = [*own, *always]
    for keyword in ("additionalProperties", "unevaluatedProperties"):
        if any(branch.get(keyword, True) is not False for branch in branches) and rest.get(keyword) is not False:
            continue
        rest[keyword] = False
    words = _choice(sets)
    if words:
        rest["description"] = f"{rest['description']} ({words})" if rest.get("description") else f"({words})"
    losses.add(key, "", "loosened", words or "the properties of all branches together")
    return rest


def _choice(sets: list[list[str]]) -> str:
    """Return which properties go together, in words; empty where that says nothing."""
    if len({tuple(names) for names in sets}) < 2 or len(sets) > _MAX_SETS:
        return ""
    return f"give one of these: {'; '.join(' and '.join(names) or 'nothing more' for names in sets)}"[:500]


def _mapping(value: object) -> JSONDict:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[str]:
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []
