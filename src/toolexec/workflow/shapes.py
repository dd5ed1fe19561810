"""Shapes: what is known about a value before a workflow runs. What is not known is never held against it.

A shape gives the kinds that a value may be of and, where they are known, its members and items. Those of schemas
are read on demand and within a budget: schemas come from servers, refer to themselves and multiply.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal, TypeAlias, cast

from toolexec.errors import ToolExecError
from toolexec.model.json_value import JSONDict
from toolexec.model.schema import Schema
from toolexec.model.schema_graph import Node, SchemaGraph

Kind: TypeAlias = Literal["null", "boolean", "number", "string", "list", "object"]
KINDS: Final[frozenset[Kind]] = frozenset({"null", "boolean", "number", "string", "list", "object"})

_OF_SCHEMA: Final[dict[str, Kind]] = {
    "null": "null",
    "boolean": "boolean",
    "number": "number",
    "integer": "number",
    "string": "string",
    "array": "list",
    "object": "object",
}
_ORDER: Final[tuple[Kind, ...]] = ("string", "number", "boolean", "list", "object", "null")
_MAX_OPTIONS: Final = 32
_MAX_STEPS: Final = 400
_MAX_WORK: Final = 200_000
_MAX_NAMES: Final = 300
_MAX_DEPTH: Final = 40


@dataclass(frozen=True, slots=True)
class Found:
    """A member as a shape knows it: `there` (or nothing is known), `undeclared` where an object has declared members
    and this is not among them, `absent` where there can be no such member."""

    shape: Shape
    state: Literal["there", "undeclared", "absent"] = "there"


class Shape:
    """What is known about a value; this class itself knows nothing but the kinds that it may be of."""

    kinds: frozenset[Kind]

    def __init__(self, kinds: frozenset[Kind] = KINDS) -> None:
        self.kinds = kinds

    def member(self, name: str) -> Found:
        """Return what is known about a member of the object."""
        return _UNKNOWN

    def names(self) -> list[str]:
        """Return the names of the members that are known, at most 300."""
        return []

    def item(self) -> Shape:
        """Return what is known about all items of the list."""
        return ANY

    def choices(self) -> list[object] | None:
        """Return all values that it may have where it is a string; None where any may be."""
        return None

    @property
    def is_nullable(self) -> bool:
        """Whether a schema says that it may be null, and what else it may be."""
        return False

    def may_be(self, *kinds: Kind) -> bool:
        """Return whether the value may be of one of these kinds."""
        return not self.kinds.isdisjoint(kinds)

    def is_only(self, kind: Kind) -> bool:
        """Return whether the value is certainly of this kind."""
        return len(self.kinds) == 1 and kind in self.kinds


class ObjectShape(Shape):
    """An object whose members are known; an open one may have others."""

    def __init__(self, members: Mapping[str, Shape], *, is_open: bool = False) -> None:
        super().__init__(frozenset({"object"}))
        self.members = members
        self.is_open = is_open

    def member(self, name: str) -> Found:
        """Return the member, if it is there or the object is open."""
        known = self.members.get(name)
        if known is not None:
            return Found(known)
        return _UNKNOWN if self.is_open else _ABSENT

    def names(self) -> list[str]:
        """Return the names of its members, at most 300."""
        return list(self.members)[:_MAX_NAMES]


class ListShape(Shape):
    """A list of items that have a shape in common."""

    def __init__(self, item: Shape) -> None:
        super().__init__(frozenset({"list"}))
        self._item = item

    def item(self) -> Shape:
        """Return the shape of all items."""
        return self._item


class _Union(Shape):
    """One of several shapes."""

    def __init__(self, options: Sequence[Shape]) -> None:
        super().__init__(frozenset[Kind]().union(*(option.kinds for option in options)))
        self.options = options

    def member(self, name: str) -> Found:
        found = [option.member(name) for option in self.options if option.may_be("object")]
        left = [each for each in found if each.state != "absent"]
        if not left:
            return _ABSENT
        state = "undeclared" if all(each.state == "undeclared" for each in left) else "there"
        return Found(union(each.shape for each in left), state)

    def names(self) -> list[str]:
        return list(dict.fromkeys(name for option in self.options for name in option.names()))[:_MAX_NAMES]

    def item(self) -> Shape:
        return union(option.item() for option in self.options if option.may_be("list"))


ANY: Final = Shape()
NULL: Final = Shape(frozenset({"null"}))
BOOLEAN: Final = Shape(frozenset({"boolean"}))
NUMBER: Final = Shape(frozenset({"number"}))
STRING: Final = Shape(frozenset({"string"}))
_UNKNOWN: Final = Found(ANY)
_ABSENT: Final = Found(ANY, "absent")
_PLAIN: Final[dict[Kind, Shape]] = {"null": NULL, "boolean": BOOLEAN, "number": NUMBER, "string": STRING}


def of_kinds(*kinds: Kind) -> Shape:
    """Return the shape of a value of one of these kinds, about which nothing more is known."""
    return _PLAIN.get(kinds[0], Shape(frozenset(kinds))) if len(kinds) == 1 else Shape(frozenset(kinds))


def list_of(item: Shape) -> Shape:
    """Return the shape of a list."""
    return ListShape(item)


def union(shapes: Iterable[Shape]) -> Shape:
    """Return the shape of a value that has one of these shapes."""
    options: list[Shape] = []
    for shape in shapes:
        if shape is ANY:
            return ANY
        for option in shape.options if isinstance(shape, _Union) else (shape,):
            if not any(option is known for known in options):
                options.append(option)
        if len(options) > _MAX_OPTIONS:
            return ANY
    if not options:
        return ANY
    if len(options) == 1:
        return options[0]
    if all(type(option) is Shape for option in options):
        return Shape(frozenset[Kind]().union(*(option.kinds for option in options)))
    return _Union(options)


def of_value(value: object, depth: int = 0) -> Shape:
    """Return the shape of a JSON value that is there."""
    if isinstance(value, Mapping) and depth < _MAX_DEPTH:
        members = cast("Mapping[str, object]", value)
        return ObjectShape({name: of_value(member, depth + 1) for name, member in members.items()})
    if isinstance(value, list | tuple) and depth < _MAX_DEPTH:
        return ListShape(union(of_value(item, depth + 1) for item in cast("Sequence[object]", value)))
    kind = kind_of(value)
    return ANY if kind is None else of_kinds(kind)


def kind_of(value: object) -> Kind | None:
    """Return the kind of a JSON value; None for what is not JSON."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    if isinstance(value, Mapping):
        return "object"
    return "list" if isinstance(value, list | tuple) else None


