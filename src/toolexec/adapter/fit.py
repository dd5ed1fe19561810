"""A schema made to fit a dialect: what the dialect cannot hold is said in other words, and reported."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from toolexec.adapter.combining import MAX_PARTS, combined
from toolexec.adapter.dialects import Dialect
from toolexec.adapter.features import ALWAYS, LISTS_OF_SCHEMAS, MAPS_OF_SCHEMAS, SCHEMAS, SchemaFeature
from toolexec.adapter.losses import Losses
from toolexec.adapter.references import References, modern
from toolexec.adapter.rewrites import rewrite
from toolexec.adapter.roots import as_object
from toolexec.adapter.wording import described, phrase
from toolexec.model.json_value import JSONDict, JSONValue, pointer
from toolexec.model.schema import Schema
from toolexec.model.schema_compile import DRAFT_2020_12

_MAX_LEVELS: Final = 64
_MAX_NODES: Final = 20_000
_SILENT: Final = frozenset({"$schema", "definitions", "$defs", "$comment"})
_KEYWORDS: Final = frozenset(SchemaFeature)
_KINDS: Final[JSONDict] = {
    **dict.fromkeys(SCHEMAS, (dict, bool)),
    **dict.fromkeys([*LISTS_OF_SCHEMAS, "enum", "required", "examples"], (list,)),
    **dict.fromkeys([*MAPS_OF_SCHEMAS, "dependentRequired"], (dict,)),
    **dict.fromkeys(["$ref", "description", "title", "pattern", "format"], (str,)),
    "type": (str, list),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A schema in a dialect's form. `renamed` are the top-level properties that had to get another name: the new name
    and the old one."""

    schema: JSONDict
    renamed: dict[str, str] = field(default_factory=dict[str, str])


def fit_schema(schema: Schema, dialect: Dialect, losses: Losses, *, describe: bool = True, root: bool = True) -> Fitted:
    """*schema* as *dialect* can hold it; what that costs is added to *losses*.

    References are kept where the dialect has them, and put in place of themselves otherwise. With *describe*, rules
    that are lost are said in the descriptions. *root* is for schemas of arguments, whose root is an object. The result
    is never part of *schema*. Raises InvalidSchemaError for a root that fits no object.
    """
    data = schema.to_json()
    if dialect.name == "mcp" and isinstance(data, dict):
        return Fitted(schema=data)
    node = data if isinstance(data, dict) else {} if data else {"not": {}}
    if str(node.get("$schema", DRAFT_2020_12)).rstrip("#") != DRAFT_2020_12 or '"items":[' in schema.text:
        node = modern(node)
    work = _Work(node, dialect, losses, describe)
    if root:
        node = as_object(node, dialect, work.references, losses)
    result = work.node(node, "", 0, ())
    renamed = work.renamed
    definitions = work.definitions()
    if definitions:
        result["$defs"] = definitions
    if root and dialect.needs_root_properties:
        result.setdefault("properties", {})
    return Fitted(schema=result, renamed=renamed)


