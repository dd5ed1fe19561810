"""Schemas of OpenAPI 3.0 and 3.1 as JSON Schema 2020-12."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Final

from toolexec.backend.providers.openapi.discriminators import discriminate, last_of
from toolexec.backend.providers.openapi.document import Document, InvalidPartError, items_of, mapping_of
from toolexec.backend.providers.openapi.keywords import PLAIN, enum_of, examples_of, is_pattern, plain_value, types_of
from toolexec.model.json_value import JSONDict, JSONValue

Refs = dict[str, None]
"""The references that a converted schema has, as they are in the document, in order."""

encode: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode

_MAX_LEVELS: Final = 45
"""The most schemas inside of each other; each takes two levels of JSON, of which a `Schema` may have 100."""
_MAX_CHECKS: Final = 10_000
_MAX_LINKS: Final = 100
_ONE: Final = frozenset(
    ("not", "if", "then", "else", "contains", "propertyNames", "unevaluatedItems", "unevaluatedProperties")
)
_MANY: Final = frozenset(("allOf", "anyOf", "oneOf", "prefixItems"))
_NAMED: Final = frozenset(("patternProperties", "dependentSchemas"))
_WRAPPED: Final = ("$ref", "allOf", "anyOf", "oneOf", "not", "const")
"""Keywords that refuse null whatever the `type` beside them says."""
_BESIDE_REF: Final = ("description", "default", "deprecated", "nullable", "x-nullable")
_ODD: Final = re.compile(r"[^A-Za-z0-9_.-]+")


class _Definition:
    """A schema that others refer to: its name under `$defs`, its text, what it refers to, or why it cannot be used."""

    __slots__ = ("checks", "name", "problem", "refs", "same", "text", "value")

    def __init__(self, name: str) -> None:
        self.name = name
        self.value: JSONValue = True
        self.text = "true"
        self.refs: tuple[str, ...] = ()
        self.same: list[str] = []
        self.checks: int | None = None
        self.problem = ""


class SchemaTable:
    """Converts schemas of one document; what is referred to is converted once, and stays a reference.

    A table is for one direction: in *output*, what is `writeOnly` need not be there; in input, what is `readOnly` is
    left out. In an output a reference that leads nowhere may be anything; in an input it makes the operation invalid.
    """

    def __init__(self, document: Document, *, output: bool) -> None:
        self._document = document
        self._output = output
        self._siblings = not document.version.startswith(("3.0", "2."))
        self._definitions: dict[str, _Definition] = {}
        self._by_name: dict[str, str] = {}
        self._named: dict[str, str] = {}
        self._hidden: dict[str, bool] = {}
        self._hidden_members: dict[str, frozenset[str]] = {}
        self._sections: dict[tuple[tuple[str, ...], int], str] = {}

    # -- from a schema of the document to one of JSON Schema ---------------------------------------------------------

    def convert(self, node: JSONValue, refs: Refs, level: int = 1) -> JSONValue:
        """Return *node* as JSON Schema, and add what it refers to to *refs*. Raises InvalidPartError when it is nested
        too deeply."""
        if not isinstance(node, dict):
            return node if isinstance(node, bool) else {}
        if level > _MAX_LEVELS:
            raise InvalidPartError(f"a schema has more than {_MAX_LEVELS} levels")
        out: JSONDict = {}
        ref = node.get("$ref")
        if isinstance(ref, str):
            out["$ref"] = f"#/$defs/{self._name_of(ref)}"
            refs[ref] = None
            if not self._siblings:
                node = {key: node[key] for key in _BESIDE_REF if key in node}
        nullable = node.get("nullable") is True or node.get("x-nullable") is True
        types = types_of(node["type"]) if "type" in node else []
        for key, value in node.items():
            check = PLAIN.get(key)
            if check is not None:
                kept = check(value)
                if kept is not None:
                    out[key] = kept
            else:
                self._take(key, value, node, out, refs, level)
        self._finish(node, types, nullable, out)
        return _or_null(out) if nullable and any(key in out for key in _WRAPPED) else out

    def _take(self, key: str, value: JSONValue, node: JSONDict, out: JSONDict, refs: Refs, level: int) -> None:
        """Convert a keyword that holds schemas or plain values."""
        if key == "properties":
            self._properties(value, out, refs, level)
        elif key == "items":
            self._items(value, out, refs, level)
        elif key == "additionalProperties":
            if isinstance(value, bool | dict):
                out[key] = self.convert(value, refs, level + 1)
        elif key in _MANY:
            branches = [self.convert(branch, refs, level + 1) for branch in items_of(value)]
            if branches:
                out[key] = branches
        elif key in _ONE:
            if isinstance(value, bool | dict):
                out[key] = self.convert(value, refs, level + 1)
        elif key in _NAMED:
            named = mapping_of(value).items()
            fine = key != "patternProperties"
            out[key] = {name: self.convert(child, refs, level + 1) for name, child in named if fine or is_pattern(name)}
        elif key in ("default", "const") and plain_value(value):
            out[key] = value

    def _properties(self, value: JSONValue, out: JSONDict, refs: Refs, level: int) -> None:
        kept: JSONDict = {}
        for name, child in mapping_of(value).items():
            if self._output or not self.is_hidden(child):
                kept[name] = self.convert(child, refs, level + 1)
        out["properties"] = kept

    def _items(self, value: JSONValue, out: JSONDict, refs: Refs, level: int) -> None:
        if isinstance(value, list):
            out["prefixItems"] = [self.convert(item, refs, level + 1) for item in value] or [True]
        elif isinstance(value, bool | dict):
            out["items"] = self.convert(value, refs, level + 1)

    def _finish(self, node: JSONDict, types: list[str], nullable: bool, out: JSONDict) -> None:
        """Write what depends on several keywords: types, values, limits, and which properties are required."""
        if nullable and types and "null" not in types and not any(key in out for key in _WRAPPED):
            types = [*types, "null"]
        if types:
            out["type"] = types[0] if len(types) == 1 else types
        if "enum" in node:
            values = enum_of(node["enum"], [each for each in types if each != "null"], nullable="null" in types)
            if values is not None:
                out["enum"] = values
        if "example" in node or "examples" in node:
            examples = examples_of(node)
            if examples:
                out["examples"] = examples
        for key, limit in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
            if node.get(key) is True and limit in out:
                out[key] = out.pop(limit)
        if "discriminator" in node:
            discriminate(self._document, node, out, output=self._output)
        if "required" in out:
            _no_longer_required(out, self._hidden_of(node))
        if "allOf" in out:
            hidden = self._hidden_of(node)
            for part in out["allOf"] if hidden else ():
                if isinstance(part, dict) and "required" in part:
                    _no_longer_required(part, hidden)

    def is_hidden(self, node: JSONValue) -> bool:
        """Return whether a property belongs to the other direction only, by itself or by what it refers to."""
        if not isinstance(node, dict):
            return False
        if node.get("writeOnly" if self._output else "readOnly") is True:
            return True
        ref = node.get("$ref")
        if not isinstance(ref, str):
            return any(self.is_hidden(part) for part in items_of(node.get("allOf")))
        if ref not in self._hidden:
            self._hidden[ref] = False  # what refers to itself says no more about it
            self._hidden[ref] = self.is_hidden(self._referred(ref))
        return self._hidden[ref]

    def _hidden_of(self, node: JSONValue) -> frozenset[str]:
        """Return the properties of an object, and of all that it consists of, that belong to the other direction."""
        if not isinstance(node, dict):
            return frozenset()
        own = frozenset(name for name, child in mapping_of(node.get("properties")).items() if self.is_hidden(child))
        found = own.union(*(self._hidden_of(part) for part in items_of(node.get("allOf"))))
        ref = node.get("$ref")
        if not isinstance(ref, str):
            return found
        if ref not in self._hidden_members:
            self._hidden_members[ref] = frozenset()
            self._hidden_members[ref] = self._hidden_of(self._referred(ref))
        return found | self._hidden_members[ref]

    def _referred(self, ref: str) -> JSONValue:
        """Return what *ref* points at, None where it leads nowhere."""
        try:
            return self._document.at(ref)
        except InvalidPartError:
            return None

    # -- definitions -------------------------------------------------------------------------------------------------

    def _name_of(self, ref: str) -> str:
        """Return the name under `$defs` of what *ref* points at."""
        known = self._named.get(ref)
        if known is not None:
            return known
        base = _ODD.sub("_", last_of(ref))[:80] or "schema"
        name, number = base, 1
        while name in self._by_name:
            number += 1
            name = f"{base}_{number}"
        self._by_name[name] = ref
        self._named[ref] = name
        return name

    def _definition(self, ref: str) -> _Definition:
        found = self._definitions.get(ref)
        if found is None:
            found = self._definitions[ref] = _Definition(self._name_of(ref))
            refs: Refs = {}
            try:
                found.value = self.convert(self._document.at(ref), refs)
                found.text = encode(found.value)
                found.refs = tuple(refs)
                found.same = [self._by_name[name] for name in _same_value(found.value)]
            except (InvalidPartError, ValueError) as error:
                found.value, found.problem = True, str(error)
        return found

    def _checks(self, ref: str, trail: tuple[str, ...] = ()) -> int:
        """Count how often a value is checked by what *ref* points at. Raises InvalidPartError for references that never
        reach a value, and for those that multiply beyond bounds: no schema with them would be accepted."""
        definition = self._definition(ref)
        if definition.checks is None:
            if ref in trail or len(trail) > _MAX_LINKS:
                raise InvalidPartError("the references of a schema form a loop that never reaches a value")
            total = 1 + sum(self._checks(other, (*trail, ref)) for other in definition.same)
            if total > _MAX_CHECKS:
                raise InvalidPartError(f"a schema would check one value more than {_MAX_CHECKS} times")
            definition.checks = total
        return definition.checks

    def _usable(self, ref: str) -> _Definition:
        """Return the definition; its `problem` is set where it cannot be used."""
        definition = self._definition(ref)
        if definition.checks is None and not definition.problem:
            try:
                self._checks(ref)
            except InvalidPartError as error:
                definition.problem, definition.checks = str(error), 1
        return definition

    def definitions(self, refs: Iterable[str], room: int) -> str:
        """Return the members of `$defs` for *refs* and all that they need, as JSON text, in at most *room* characters:
        the nearest first. What has no place there may be anything.

        Raises InvalidPartError for a reference that cannot be followed, in an input.
        """
        start = tuple(refs)
        known = self._sections.get((start, room))
        if known is not None:
            return known
        queue, seen, members = list(start), set(start), list[str]()
        left = room
        for ref in queue:  # it grows on the way
            definition = self._usable(ref)
            if definition.problem and not self._output:
                raise InvalidPartError(definition.problem)
            if definition.problem or len(definition.text) > left:
                members.append(f'"{definition.name}":true')
                continue
            left -= len(definition.text)
            members.append(f'"{definition.name}":{definition.text}')
            for other in definition.refs:
                if other not in seen:
                    seen.add(other)
                    queue.append(other)
        text = self._sections[start, room] = ",".join(members)
        return text

    def root(self, value: JSONValue, refs: Refs, room: int) -> str:
        """Return a converted schema as a whole document of its own, as JSON text: `$defs` has what it refers to. One
        that is nothing but a reference becomes what that points at."""
        if isinstance(value, dict) and value.keys() == {"$ref"}:
            definition = self._usable(next(iter(refs)))
            if definition.problem:
                if not self._output:
                    raise InvalidPartError(definition.problem)
                return "true"
            value, refs = definition.value, dict.fromkeys(definition.refs)
            if isinstance(value, dict) and value.keys() == {"$ref"}:
                return self.root(value, refs, room)
            text = definition.text
        else:
            text = encode(value)
        return with_definitions(text, self.definitions(refs, room)) if refs else text

    def check(self, value: JSONValue) -> None:
        """Raise InvalidPartError when *value* itself refers to what would be checked without end."""
        total = 1
        for name in _same_value(value):
            definition = self._usable(self._by_name[name])
            total += definition.checks or 1
        if total > _MAX_CHECKS:
            raise InvalidPartError(f"a schema would check one value more than {_MAX_CHECKS} times")


def with_definitions(text: str, definitions: str) -> str:
    """Return an object's JSON *text* with `$defs` as its last member."""
    return f'{text[:-1]}{"," if len(text) > 2 else ""}"$defs":{{{definitions}}}}}' if definitions else text


def _same_value(value: JSONValue) -> list[str]:
    """Return the names of the definitions that look at the same value as a converted schema does."""
    found: list[str] = []
    pending = [value]
    while pending:
        node = pending.pop()
        if not isinstance(node, dict):
            continue
        ref = node.get("$ref")
        if ref is not None:
            found.append(ref.removeprefix("#/$defs/"))
        for key in ("allOf", "anyOf", "oneOf"):
            pending.extend(node.get(key, ()))
        pending.extend(node[key] for key in ("not", "if", "then", "else") if key in node)
        pending.extend(node.get("dependentSchemas", {}).values())
    return found


def _no_longer_required(schema: JSONDict, names: frozenset[str]) -> None:
    schema["required"] = [name for name in schema["required"] if name not in names]
    if not schema["required"]:
        del schema["required"]


def _or_null(schema: JSONDict) -> JSONDict:
    """Return a schema that accepts null, too; what describes it stays outside."""
    outside = {key: schema.pop(key) for key in ("title", "description", "default", "deprecated") if key in schema}
    return {"anyOf": [schema, {"type": "null"}], **outside}
