"""Compiled schemas, as many as are kept: to check values by, and to check flat dicts in one look."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import jsonschema_rs

from toolexec.errors import InvalidSchemaError
from toolexec.errors.hints import did_you_mean
from toolexec.model.json_value import ANY_FLAT, FLAT_FORMS, FLAT_JSON, JSONDict, JSONValue, to_json_lossy
from toolexec.model.schema_growth import Validator, bounded
from toolexec.model.schema_guard import guard_schema, has_references
from toolexec.model.violations import MASK

DRAFT_2020_12: Final = "https://json-schema.org/draft/2020-12/schema"
"""The `$schema` of JSON Schema 2020-12, the dialect of schemas that name none."""
DRAFT_07: Final = "http://json-schema.org/draft-07/schema#"
"""The `$schema` of JSON Schema draft-07."""
_DIALECTS: Final[dict[str, type[jsonschema_rs.Validator]]] = {
    DRAFT_2020_12: jsonschema_rs.Draft202012Validator,
    f"{DRAFT_2020_12}#": jsonschema_rs.Draft202012Validator,
    DRAFT_07: jsonschema_rs.Draft7Validator,
    DRAFT_07.rstrip("#"): jsonschema_rs.Draft7Validator,
    "https://json-schema.org/draft-07/schema#": jsonschema_rs.Draft7Validator,
    "https://json-schema.org/draft-07/schema": jsonschema_rs.Draft7Validator,
}
_MAX_COMPILED: Final = 1024
_T = TypeVar("_T")

COMPILED: dict[str, Validator] = {}
"""The compiled schemas that are kept, by their text."""

COMPILED_FLAT: dict[str, Callable[[Any], bool]] = {}
"""What `Schema.conforms_flat` asks, by the text of the schema."""

_compiling = threading.Lock()
_TYPES: Final = ("string", "number", "integer", "boolean", "object", "array", "null")


def dialect_of(schema: object) -> type[jsonschema_rs.Validator]:
    """Return the validators of the dialect that a schema names; raises InvalidSchemaError for an unknown one."""
    declared = schema.get("$schema", DRAFT_2020_12) if isinstance(schema, dict) else DRAFT_2020_12
    validator = _DIALECTS.get(declared) if isinstance(declared, str) else None
    if validator is None:
        raise InvalidSchemaError(
            f"schema dialect {str(declared)[:200]!r} is not supported; use {DRAFT_2020_12} or {DRAFT_07}",
            code="unsupported_schema",
        )
    return validator


def compile_schema(text: str) -> Validator:
    """Return the compiled schema; the oldest is forgotten when there are too many. Raises InvalidSchemaError."""
    known = COMPILED.get(text)
    if known is not None:
        return known
    return _kept(COMPILED, text, _build(text))


def compile_flat(text: str) -> Callable[[Any], bool]:
    """Return what `Schema.conforms_flat` asks; the oldest is forgotten when there are too many."""
    try:
        guard_schema(text)
        is_valid = _never if has_references(text) else _with_flat_json(text)
    except (InvalidSchemaError, jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError):
        is_valid = _never  # a check of the value in two looks raises it
    return _kept(COMPILED_FLAT, text, is_valid)


def _kept(cache: dict[str, _T], text: str, compiled: _T) -> _T:
    """Keep what was compiled, in place of the oldest when there are too many; returns it."""
    with _compiling:
        if len(cache) >= _MAX_COMPILED:
            del cache[next(iter(cache))]
        cache[text] = compiled
    return compiled


def _with_flat_json(text: str) -> Callable[[Any], bool]:
    schema = json.loads(text)
    dialect = dialect_of(schema)
    if isinstance(schema, dict):
        schema.pop("$schema", None)  # it may stand at the root only
    properties = _all_properties(schema)
    if properties is None:
        schema = {"allOf": [schema, FLAT_JSON]}
    else:  # a fifth less to look at
        schema = schema | {"properties": {name: _read_as(part) for name, part in properties.items()}}
    return dialect(schema, validate_formats=False, offline=True).is_valid


def _all_properties(schema: JSONValue) -> JSONDict | None:
    """Return the schemas of the properties of an object that can have no others; None where it can."""
    if not isinstance(schema, dict) or schema.get("additionalProperties") is not False or "patternProperties" in schema:
        return None
    properties = schema.get("properties", {})
    return properties if isinstance(properties, dict) else None


def _read_as(schema: JSONValue) -> JSONDict:
    """Return the schema of a property by which its value is read, too, in the way that fits its type."""
    kind = schema.get("type") if isinstance(schema, dict) else None
    return {"allOf": [schema, FLAT_FORMS.get(kind, ANY_FLAT) if isinstance(kind, str) else ANY_FLAT]}


def _never(_: object) -> bool:
    return False


def _build(text: str) -> Validator:
    guard_schema(text)
    schema = json.loads(text)
    dialect = dialect_of(schema)
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
    """Return what the compiler says, with the value at the place in words."""
    value = schema
    for part in path:
        value = value[part]
    if path and path[-1] == "type" and isinstance(value, str):
        return f"{value[:60]!r} is not a type; {did_you_mean(value, _TYPES)}"
    written = json.dumps(to_json_lossy(value), ensure_ascii=False, separators=(",", ":"))
    return str(error).split("\n", 1)[0].replace(MASK, written[:60])[:300]


def _place_of(error: Exception, schema: object) -> list[str | int]:
    """Return the path to the place in *schema* that an error of the compiler is about; empty for the root."""
    path: list[str | int] = list(getattr(error, "instance_path", ()))
    dangling = re.search(r"Pointer '(.*?)' does not exist", str(error))
    if not path and dangling is not None:
        path = _path_of_reference(schema, f"#{dangling[1]}")
    return path


def _path_of_reference(schema: object, reference: str) -> list[str | int]:
    """Return where in *schema* is a `$ref` with this text; empty when it is nowhere."""
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