class _Work:
    """The fitting of one schema."""

    def __init__(self, root: JSONDict, dialect: Dialect, losses: Losses, describe: bool) -> None:
        self.dialect = dialect
        self.losses = losses
        self.references = References(root)
        self.renamed: dict[str, str] = {}
        self._describe = describe
        self._nodes = 0

    def definitions(self) -> JSONDict:
        """Return the definitions that the written references need, and those that these need."""
        done: JSONDict = {}
        pending = self.references.pending
        while pending:
            name = next(iter(pending))
            done[name] = self.node(pending.pop(name), f"/$defs/{pointer(name)}", 1, ())
        return done

    def node(self, value: object, path: str, level: int, trail: tuple[int, ...]) -> JSONValue:
        """Return one schema; *trail* are the references on the way here that were put in place of themselves."""
        self.losses.visit(path)
        self._nodes += 1
        if isinstance(value, bool):
            if self.dialect.boolean_schemas:
                return value
            if not value:
                self.losses.add("false", path, "dropped", "a schema that nothing fits")
            return {}
        if not isinstance(value, dict) or level > _MAX_LEVELS or self._nodes > _MAX_NODES:
            note = "nested too deeply, or too large" if isinstance(value, dict) else "it is no schema"
            self.losses.add("...", path, "dropped", note)
            return {}
        value = self._well_formed(value, path)
        node, trail, kept = self._dereferenced(value, path, trail)
        node, trail = self._without_all_of(node, path, trail)
        rewrite(node, path, self.dialect, self.losses)
        if kept:
            node = {"$ref": kept, **node}
        return self._written(node, path, level, trail)

    def _well_formed(self, node: JSONDict, path: str) -> JSONDict:
        """Return the node itself, or a copy without keywords whose values are not even of the right kind."""
        wrong = [key for key, value in node.items() if not isinstance(value, _KINDS.get(key, object))]
        for key in wrong:
            self.losses.add(key, path, "dropped", "its value makes no sense")
        return {key: value for key, value in node.items() if key not in wrong} if wrong else node

    # -- references and allOf -----------------------------------------------------------------------------------

    def _dereferenced(
        self, original: JSONDict, path: str, trail: tuple[int, ...]
    ) -> tuple[JSONDict, tuple[int, ...], str]:
        """Return the node without its reference, or with the one to write in the last place."""
        node, source = dict(original), original
        while "$ref" in node:
            ref = node.pop("$ref")
            target = self.references.target(source, ref)
            if target is None or isinstance(target, bool):
                self.losses.add("$ref", path, "dropped" if target is None else "rewritten", f"{ref} is no definition")
                break
            siblings = node.keys() - _SILENT
            if SchemaFeature.REF in self.dialect.features and not (siblings and self._inlines(target, trail)):
                if siblings and not self.dialect.ref_siblings:
                    for key in sorted(siblings):
                        self.losses.add(key, path, "dropped", "beside a reference to itself")
                    node = {}
                return node, trail, self.references.use(target, str(ref))
            self.losses.add("$ref", path, *self._place(target, str(ref), trail))
            if id(target) in trail:
                node = {**{key: target[key] for key in ("type", "description") if key in target}, **node}
                break
            merged = combined(node, target)
            if merged is None:
                self.losses.add("$ref", path, "loosened", "what stands beside it has gone before")
                merged = {**target, **node}
            trail = (*trail, id(target))
            node, source = merged, target
        return node, trail, ""

    def _inlines(self, target: object, trail: tuple[int, ...]) -> bool:
        return not self.dialect.ref_siblings and id(target) not in trail and len(trail) < _MAX_LEVELS

    def _place(self, target: object, ref: str, trail: tuple[int, ...]) -> tuple[JSONValue, str]:
        if id(target) in trail:
            return "dropped", f"{ref} leads back to itself"
        return "rewritten", "the definition stands in its place"

    def _without_all_of(self, node: JSONDict, path: str, trail: tuple[int, ...]) -> tuple[JSONDict, tuple[int, ...]]:
        """Return the node with its `allOf` taken in, where the dialect has none and it can be."""
        if SchemaFeature.ALL_OF in self.dialect.features:
            return node, trail
        while isinstance(parts := node.get("allOf"), list) and len(parts) <= MAX_PARTS:
            whole: JSONDict | None = {key: value for key, value in node.items() if key != "allOf"}
            below = trail
            for part in parts:
                if part is True or whole is None:
                    continue
                plain, below = self._inlined(part, below)
                whole = combined(whole, plain) if plain is not None else None
            if whole is None:
                break
            self.losses.add("allOf", path, "rewritten", "as one schema")
            node, trail = whole, below
        return node, trail

    def _inlined(self, part: object, trail: tuple[int, ...]) -> tuple[JSONDict | None, tuple[int, ...]]:
        """Return a part of an `allOf` with the definition in place of its reference; None where that cannot be."""
        seen = trail
        while isinstance(part, dict) and "$ref" in part:
            target = self.references.target(part, part["$ref"])
            if not isinstance(target, dict) or id(target) in seen:
                return None, trail
            rest = {key: value for key, value in part.items() if key != "$ref"}
            part, seen = combined(rest, target), (*seen, id(target))
        return (part, seen) if isinstance(part, dict) else (None, trail)

    # -- keywords -----------------------------------------------------------------------------------------------

    def _written(self, node: JSONDict, path: str, level: int, trail: tuple[int, ...]) -> JSONDict:
        """Return the node with just what the dialect has; the rest is in the description."""
        result: JSONDict = {}
        words: list[str] = []
        for key, value in node.items():
            if key in ("$defs", "definitions"):
                if SchemaFeature.DEFS not in self.dialect.features:
                    self.losses.add(key, path, "rewritten", "each definition stands where it is used")
            elif self._has(key, value, node):
                result[key] = self._value(key, value, path, level, trail)
            else:
                said = phrase(key, value) if self._describe else ""
                if said and said != node.get("description"):
                    words.append(said)
                if value is not False or key not in ("uniqueItems", "deprecated", "readOnly", "writeOnly", "nullable"):
                    self.losses.add(key, path, "described" if said else "dropped")
        if self.dialect.names is not None and "properties" in result:
            self._check_names(result, path)
        if self.dialect.needs_declared and isinstance(result.get("required"), list):
            self._check_required(result, path)
        if words:
            result["description"] = described(result.get("description"), words)
        return result

    def _has(self, key: str, value: object, node: JSONDict) -> bool:
        """Return whether the dialect has the keyword with this value."""
        dialect = self.dialect
        if key in ALWAYS:
            return True
        if key not in _KEYWORDS:
            return dialect.unknown_keywords
        if SchemaFeature(key) not in dialect.features:
            return False
        if key == "format" and dialect.formats is not None:
            kinds = node.get("type")
            listed = kinds if isinstance(kinds, list) else [kinds]
            return any(value in dialect.formats.get(str(kind), ()) for kind in listed)
        if key == "minItems" and dialect.max_min_items is not None:
            return isinstance(value, int) and value <= dialect.max_min_items
        if key == "enum" and dialect.enum_types is not None:
            return isinstance(value, list) and all(_type_of(item) in dialect.enum_types for item in value)
        return True

    def _value(self, key: str, value: object, path: str, level: int, trail: tuple[int, ...]) -> JSONValue:
        """Return the value of a keyword that stays, with the schemas in it made to fit."""
        if key in MAPS_OF_SCHEMAS and isinstance(value, dict):
            fitted: JSONDict = {}
            for name, child in value.items():
                below = f"{path}/{key}/{pointer(name)}"
                if child is False and not self.dialect.boolean_schemas:
                    self.losses.add("false", below, "dropped", "a property that must not be there")
                else:
                    fitted[name] = self.node(child, below, level + 1, trail)
            return fitted
        if key in LISTS_OF_SCHEMAS and isinstance(value, list):
            return [self.node(child, f"{path}/{key}/{i}", level + 1, trail) for i, child in enumerate(value)]
        if key in SCHEMAS and isinstance(value, dict | bool):
            if isinstance(value, bool) and key != "not":
                return value if key != "items" or self.dialect.boolean_schemas else {}
            return self.node(value, f"{path}/{key}", level + 1, trail)
        return value

    def _check_names(self, node: JSONDict, path: str) -> None:
        """Rename top-level properties whose names the vendor refuses, and leave out those further in."""
        assert self.dialect.names is not None
        properties: JSONDict = {}
        free = _FreeNames(node["properties"])
        for name, child in node["properties"].items():
            if self.dialect.names.fullmatch(name):
                properties[name] = child
            elif path == "":
                other = free.near(name)
                properties[other] = child
                self.renamed[other] = name
                self.losses.add("name", f"/properties/{pointer(name)}", "rewritten", f"as {other}")
            else:
                self.losses.add("name", f"{path}/properties/{pointer(name)}", "dropped", "the name is not allowed")
        if isinstance(node.get("required"), list):
            new = {old: other for other, old in self.renamed.items()} if path == "" else {}
            known = node["properties"]
            node["required"] = [
                new.get(name, name)
                for name in node["required"]
                if name in new or name in properties or name not in known
            ]
        node["properties"] = properties

    def _check_required(self, node: JSONDict, path: str) -> None:
        """Leave out of `required` what is not a property."""
        properties = node.get("properties", {})
        known = [name for name in node["required"] if name in properties]
        if len(known) < len(node["required"]):
            self.losses.add("required", path, "loosened", "it names what is not a property")
        node["required"] = known
        if not known and self.dialect.strict is None:
            del node["required"]


class _FreeNames:
    """Names of properties that every vendor takes: letters, digits and `_`, at most 60 long."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)
        self._next: dict[str, int] = {}

    def near(self, name: str) -> str:
        """Return the nearest one that is not taken; it is taken then."""
        base = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name[:50])
        base = base if base[:1].isalpha() or base[:1] == "_" else f"_{base}"
        found, number = base, self._next.get(base, 2)
        while found in self._taken:
            found, number = f"{base}_{number}", number + 1
        self._next[base] = number
        self._taken.add(found)
        return found


def _type_of(value: JSONValue) -> str:
    names = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null", list: "array"}
    return names.get(type(value), "object")
