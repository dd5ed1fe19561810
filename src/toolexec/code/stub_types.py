"""JSON Schemas as types of a language, written out as text.

A schema says more than a type can, and it may be hostile: where it cannot be expressed, or is too deep, too wide or
too long, the type is the one that accepts everything. The work is bounded by a `Budget`, however the references branch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from toolexec.code.stub_dialects import PYTHON, Dialect
from toolexec.code.stub_shapes import MAX_PROPERTIES, Record, either, is_record, merge, shapes
from toolexec.code.stub_text import constraints, one_line
from toolexec.errors import InvalidSchemaError
from toolexec.model.json_value import JSONDict, JSONObject, JSONValue
from toolexec.model.schema_graph import SchemaGraph

_MAX_DEPTH: Final = 16
_TOP_LEVELS: Final = 2  # objects so near to the top are written whatever the budget says: their keys help most
_MAX_TYPE: Final = 1_500
_MAX_BRANCHES: Final = 24
_MAX_PARTS: Final = 40
_MAX_NAME: Final = 200
_MAX_DESCRIPTION: Final = 160


@dataclass(slots=True)
class Budget:
    """How much may still be written for one tool: schemas looked at, and characters of types and descriptions."""

    schemas: int = 1_000
    characters: int = 16_000
    cut: bool = False
    """Whether a part of a schema was left out, for there was no room for it."""

    @property
    def left(self) -> bool:
        """Whether nothing was refused so far."""
        return self.schemas >= 0 and self.characters >= 0

    def take(self, *, schemas: int = 0, characters: int = 0) -> bool:
        """Spend so much; False, from then on, when there is not enough."""
        self.schemas -= schemas
        self.characters -= characters
        self.cut = self.cut or not self.left
        return self.left


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A parameter, or a key of a dict: its type, what the type cannot say (`comment`), and what it means."""

    name: str
    type: str
    required: bool
    comment: str = ""
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A type that needs a name: a dict with known keys (`fields`), or an *alias* that refers to itself.

    Other types refer to it by its `token` until it gets its name, of which `words` and `title` give an idea.
    """

    token: str
    words: tuple[str, ...]
    title: str = ""
    fields: tuple[Field, ...] = ()
    alias: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """What a tool takes: the required ones first. `rest` is the type of further ones, empty when there are none."""

    fields: tuple[Field, ...]
    rest: str = ""


class SchemaTypes:
    """The types of one schema document (parsed JSON); `definitions` are those that were needed, the inner ones first.

    *tokens* numbers the definitions, one iterator for all documents that are put together; *dialect* says how the
    language writes types.
    """

    def __init__(
        self, document: JSONValue, budget: Budget, tokens: Iterable[int], *, dialect: Dialect = PYTHON
    ) -> None:
        self.definitions: list[Definition] = []
        self._dialect = dialect
        self._any = dialect.any
        self._document = document
        self._budget = budget
        self._numbers = iter(tokens)
        self._graph: SchemaGraph | None = None
        self._types: dict[int, str] = {}
        self._open: set[int] = set()
        self._tokens: dict[int, str] = {}
        self._defined: set[str] = set()
        self._titles: dict[int, str] = {}
        self._made: list[Any] = []  # kept, for what is known of a schema is known by its id()

    def type_of(self, schema: JSONValue, words: tuple[str, ...]) -> str:
        """Return the type of the values that *schema*, a part of the document, accepts; *words* name where it is."""
        if not isinstance(schema, dict):
            return self._any
        key = id(schema)
        known = self._types.get(key)
        if known is not None:
            return known
        if key in self._open:
            return self._token(key)
        if len(self._open) >= _MAX_DEPTH or not self._budget.take(schemas=1):
            return self._cut()
        self._open.add(key)
        text = self._type(schema, words)
        self._open.discard(key)
        affordable = self._budget.take(characters=len(text)) or text == self._tokens.get(key)
        if len(text) > _MAX_TYPE or not affordable:
            text = self._cut()
        token = self._tokens.get(key)
        if token is not None and token != text and token not in self._defined:
            self._define(Definition(token=token, words=words, title=self._titles.get(key, ""), alias=text))
            text = token
        self._types[key] = text
        return text

    def parameters(self, words: tuple[str, ...]) -> Parameters:
        """Return the document as the parameters of a function."""
        if self._document is False:
            return Parameters(fields=())
        parts = self._parts([self._document])
        record = self._arguments(parts)
        found = self._fields(record, words)
        if not found and record.extra is None and not any("properties" in part for part in parts):
            return Parameters(fields=(), rest=self._any)
        named = len(record.properties) <= MAX_PROPERTIES and all(map(_nameable, record.properties))
        rest = self._rest(record, words) if named else self._cut()
        return Parameters(fields=tuple(sorted(found, key=lambda field: not field.required)), rest=rest)

    def _arguments(self, parts: Sequence[JSONDict]) -> Record:
        """Return the whole document, taken apart, as the object that it has to be."""
        keep = self._made.append
        record = merge(parts, keep)
        for part in parts:
            branches = part.get("anyOf", part.get("oneOf"))
            if isinstance(branches, list) and len(branches) <= _MAX_BRANCHES:
                record = either(record, [merge(self._parts([branch]), keep) for branch in branches], keep)
        return record

    # -- one schema ---------------------------------------------------------------------------------------------

    def _type(self, schema: JSONDict, words: tuple[str, ...]) -> str:
        ref = schema.get("$ref")
        if isinstance(ref, str) and len(shapes(schema)) == 1:
            return self.type_of(self._target(schema, ref), words)
        if isinstance(ref, str) or isinstance(schema.get("allOf"), list):
            return self._combined(schema, words)
        if "const" in schema:
            return self._dialect.literal([schema["const"]])
        values = schema.get("enum")
        if isinstance(values, list):
            return self._dialect.literal(values)
        branches = schema.get("anyOf", schema.get("oneOf"))
        if isinstance(branches, list) and not schema.get("properties"):
            return self._either(schema, branches, words)
        kinds = schema.get("type")
        named = kinds if isinstance(kinds, list) else [kinds] if kinds is not None else _implied(schema)
        return self._union(self._one(kind, schema, words) for kind in named[:_MAX_BRANCHES]) if named else self._any

    def _one(self, kind: JSONValue, schema: JSONDict, words: tuple[str, ...]) -> str:
        match kind:
            case "object":
                return self._object(schema, words)
            case "array":
                return self._array(schema, words)
            case str():
                return self._dialect.plain.get(kind, self._any)
            case _:
                return self._any

    def _either(self, schema: JSONDict, branches: list[Any], words: tuple[str, ...]) -> str:
        """Return one of several; what says nothing of its type has that of the whole."""
        chosen = [branch for branch in branches if branch is not False]
        if not chosen:
            return self._any
        if len(chosen) > _MAX_BRANCHES:
            return self._cut()
        if all(isinstance(branch, dict) and branch.keys() & {"const", "enum"} for branch in chosen):
            values = [branch.get("enum", [branch.get("const")]) for branch in chosen]
            return self._dialect.literal([v for some in values for v in (some if isinstance(some, list) else [])])
        found: list[str] = []
        for branch in chosen:
            untyped = isinstance(branch, dict) and "type" in schema and not shapes(branch) - {"required"}
            whole = self._keep({**branch, "type": schema["type"]}) if untyped else branch
            found.append(self.type_of(whole, words))
        return self._union(found)

    def _array(self, schema: JSONDict, words: tuple[str, ...]) -> str:
        words = (*words, "item")
        items = schema.get("items")
        first = schema.get("prefixItems", items)
        if not isinstance(first, list) or not first:
            return self._dialect.array(self.type_of(items, words))
        if len(first) > _MAX_BRANCHES:
            return self._dialect.array(self._cut())
        more = items if "prefixItems" in schema else schema.get("additionalItems")
        types = [self.type_of(item, (*words, str(number))) for number, item in enumerate(first, 1)]
        closed = more is False or schema.get("maxItems") == len(first)
        return self._dialect.tuple(types, "" if closed else self.type_of(more, words))

    def _object(self, schema: JSONDict, words: tuple[str, ...], owner: int = 0) -> str:
        record = merge([schema], self._made.append)
        if not record.properties:
            return self._dialect.mapping(self._rest(record, words) or self._any)
        if len(record.properties) > MAX_PROPERTIES or not all(map(_nameable, record.properties)):
            return self._dialect.mapping(self._cut())
        key = owner or id(schema)
        fields = tuple(self._fields(record, words))
        rest = self._rest(record, words)
        if not fields or not (self._budget.left or len(self._open) <= _TOP_LEVELS):
            return self._dialect.mapping((self._budget.left and rest) or self._any)
        token = self._token(key)
        note = f"and any other keys: {rest}" if rest else ""
        self._define(Definition(token=token, words=words, title=self._titles.get(key, ""), fields=fields, note=note))
        return token

    def _rest(self, record: Record, words: tuple[str, ...]) -> str:
        """Return the type of keys that have no names here; empty when the schema does not speak of such."""
        if not record.patterns and (record.extra is None or record.extra is False):
            return ""
        extra = [record.extra] if record.extra is not None and record.extra is not False else []
        schemas = [*record.patterns[:_MAX_BRANCHES], *extra]
        return self._union(self.type_of(schema, (*words, "value")) for schema in schemas)

    def _fields(self, record: Record, words: tuple[str, ...]) -> list[Field]:
        found: list[Field] = []
        for name, schema in record.properties.items():
            required = name in record.required
            if (schema is False and not required) or not _nameable(name):
                continue
            if len(found) == MAX_PROPERTIES:
                break
            part: JSONObject = schema if isinstance(schema, dict) else {}
            comment, description = constraints(part, self._dialect.words), self._description(part)
            type = self.type_of(schema, (*words, name))
            if not self._budget.take(characters=len(name) + len(comment) + len(description)):
                comment = description = ""
            found.append(Field(name=name, type=type, required=required, comment=comment, description=description))
        return found

    def _description(self, schema: JSONObject) -> str:
        own = one_line(schema.get("description"), _MAX_DESCRIPTION)
        ref = schema.get("$ref")
        if own or not isinstance(ref, str):
            return own
        target = self._target(schema, ref)
        return one_line(target.get("description"), _MAX_DESCRIPTION) if isinstance(target, dict) else ""

    # -- schemas that belong together ---------------------------------------------------------------------------

    def _combined(self, schema: JSONDict, words: tuple[str, ...]) -> str:
        """Return a reference, or several schemas that all hold: one type when they make up one object, or one of them
        says it all."""
        parts = self._parts([schema])
        kinds = [part for part in parts if shapes(part) - {"required"}]
        if not kinds:
            return self._any
        if len(parts) > 1 and all(map(is_record, parts)):
            return self._object(self._keep(merge(parts, self._made.append).to_schema()), words, id(schema))
        if len(kinds) > 1:
            return self._any
        return self.type_of(kinds[0], words)

    def _parts(self, schemas: Sequence[Any]) -> list[JSONDict]:
        """Return the schemas and all that hold with them, references and `allOf` taken apart; too many give none."""
        found: list[JSONDict] = []
        pending = list(reversed(schemas))
        seen: set[int] = set()
        while pending:
            schema = pending.pop()
            if not isinstance(schema, dict) or id(schema) in seen:
                continue
            seen.add(id(schema))
            if len(seen) > _MAX_PARTS:
                self._cut()
                return []
            ref, every = schema.get("$ref"), schema.get("allOf")
            if not isinstance(ref, str) and not isinstance(every, list):
                found.append(schema)
                continue
            own = {key: value for key, value in schema.items() if key not in {"$ref", "allOf"}}
            if shapes(own):
                found.append(self._keep(own))
            pending += reversed(every if isinstance(every, list) else [])
            if isinstance(ref, str):
                pending.append(self._target(schema, ref))
        return found

    def _target(self, schema: JSONValue, ref: str) -> JSONValue:
        """Return what a reference points at; None when it dangles or is ambiguous."""
        try:
            if self._graph is None:
                self._graph = SchemaGraph(self._document)
            targets = self._graph.targets(schema, ref)
        except InvalidSchemaError:
            return None
        if not targets or any(target is not targets[0] for target in targets):
            return None
        _, found, name = ref.rpartition("#/$defs/") if "#/$defs/" in ref else ref.rpartition("#/definitions/")
        if found and "/" not in name:
            self._titles.setdefault(id(targets[0]), name)
        return targets[0]

    def _cut(self) -> str:
        """Return the type that accepts everything in place of one that there is no room for."""
        self._budget.cut = True
        return self._any

    def _union(self, types: Iterable[str]) -> str:
        return self._dialect.union(types, _MAX_BRANCHES)

    def _keep(self, schema: JSONDict) -> JSONDict:
        self._made.append(schema)
        return schema

    def _define(self, definition: Definition) -> None:
        self.definitions.append(definition)
        self._defined.add(definition.token)

    def _token(self, key: int) -> str:
        token = self._tokens.get(key)
        if token is None:
            token = self._tokens[key] = f"\x00{next(self._numbers)}\x00"
        return token


def _nameable(key: str) -> bool:
    """Return whether a type can have this key: not an empty one, and not one that is a text of its own."""
    return 0 < len(key) <= _MAX_NAME


def _implied(schema: JSONObject) -> list[str]:
    """Return the type that a schema without one has in mind."""
    if schema.keys() & {"properties", "additionalProperties", "patternProperties"}:
        return ["object"]
    return ["array"] if schema.keys() & {"items", "prefixItems"} else []