def kinds_text(kinds: frozenset[Kind]) -> str:
    """Return the kinds in words: `a string or a number`."""
    words = [("null" if kind == "null" else f"an {kind}" if kind == "object" else f"a {kind}") for kind in _ORDER]
    named = [word for kind, word in zip(_ORDER, words, strict=True) if kind in kinds]
    return " or ".join(filter(None, [", ".join(named[:-1]), named[-1]])) if named else "nothing"


# -- schemas ----------------------------------------------------------------------------------------------------


class SchemaDocument:
    """One schema, and the budget for reading shapes from it. What it refuses to be read as is an unknown shape."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.work: int = _MAX_WORK
        self.is_old: bool = "draft-07" in schema.text[:2000]
        try:
            self._graph: SchemaGraph | None = SchemaGraph(schema.to_json())
        except (ToolExecError, RecursionError):
            self._graph = None

    @cached_property
    def shape(self) -> Shape:
        """The shape of a value that conforms."""
        return ANY if self._graph is None else self.read([(self._graph.root,)])

    def read(self, options: Sequence[Sequence[object]]) -> Shape:
        """Return the shape of a value that conforms to all subschemas of one of *options*."""
        return _SchemaShape(self, options) if self.work > 0 else ANY

    def targets(self, node: Node) -> list[object]:
        """Return what the `$ref` of *node* certainly means; nothing where that is not certain."""
        reference = node.get("$ref")
        if not isinstance(reference, str) or self._graph is None:
            return []
        try:
            found = self._graph.targets(node, reference)
        except ToolExecError:
            return []
        return found if len({id(each) for each in found}) == 1 else []

    def expand(self, options: Sequence[Sequence[object]]) -> list[list[Node]] | None:
        """Return the options with references and combinations resolved: each a list of nodes that all hold.

        None when there are too many.
        """
        done: list[list[Node]] = []
        pending: list[tuple[list[object], list[Node]]] = [(list(option), []) for option in options]
        steps = 0
        while pending:
            steps += 1
            self.work -= 1
            if steps > _MAX_STEPS or len(done) > _MAX_OPTIONS or self.work < 0:
                return None
            todo, have = pending.pop()
            if not todo:
                done.append(have)
                continue
            first, *others = todo
            if isinstance(first, tuple):  # one of these
                branches = cast("tuple[object, ...]", first)
                pending.extend(([branch, *others], have) for branch in branches)
            elif isinstance(first, dict):
                node = cast("Node", first)
                if any(node is known for known in have):
                    pending.append((others, have))
                else:
                    is_reference = self.is_old and "$ref" in node  # its siblings do not count there
                    pending.append(([*self._also(node), *others], have if is_reference else [*have, node]))
            elif first is not False:
                pending.append((others, have))
        return done

    def _also(self, node: Node) -> Iterator[object]:
        """Yield what else holds for a value that conforms to *node*; alternatives as a tuple."""
        yield from self.targets(node)
        if self.is_old and "$ref" in node:
            return
        every = node.get("allOf")
        yield from cast("list[object]", every) if isinstance(every, list) else ()
        for key in ("anyOf", "oneOf"):
            branches = node.get(key)
            if isinstance(branches, list) and branches:
                yield tuple(cast("list[object]", branches))


class _SchemaShape(Shape):
    """What a schema says about a value; read when it is asked for."""

    def __init__(self, document: SchemaDocument, options: Sequence[Sequence[object]]) -> None:
        self._document = document
        expanded = document.expand(options)
        self._options = [] if expanded is None else [(kinds, nodes) for nodes in expanded if (kinds := _kinds(nodes))]
        super().__init__(frozenset[Kind]().union(*(kinds for kinds, _ in self._options)) or KINDS)

    @property
    def is_nullable(self) -> bool:
        return bool(self._options) and "null" in self.kinds and 1 < len(self.kinds) < len(KINDS)

    def choices(self) -> list[object] | None:
        found: list[object] = []
        for kinds, nodes in self._options:
            if "string" in kinds:
                lists = [node["enum"] for node in nodes if isinstance(node.get("enum"), list)]
                lists += [[node["const"]] for node in nodes if "const" in node]
                if not lists:
                    return None
                found += cast("list[object]", lists[0])
        return found or None

    def member(self, name: str) -> Found:
        read = [_member(nodes, name) for kinds, nodes in self._options if "object" in kinds]
        if not read:
            return _UNKNOWN if not self._options else _ABSENT
        left = [each for each in read if each is not None]
        if not left:
            return _ABSENT
        state = "undeclared" if all(each.state == "undeclared" for each in left) else "there"
        if not all(each.schemas for each in left):
            return Found(ANY, state)
        return Found(self._document.read([each.schemas for each in left]), state)

    def names(self) -> list[str]:
        found: dict[str, None] = {}
        for _, nodes in self._options:
            for node in nodes:
                for name in list(_mapping(node.get("properties")))[:_MAX_NAMES]:
                    found[name[:200]] = None
        return list(found)[:_MAX_NAMES]

    def item(self) -> Shape:
        schemas = [_items(nodes) for kinds, nodes in self._options if "list" in kinds]
        if not schemas or not all(schemas):
            return ANY
        return self._document.read(schemas)


@dataclass(frozen=True, slots=True)
class _Read:
    schemas: list[object]
    state: Literal["there", "undeclared"]


def _member(nodes: Sequence[Node], name: str) -> _Read | None:
    """Return what the nodes together say about a member; None when it cannot be there."""
    schemas: list[object] = []
    declares, is_declared = False, False
    for node in nodes:
        members = _mapping(node.get("properties"))
        declares = declares or bool(members)
        extra = node.get("additionalProperties")
        if name in members:
            is_declared = True
            schemas.append(members[name])
        elif _mapping(node.get("patternProperties")):
            is_declared = True  # whether a pattern fits is not looked at
        elif extra is not None:
            is_declared = True
            schemas.append(extra)
        is_declared = is_declared or "unevaluatedProperties" in node
    if any(schema is False for schema in schemas):
        return None
    known: list[object] = [schema for schema in schemas if isinstance(schema, dict) and schema]
    return _Read(known, "undeclared" if declares and not is_declared else "there")


def _items(nodes: Sequence[Node]) -> list[object]:
    """Return the schemas of all items; nothing where they differ or are not known."""
    if any("prefixItems" in node for node in nodes):
        return []
    return [node["items"] for node in nodes if isinstance(node.get("items"), dict)]


def _kinds(nodes: Sequence[Node]) -> frozenset[Kind]:
    kinds = KINDS
    for node in nodes:
        declared = node.get("type")
        if isinstance(declared, str | list):
            names = [declared] if isinstance(declared, str) else cast("list[object]", declared)
            if all(isinstance(name, str) and name in _OF_SCHEMA for name in names):
                kinds &= frozenset(_OF_SCHEMA[str(name)] for name in names)
        if "const" in node:
            kinds &= _kinds_of([node["const"]])
        choices = node.get("enum")
        if isinstance(choices, list):
            kinds &= _kinds_of(cast("list[object]", choices)[:1000] if len(choices) <= 1000 else [])
    return kinds


def _kinds_of(values: Sequence[object]) -> frozenset[Kind]:
    """Return the kinds of these values; all when there are none to go by."""
    return frozenset(kind for value in values if (kind := kind_of(value)) is not None) or KINDS


def _mapping(value: object) -> JSONDict:
    return cast("JSONDict", value) if isinstance(value, dict) else {}
