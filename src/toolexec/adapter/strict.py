"""Strict tools: a schema that the vendor holds the model to, or the reason why that cannot be."""

from __future__ import annotations

from dataclasses import dataclass

from toolexec.adapter.dialects import Dialect, StrictRules
from toolexec.adapter.features import subschemas
from toolexec.adapter.fit import Fitted, fit_schema
from toolexec.adapter.losses import Losses
from toolexec.adapter.rewrites import without_null
from toolexec.model.json_value import JSONDict, JSONValue, pointer
from toolexec.model.schema import Schema

_FATAL = frozenset({"patternProperties", "allOf", "$ref", "false", "...", "$dynamicRef"})
_MAX_LINKS = 50
_MAX_LEVELS = 60


class _NotStrictError(Exception):
    """Why a schema cannot be strict: the JSON pointer, and the reason."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(reason)
        self.path = path
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class StrictCost:
    """What a strict schema takes of a request's allowance: parameters that may be absent, and unions."""

    optional: int
    unions: int


def fit_strict(schema: Schema, dialect: Dialect, losses: Losses, *, describe: bool = True) -> Fitted | None:
    """*schema* as strict arguments: every object closed, and what may be absent takes null where the dialect wants all
    properties required.

    None when that would change what the tool can be asked for (an object of any keys, a value of any type) or go over
    the vendor's bounds; *losses* then has the one warning that says so. Raises InvalidSchemaError as `fit_schema` does.
    """
    assert dialect.strict is not None
    mark = losses.mark()
    try:
        fitted = fit_schema(schema, dialect, losses, describe=describe)
        for loss in losses.since(mark):
            if loss.feature in _FATAL and loss.action in ("dropped", "described"):
                raise _NotStrictError(loss.path.partition(":")[2], f"{loss.feature} cannot be held")
        _Strict(dialect.strict, fitted.schema).apply()
    except _NotStrictError as refused:
        losses.back_to(mark)
        losses.add("strict", refused.path, "dropped", refused.reason)
        return None
    return fitted


def strict_cost(schema: JSONDict) -> StrictCost:
    """Return what a strict schema counts for where a vendor bounds all tools of a request together."""
    optional = unions = 0
    pending: list[JSONValue] = [schema]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            required = set(node.get("required", ()))
            optional += sum(name not in required for name in node.get("properties", ()))
            unions += isinstance(node.get("type"), list) or "anyOf" in node
            pending += [child for _, child in subschemas(node)]
    return StrictCost(optional=optional, unions=unions)


class _Strict:
    """Makes a fitted schema strict, in place."""

    def __init__(self, rules: StrictRules, root: JSONDict) -> None:
        self._rules = rules
        self._root = root
        self._properties = self._values = self._characters = 0

    def apply(self) -> None:
        """Raises _NotStrictError."""
        self._node(self._root, "", 0)
        if not self._rules.recursion and _is_recursive(self._root):
            raise _NotStrictError("", "its references form a loop")
        for have, most, what in (
            (self._properties, self._rules.max_properties, "properties"),
            (self._values, self._rules.max_values, "values of enums"),
            (self._characters, self._rules.max_characters, "characters of names and values"),
        ):
            if most and have > most:
                raise _NotStrictError("", f"it has {have} {what}; {most} is the most")

    def _node(self, node: object, path: str, level: int) -> None:
        if not isinstance(node, dict):
            return
        if not node.keys() & {"type", "anyOf", "$ref", "enum", "const"}:
            raise _NotStrictError(path, "a value of any type")
        kind = node.get("type")
        if kind == "object" or "properties" in node or (isinstance(kind, list) and "object" in kind):
            self._object(node, path)
            level += 1
            if self._rules.max_levels and level > self._rules.max_levels:
                raise _NotStrictError(path, f"more than {self._rules.max_levels} levels of objects")
        if (kind == "array" or (isinstance(kind, list) and "array" in kind)) and not node.get("items"):
            raise _NotStrictError(path, "items of any type")
        values = node.get("enum", [node["const"]] if "const" in node else [])
        self._values += len(values) if "enum" in node else 0
        self._characters += sum(len(value) for value in values if isinstance(value, str))
        self._characters += sum(map(len, (*node.get("properties", ()), *node.get("$defs", ()))))
        for step, child in list(subschemas(node)):
            if not step.startswith("/additionalProperties"):
                self._node(child, path + step, level)

    def _object(self, node: JSONDict, path: str) -> None:
        if node.get("additionalProperties", False) is not False:
            raise _NotStrictError(path, "an object with any other properties")
        properties: JSONDict = node.get("properties", {})
        if not properties and "additionalProperties" not in node and path:
            raise _NotStrictError(path, "an object with any properties")
        node["properties"] = properties
        node["additionalProperties"] = False
        required = [name for name in node.get("required", ()) if name in properties]
        self._properties += len(properties)
        if self._rules.all_required:
            known = set(required)
            for name, child in properties.items():
                if name not in known:
                    properties[name] = _or_null(child)
            required = list(properties)
        node["required"] = required


