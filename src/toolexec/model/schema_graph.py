"""A schema as a graph: which subschemas look at the same value, and which look one level deeper."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias
from urllib.parse import unquote, urljoin

from toolexec.errors import ExternalRefError, InvalidSchemaError
from toolexec.model.json_value import JSONDict, JSONValue

Node: TypeAlias = JSONDict

MAX_SCHEMA_DEPTH: Final = 100
ANY_NAME: Final = "{}"
"""The step into any member of an object."""
ANY_ITEM: Final = "[]"
"""The step into any item of an array."""

_NO_BASE: Final = "https://schema.invalid/"
_IN_PLACE_ONE: Final = ("not", "if", "then", "else")
_IN_PLACE_MANY: Final = ("allOf", "anyOf", "oneOf")
_REFS: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_OF_MEMBERS: Final = ("additionalProperties", "unevaluatedProperties")
_NAMED_SCHEMAS: Final = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}
)
_PLAIN_VALUES: Final = frozenset({"enum", "const", "default", "examples"})
_OF_ITEMS: Final = ("items", "additionalItems", "unevaluatedItems", "contains")


class SchemaGraph:
    """The objects of one schema document, with references resolved inside the document.

    Where the dialects differ, or a name is ambiguous, all readings count: the graph has every edge that a validator
    may follow, and sometimes more. Raises InvalidSchemaError when the document is nested more than 100 levels deep.
    """

    def __init__(self, root: object) -> None:
        self.root = root
        self.nodes: list[Node] = []
        self._homes: dict[int, tuple[JSONValue, str]] = {}
        self._documents: dict[str, list[Node]] = {}
        self._anchors: dict[str, list[Node]] = {}
        self._collect(root)

    def _collect(self, root: object) -> None:
        """Take in a schema and all that it contains, but not the plain values in it, such as a default."""
        pending: list[tuple[JSONValue, int, str, JSONValue, str]] = [(root, 1, "schema", self.root, _NO_BASE)]
        while pending:
            node, depth, role, home, base = pending.pop()
            if depth > MAX_SCHEMA_DEPTH and isinstance(node, dict | list):
                raise too_deep()
            if isinstance(node, dict):
                if role == "schema" and id(node) not in self._homes:
                    home, base = self._take_in(node, home, base)
                for key, child in node.items():
                    pending.append((child, depth + 1, _role_below(role, key), home, base))
            elif isinstance(node, list):
                pending.extend((child, depth + 1, role, home, base) for child in node)

    def _take_in(self, node: Node, home: object, base: str) -> tuple[JSONValue, str]:
        self.nodes.append(node)
        name = node.get("$id")
        if isinstance(name, str):
            address, _, anchor = name.partition("#")
            if anchor:
                self._anchors.setdefault(anchor, []).append(node)
            if address:
                home, base = node, _join(base, address)
                self._documents.setdefault(base, []).append(node)
        for key in ("$anchor", "$dynamicAnchor"):
            anchor = node.get(key)
            if isinstance(anchor, str):
                self._anchors.setdefault(anchor, []).append(node)
        self._homes[id(node)] = home, base
        return home, base

    def same_value(self, node: Node) -> list[JSONValue]:
        """Return the subschemas that look at the same value as *node* does; raises ExternalRefError as `targets`
        does.
        """
        found: list[JSONValue] = [node[key] for key in _IN_PLACE_ONE if key in node]
        for key in _IN_PLACE_MANY:
            branches = node.get(key)
            found.extend(branches if isinstance(branches, list) else ())
        for key in ("dependentSchemas", "dependencies"):
            branches = node.get(key)
            found.extend(branches.values() if isinstance(branches, dict) else ())
        for key in _REFS:
            ref = node.get(key)
            if isinstance(ref, str):
                found.extend(self.targets(node, ref))
        return found

    def deeper(self, node: Node) -> Iterator[tuple[str, Node]]:
        """Yield the subschemas that look one level deeper, each with its step: `.name`, an index, ANY_NAME or
        ANY_ITEM.
        """
        for name, child in _mapping(node.get("properties")).items():
            if isinstance(child, dict):
                yield f".{name}", child
        patterns = _mapping(node.get("patternProperties")).values()
        for child in (*patterns, *(node.get(key) for key in _OF_MEMBERS)):
            if isinstance(child, dict):
                yield ANY_NAME, child
        for key in ("prefixItems", "items"):
            tuple_items = node.get(key)
            for position, child in enumerate(tuple_items if isinstance(tuple_items, list) else ()):
                if isinstance(child, dict):
                    yield str(position), child
        for key in _OF_ITEMS:
            child = node.get(key)
            if isinstance(child, dict):
                yield ANY_ITEM, child

    def targets(self, node: Node, ref: str) -> list[JSONValue]:
        """Return what *ref* in *node* may point at, none when it dangles; raises ExternalRefError for another
        document.
        """
        home, base = self._homes.get(id(node), (self.root, _NO_BASE))
        address, _, fragment = ref.partition("#")
        if address:
            documents: list[JSONValue] = list(self._documents.get(_join(base, address), ()))
            if not documents:
                raise ExternalRefError(
                    f"the schema refers to {ref[:200]!r}, outside of itself; put it under $defs and use '#/$defs/...'"
                )
        else:
            documents = [home] if home is self.root else [home, self.root]
        if not fragment:
            return documents
        if not fragment.startswith("/"):
            return list(self._anchors.get(unquote(fragment), ()))
        found = [target for document in documents if (target := _at(document, fragment)) is not None]
        for target in found:
            if isinstance(target, dict) and id(target) not in self._homes:
                self._collect(target)  # a plain value, which this reference makes a schema
        return found


def too_deep() -> InvalidSchemaError:
    """Return the error for a schema with more levels than are accepted."""
    return InvalidSchemaError(f"the schema is nested too deeply; at most {MAX_SCHEMA_DEPTH} levels are accepted")


def _role_below(role: str, key: str) -> str:
    """Return what the value under *key* is: a schema, named schemas, or a plain value."""
    if role == "schema":
        return "named" if key in _NAMED_SCHEMAS else "plain" if key in _PLAIN_VALUES else "schema"
    return "schema" if role == "named" else "plain"


def _at(node: object, fragment: str) -> JSONValue:
    for escaped in unquote(fragment)[1:].split("/"):
        step = escaped.replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict):
            node = node.get(step)
        elif isinstance(node, list) and step.isdecimal() and int(step) < len(node):
            node = node[int(step)]
        else:
            return None
    return node


def _join(base: str, address: str) -> str:
    try:
        return urljoin(base, address)
    except ValueError:  # not an address that could be resolved
        return address


def _mapping(value: object) -> JSONDict:
    return value if isinstance(value, dict) else {}
