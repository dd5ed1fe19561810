"""Discriminators: which property of an object says which of several schemas it has, and by what names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from toolexec.backend.providers.openapi.document import Document, InvalidPartError, items_of, mapping_of
from toolexec.model.json_value import JSONDict, JSONValue

_MAX_NESTED: Final = 20
_MAX_LISTED: Final = 50
_SCHEMAS: Final = "#/components/schemas/"


def discriminate(document: Document, node: JSONDict, out: JSONDict, *, output: bool) -> None:
    """Have the property that says which alternative is meant name those of the mapping, in each alternative.

    Without a mapping the names are those of the schemas. They are not held against an alternative that says by itself
    what the property may be, nor against an answer: servers spell them as they like.
    """
    given = mapping_of(node["discriminator"])
    name = given.get("propertyName")
    if not isinstance(name, str):
        return
    mapping = {key: ref for key, ref in mapping_of(given.get("mapping")).items() if isinstance(ref, str)}
    keyword = next((each for each in ("oneOf", "anyOf") if each in out), "")
    names = _names_of_branches(items_of(node.get(keyword)), mapping)
    listed = {key: last_of(ref) for key, ref in mapping.items()} or {key: "" for keys in names.values() for key in keys}
    if listed:
        _describe(name, listed, node, out)
    for number, keys in names.items():
        own = _values(document, items_of(node[keyword])[number], name)
        allowed = [key for key in keys if own is None or key in own]
        if allowed and (mapping or not output):
            required = {"properties": {name: {"enum": allowed}}, "required": [name]}
            out[keyword][number] = out[keyword][number] | required
    if keyword == "oneOf" and (output or len(names) < len(out[keyword])):
        out["anyOf"] = out.pop("oneOf")  # the discriminator decides, and several may fit what it does not look at


def subtypes(document: Document, node: JSONDict) -> dict[str, str]:
    """Return the schemas that an object with a discriminator, and without alternatives, may have: their references by
    name. Those are the targets of its mapping, or else the schemas of the document that consist of it and more."""
    given = mapping_of(node.get("discriminator"))
    if not given or "oneOf" in node or "anyOf" in node:
        return {}
    mapping = {key: ref for key, ref in mapping_of(given.get("mapping")).items() if isinstance(ref, str)}
    if mapping:
        return {key: ref if "/" in ref else f"{_SCHEMAS}{ref}" for key, ref in mapping.items()}
    schemas = mapping_of(mapping_of(document.root.get("components")).get("schemas"))
    return {name: f"{_SCHEMAS}{name}" for name, each in schemas.items() if _consists_of(document, each, node)}


def last_of(ref: str) -> str:
    """Return the last part of a reference: the name of what it points at."""
    return ref.rpartition("/")[2].replace("~1", "/").replace("~0", "~")


def _names_of_branches(branches: list[JSONValue], mapping: Mapping[str, str]) -> dict[int, list[str]]:
    """Return the names of each alternative that is a reference, by its number: those of the mapping, or its own."""
    found: dict[int, list[str]] = {}
    for number, branch in enumerate(branches):
        ref = branch.get("$ref") if isinstance(branch, dict) else None
        if isinstance(ref, str):
            found[number] = [key for key, target in mapping.items() if _same(target, ref)] or [last_of(ref)]
    return found


def _describe(name: str, listed: Mapping[str, str], node: JSONDict, out: JSONDict) -> None:
    shown = [f"{key!r}: {target}" if target else repr(key) for key, target in list(listed.items())[:_MAX_LISTED]]
    hint = f"`{name}` says which: {', '.join(shown)}"
    said = node.get("description")
    out["description"] = f"{said}\n{hint}"[:4000] if isinstance(said, str) else hint[:4000]


def _values(document: Document, node: JSONValue, name: str, level: int = 0) -> list[JSONValue] | None:
    """Return the values that a schema allows for a property; None where it allows any."""
    if level > _MAX_NESTED:
        return None
    try:
        schema = document.follow(node)
        own = document.follow(mapping_of(schema.get("properties")).get(name, {}))
    except InvalidPartError:
        return None
    if isinstance(own.get("enum"), list):
        return own["enum"]
    if "const" in own:
        return [own["const"]]
    parts = (_values(document, part, name, level + 1) for part in items_of(schema.get("allOf")))
    return next((values for values in parts if values is not None), None)


def _consists_of(document: Document, schema: JSONValue, base: JSONDict, level: int = 0) -> bool:
    """Return whether *base* is one of the parts of a schema, or of its parts."""
    if level > _MAX_NESTED or not isinstance(schema, dict):
        return False
    for part in items_of(schema.get("allOf")):
        try:
            node = document.follow(part)
        except InvalidPartError:
            continue
        if node is base or _consists_of(document, node, base, level + 1):
            return True
    return False


def _same(target: str, ref: str) -> bool:
    """Return whether a discriminator's mapping means the schema at *ref*: by a reference, or by its name."""
    return target == ref or ("/" not in target and target.removesuffix(".json") == last_of(ref))
