"""JSON Schema: keep it, check that it is safe to use, and check values against it.

A `Schema` holds its JSON text and is immutable; it is compiled at its first use and the compiled form is kept in a
bounded cache (`jsonschema-rs`, about 14 KB each). Schemas come from remote servers, so nothing here trusts them:
size, depth and the work that `$ref` can multiply are bounded before a schema is accepted, and no document is ever
fetched. `format` is not enforced and `default` is not applied.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

import jsonschema_rs

from toolexec.errors import InvalidSchemaError, Violation
from toolexec.errors.hints import did_you_mean
from toolexec.model.json_value import JSONObject, JSONValue, NotJSONError, to_json, to_json_lossy
from toolexec.model.schema_graph import SchemaGraph
from toolexec.model.schema_growth import CountingValidator, Validator, bounded
from toolexec.model.schema_guard import MAX_SCHEMA_BYTES, guard_schema, has_references
from toolexec.model.violations import MASK, describe_error

__all__ = ["DRAFT_07", "DRAFT_2020_12", "EMPTY_OBJECT", "Schema", "SchemaLike"]

DRAFT_2020_12: Final = "https://json-schema.org/draft/2020-12/schema"
DRAFT_07: Final = "http://json-schema.org/draft-07/schema#"
_DIALECTS: Final[dict[str, type[jsonschema_rs.Validator]]] = {
    DRAFT_2020_12: jsonschema_rs.Draft202012Validator,
    f"{DRAFT_2020_12}#": jsonschema_rs.Draft202012Validator,
    DRAFT_07: jsonschema_rs.Draft7Validator,
    DRAFT_07.rstrip("#"): jsonschema_rs.Draft7Validator,
    "https://json-schema.org/draft-07/schema#": jsonschema_rs.Draft7Validator,
    "https://json-schema.org/draft-07/schema": jsonschema_rs.Draft7Validator,
}
_MAX_COMPILED: Final = 1024
_TYPES: Final = ("string", "number", "integer", "boolean", "object", "array", "null")
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
        if isinstance(value, str | bytes | bytearray):
            return cls._from_text(value)
        if not isinstance(value, Mapping | bool):
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
            parsed = json.loads(text, parse_constant=_refuse_constant)
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
                _dialect_of(self.to_json())
            guard_schema(text)
            self._guarded = True
        return self

    def check(self) -> Schema:
        """Compile the schema now, to have a mistake in it found at once. Returns the schema itself.

        Raises InvalidSchemaError, with the JSON pointer of the place in `details["pointer"]`.
        """
        if self.text not in _compiled:
            _compile(self.text)
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
        return (_compiled.get(self.text) or _compile(self.text)).is_valid(value)

    def violations(self, value: object) -> tuple[Violation, ...]:
        """Return every way in which the JSON form of *value* breaks the schema, at most 100, by path; empty if it
        conforms.

        A single one, with the keyword `depth`, stands for all when looking for them would take too long: in a schema
        whose alternatives multiply with each level of the value.
        Raises InvalidSchemaError when the schema itself cannot be compiled.
        """
        validator = _compile(self.text)
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


def _dialect_of(schema: object) -> type[jsonschema_rs.Validator]:
    declared = schema.get("$schema", DRAFT_2020_12) if isinstance(schema, dict) else DRAFT_2020_12
    validator = _DIALECTS.get(declared) if isinstance(declared, str) else None
    if validator is None:
        raise InvalidSchemaError(
            f"schema dialect {str(declared)[:200]!r} is not supported; use {DRAFT_2020_12} or {DRAFT_07}",
            code="unsupported_schema",
        )
    return validator


_compiled: dict[str, Validator] = {}
_compiling = threading.Lock()


def _compile(text: str) -> Validator:
    """The compiled schema; the oldest is forgotten when there are too many."""
    known = _compiled.get(text)
    if known is not None:
        return known
    validator = _build(text)
    with _compiling:
        if len(_compiled) >= _MAX_COMPILED:
            del _compiled[next(iter(_compiled))]
        _compiled[text] = validator
    return validator


def _build(text: str) -> Validator:
    guard_schema(text)
    schema = json.loads(text)
    dialect = _dialect_of(schema)
    try:
        validator = dialect(schema, validate_formats=False, offline=True, mask=MASK)
        return bounded(validator, schema) if has_references(text) else validator
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        path = _place_of(error, schema)
        pointer = "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in path)
        raise InvalidSchemaError(
            f"the schema is not valid at {pointer or 'its root'}: {_reason_of(error, schema, path)}",
            details={"pointer": pointer},
        ) from error


def _reason_of(error: Exception, schema: JSONValue, path: Sequence[str | int]) -> str:
    """What the compiler says, with the value at the place in words."""
    value = schema
    for part in path:
        value = value[part]
    if path and path[-1] == "type" and isinstance(value, str):
        return f"{value[:60]!r} is not a type; {did_you_mean(value, _TYPES)}"
    return str(error).split("\n", 1)[0].replace(MASK, _encode(to_json_lossy(value))[:60])[:300]


def _place_of(error: Exception, schema: object) -> list[str | int]:
    """The path to the place in *schema* that an error of the compiler is about; empty for the root."""
    path: list[str | int] = list(getattr(error, "instance_path", ()))
    dangling = re.search(r"Pointer '(.*?)' does not exist", str(error))
    if not path and dangling is not None:
        path = _path_of_reference(schema, f"#{dangling[1]}")
    return path


def _path_of_reference(schema: object, reference: str) -> list[str | int]:
    """Where in *schema* is a `$ref` with this text; empty when it is nowhere."""
    pending: list[tuple[list[str | int], JSONValue]] = [([], schema)]
    while pending:
        path, node = pending.pop()
        if isinstance(node, dict):
            if node.get("$ref") == reference:
                return [*path, "$ref"]
            pending += [([*path, key], child) for key, child in node.items()]
        elif isinstance(node, list):
            pending += [([*path, number], child) for number, child in enumerate(node)]
    return []


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


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


EMPTY_OBJECT: Final = Schema.of({"type": "object"})
"""The schema of a tool that says nothing about its arguments: any object."""
