"""JSON Schema: keep it, check that it is safe to use, and check values against it.

A `Schema` holds its JSON text and is immutable; it is compiled at its first use and the compiled form is kept in a
bounded cache (`jsonschema-rs`, about 14 KB each). Schemas come from remote servers, so nothing here trusts them:
size, depth and the work that `$ref` can multiply are bounded before a schema is accepted, and no document is ever
fetched. `format` is not enforced and `default` is not applied.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final, TypeAlias

from toolexec.errors import InvalidSchemaError, Violation
from toolexec.model.json_value import JSONDict, JSONObject, JSONValue, NotJSONError, refuse_constant, to_json
from toolexec.model.schema_compile import (
    COMPILED,
    COMPILED_FLAT,
    compile_flat,
    compile_schema,
    dialect_of,
)
from toolexec.model.schema_graph import SchemaGraph
from toolexec.model.schema_growth import CountingValidator
from toolexec.model.schema_guard import MAX_SCHEMA_BYTES, guard_schema
from toolexec.model.tree_size import FLAT
from toolexec.model.violations import describe_error

_MAX_VIOLATIONS: Final = 100
_SECRET: Final = re.compile(r'"writeOnly"|"password"|\\u')
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


class Schema:
    """An immutable JSON Schema, 2020-12 unless its `$schema` says draft-07.

    Build one with `Schema.of`. Two schemas are equal when they are the same JSON, whatever the order of keys.
    """

    __slots__ = ("_guarded", "text")

    text: str
    """The schema as compact JSON."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._guarded = False

    @classmethod
    def of(cls, value: SchemaLike) -> Schema:
        """Take a schema as a mapping, a boolean, JSON text or UTF-8 bytes; later changes to *value* have no effect.

        Raises InvalidSchemaError when it is not a JSON object or boolean, or larger than 1 MiB.
        """
        if isinstance(value, Schema):
            return value
        if isinstance(value, (str, bytes, bytearray)):
            return cls._from_text(value)
        if type(value) is not dict and not isinstance(value, (Mapping, bool)):
            raise InvalidSchemaError(f"a schema is a mapping, a boolean or JSON text, not {type(value).__name__}")
        try:
            text = _encode(value if isinstance(value, bool | dict) else dict(value))
        except RecursionError:
            raise InvalidSchemaError("the schema is nested too deeply; at most 100 levels are accepted") from None
        except (TypeError, ValueError) as error:
            raise InvalidSchemaError(f"the schema is not JSON: {error}") from error
        return cls._sized(text)

    @classmethod
    def restored(cls, text: str) -> Schema:
        """Return the schema with this text, which was that of one that `guard` let pass, and is not looked at again; it
        is when it is compiled.
        """
        schema = object.__new__(cls)
        schema.text = text
        schema._guarded = True
        return schema

    @classmethod
    def _from_text(cls, value: str | bytes | bytearray) -> Schema:
        try:
            text = value if isinstance(value, str) else value.decode()
            if len(text) > MAX_SCHEMA_BYTES:
                return cls._sized(text)
            parsed = json.loads(text, parse_constant=refuse_constant)
        except RecursionError:
            raise InvalidSchemaError("the schema is nested too deeply; at most 100 levels are accepted") from None
        except ValueError as error:
            raise InvalidSchemaError(f"cannot parse the schema as JSON: {error}") from error
        if not isinstance(parsed, dict | bool):
            raise InvalidSchemaError(f"a schema is a JSON object or boolean, not {type(parsed).__name__}")
        return cls(text)

    @classmethod
    def _sized(cls, text: str) -> Schema:
        if len(text) > MAX_SCHEMA_BYTES:
            raise InvalidSchemaError(f"the schema has {len(text)} characters; {MAX_SCHEMA_BYTES} is the most")
        return cls(text)

    def to_json(self) -> JSONValue:
        """Return the schema as a fresh dict (or boolean), yours to change."""
        return json.loads(self.text)

    def guard(self) -> Schema:
        """Refuse what is not safe to compile, without compiling it. Returns the schema itself.

        Raises InvalidSchemaError for another dialect, ExternalRefError for a `$ref` that leaves the document, and
        InvalidSchemaError when it is too deep, or its references form a loop or multiply beyond bounds.
        """
        if not self._guarded:
            text = self.text
            if '"$schema"' in text:
                dialect_of(self.to_json())
            guard_schema(text)
            self._guarded = True
        return self

    def check(self) -> Schema:
        """Compile the schema now, to have a mistake in it found at once. Returns the schema itself.

        Raises InvalidSchemaError, with the JSON pointer of the place in `details["pointer"]`.
        """
        if self.text not in COMPILED:
            compile_schema(self.text)
        return self

    def accepts(self, value: object) -> bool:
        """Return whether *value* has a JSON form, and that conforms; raises InvalidSchemaError when the schema cannot
        be compiled.
        """
        try:
            return self.conforms(to_json(value))
        except NotJSONError:
            return False

    def conforms(self, value: object) -> bool:
        """Return whether *value*, which is plain JSON, conforms; raises InvalidSchemaError as `accepts` does."""
        return (COMPILED.get(self.text) or compile_schema(self.text)).is_valid(value)

    def conforms_flat(self, value: JSONDict) -> bool:
        """Return whether *value* is flat (see `is_flat`; however long it is), is JSON, and conforms; never raises. One
        look of compiled code answers the last two, in two thirds of the time of two. False also where one look is not
        enough: for a schema that has references, or is unusable.
        """
        for item in value.values():  # as `is_flat` does, without its frame: every call passes here twice
            if type(item) not in FLAT:
                return False
        try:
            is_valid = COMPILED_FLAT[self.text]  # `get` takes longer, and what is called is compiled already
        except KeyError:
            is_valid = compile_flat(self.text)
        try:
            return is_valid(value)
        except Exception:  # a key or a text that JSON does not have
            return False

    def violations(self, value: object) -> tuple[Violation, ...]:
        """Return every way in which the JSON form of *value* breaks the schema, at most 100, by path; empty if it
        conforms.

        A single one, with the keyword `depth`, stands for all when looking for them would take too long: in a schema
        whose alternatives multiply with each level of the value.
        Raises InvalidSchemaError when the schema itself cannot be compiled.
        """
        validator = compile_schema(self.text)
        try:
            value = to_json(value)
        except NotJSONError as error:
            return error.violations
        if isinstance(validator, CountingValidator) and not validator.explainable(value):
            return () if validator.is_valid(value) else (_unexplained(validator, value),)
        schema = self.to_json()
        secrets = SchemaGraph(schema) if _SECRET.search(self.text) else None
        found: list[Violation] = []
        for error in validator.iter_errors(value):
            found.append(describe_error(error, schema, value, secrets))
            if len(found) == _MAX_VIOLATIONS:
                break
        return tuple(sorted(found, key=lambda violation: (violation.path, violation.keyword)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Schema):
            return NotImplemented
        return self.text == other.text or same_json(self.to_json(), other.to_json())

    def __hash__(self) -> int:
        return hash(_canonical(self.text))

    def __repr__(self) -> str:
        return f"Schema({self.text if len(self.text) <= 200 else self.text[:197] + '...'})"


SchemaLike: TypeAlias = Schema | JSONObject | bool | str | bytes | bytearray
"""What is accepted wherever a schema is asked for."""


def same_json(left: object, right: object) -> bool:
    """Equality of JSON values: `1` equals `1.0`, `True` does not equal `1`, the order of keys does not matter."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same_json(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(same_json, left, right))
    return bool(left == right)


def _canonical(text: str) -> str:
    return json.dumps(json.loads(text, parse_int=float), sort_keys=True)


def _unexplained(validator: CountingValidator, value: object) -> Violation:
    if validator.checkable(value):
        message = "the value does not fit, and looking for the reason would take too many checks"
    else:
        message = "the value would take too many checks"
    return Violation(
        path="",
        keyword="depth",
        message=f"{message}: the schema's alternatives multiply with each level of it",
        expected="fewer levels",
    )


EMPTY_OBJECT: Final = Schema.of({"type": "object"})
"""The schema of a tool that says nothing about its arguments: any object."""