def _or_null(node: object) -> JSONValue:
    """Return the schema, or null."""
    if not isinstance(node, dict):
        return node
    kind, values = node.get("type"), node.get("enum")
    if "$ref" in node or "const" in node or (isinstance(kind, str) and kind != "null" and "anyOf" in node):
        said = {"description": node["description"]} if "description" in node and "$ref" not in node else {}
        inner = {key: value for key, value in node.items() if key not in said}
        return {**said, "anyOf": [inner, {"type": "null"}]}
    result = dict(node)
    if "anyOf" in node and len(without_null(node["anyOf"])) == len(node["anyOf"]):
        result["anyOf"] = [*node["anyOf"], {"type": "null"}]
    if isinstance(kind, str) and kind != "null":
        result["type"] = [kind, "null"]
    elif isinstance(kind, list) and "null" not in kind:
        result["type"] = [*kind, "null"]
    if isinstance(values, list) and None not in values:
        result["enum"] = [*values, None]
    return result


def _is_recursive(root: JSONDict) -> bool:
    """Return whether a reference leads, through whatever definitions, back to itself."""
    named = {f"#/$defs/{pointer(name)}": node for name, node in root.get("$defs", {}).items()}
    uses = {name: _refs(node) for name, node in {**named, "#": root}.items()}
    waiting = {name: len(refs & uses.keys()) for name, refs in uses.items()}
    users: dict[str, list[str]] = {}
    for name, refs in uses.items():
        for ref in refs & uses.keys():
            users.setdefault(ref, []).append(name)
    free = [name for name, count in waiting.items() if not count]
    for name in free:  # grows as it goes: each definition whose own are all free is free, too
        for user in users.get(name, ()):
            waiting[user] -= 1
            if not waiting[user]:
                free.append(user)
    return len(free) < len(uses)


def _refs(node: JSONValue) -> set[str]:
    found: set[str] = set()
    pending = [child for step, child in subschemas(node) if not step.startswith("/$defs/")] if node else []
    found |= {node["$ref"]} if isinstance(node, dict) and "$ref" in node else set()
    while pending:
        child = pending.pop()
        if isinstance(child, dict):
            found |= {child["$ref"]} if isinstance(child.get("$ref"), str) else set()
            pending += [below for _, below in subschemas(child)]
    return found


# -- the way back ---------------------------------------------------------------------------------------------------


def without_nulls(schema: Schema, args: JSONDict) -> JSONDict:
    """Arguments without the nulls that stand for "not given": where the property may be absent and may not be null.

    Models write them for strict tools, and often for others. Arguments that fit as they are stay as they are; *args* is
    never changed. Raises InvalidSchemaError when the schema cannot be compiled.
    """
    if schema.accepts(args):
        return args
    root = schema.to_json()
    cleaned = _Cleaning(root).cleaned(root, args, 0) if isinstance(root, dict) else args
    return cleaned if isinstance(cleaned, dict) else args


class _Cleaning:
    """Takes nulls out of values of one schema."""

    def __init__(self, root: JSONDict) -> None:
        self._root = root
        self._known: dict[int, bool] = {}

    def cleaned(self, node: object, value: object, level: int) -> JSONValue:
        """Return the value without them."""
        node = _target(node, self._root)
        if not isinstance(node, dict) or level > _MAX_LEVELS:
            return value
        if isinstance(value, list):
            return [self.cleaned(node.get("items"), item, level + 1) for item in value]
        if not isinstance(value, dict):
            return value
        properties = node.get("properties")
        if not isinstance(properties, dict):
            branches = [b for b in without_null(node.get("anyOf") or []) if isinstance(b, dict)]
            return self.cleaned(branches[0], value, level + 1) if len(branches) == 1 else value
        required = set(node.get("required", ()))
        return {
            name: self.cleaned(properties.get(name), item, level + 1)
            for name, item in value.items()
            if item is not None or name in required or self._takes_null(properties.get(name, True), 0)
        }

    def _takes_null(self, node: object, level: int) -> bool:
        node = _target(node, self._root)
        if not isinstance(node, dict) or level > _MAX_LEVELS:
            return node is not False
        if id(node) not in self._known:
            self._known[id(node)] = self._fits_null(node, level)
        return self._known[id(node)]

    def _fits_null(self, node: JSONDict, level: int) -> bool:
        kind = node.get("type", "null")
        if kind != "null" and not (isinstance(kind, list) and "null" in kind):
            return False
        if "const" in node or "enum" in node:
            return None in node.get("enum", [node.get("const")])
        choices = [node[key] for key in ("anyOf", "oneOf") if isinstance(node.get(key), list)]
        return all(any(self._takes_null(branch, level + 1) for branch in choice) for choice in choices)


def _target(node: object, root: JSONDict) -> JSONValue:
    """Return the schema itself, or the definition that it is a reference to."""
    for _ in range(_MAX_LINKS):
        ref = node.get("$ref") if isinstance(node, dict) else None
        if not isinstance(ref, str) or not ref.startswith("#/"):
            return node
        found: object = root
        for step in ref[2:].split("/"):
            name = step.replace("~1", "/").replace("~0", "~")
            found = found.get(name) if isinstance(found, dict) else None
        node = found
    return None
