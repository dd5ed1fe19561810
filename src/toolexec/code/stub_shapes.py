"""What a schema says about the shape of a value: which keywords do, and what several of them make together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from toolexec.model.json_value import JSONDict, JSONObject, JSONValue

MAX_PROPERTIES: Final = 100
"""The most parameters, or keys of one dict, that are named."""

_SHAPES: Final = frozenset(
    {
        "$ref",
        "additionalProperties",
        "allOf",
        "anyOf",
        "const",
        "enum",
        "items",
        "oneOf",
        "patternProperties",
        "prefixItems",
        "properties",
        "required",
        "type",
    }
)
_OF_RECORDS: Final = frozenset({"additionalProperties", "patternProperties", "properties", "required", "type"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """An object's keys: the schema of each, which of them must be there, the schemas of keys that match a pattern, and
    the schema of all others (`extra`; False: there are none, None: it is left open)."""

    properties: JSONObject
    required: frozenset[str]
    patterns: Sequence[Any] = ()
    extra: JSONValue = None

    def to_schema(self) -> JSONDict:
        """Return the same as one schema."""
        schema: JSONDict = {
            "type": "object",
            "properties": self.properties,
            "required": [name for name in self.properties if name in self.required],
            "patternProperties": {str(number): part for number, part in enumerate(self.patterns)},
        }
        return schema if self.extra is None else {**schema, "additionalProperties": self.extra}


def shapes(schema: JSONObject) -> frozenset[str]:
    """Return the keywords of *schema* that say which type a value has."""
    return _SHAPES & schema.keys()


def is_record(schema: JSONObject) -> bool:
    """Return whether *schema* describes an object by its keys, and nothing else."""
    found = shapes(schema)
    return bool(found) and found <= _OF_RECORDS and schema.get("type", "object") == "object"


def merge(parts: Sequence[JSONObject], keep: Callable[[Any], object]) -> Record:
    """Return the object that fits all *parts*; *keep* is given each schema that is made on the way."""
    properties: JSONDict = {}
    required: set[str] = set()
    patterns: list[Any] = []
    extra: JSONValue = None
    for part in parts:
        for name, schema in _mapping(part.get("properties")).items():
            properties[name] = _kept({"allOf": [properties[name], schema]}, keep) if name in properties else schema
        names = part.get("required")
        required.update(name for name in names if isinstance(name, str)) if isinstance(names, list) else None
        patterns += _mapping(part.get("patternProperties")).values()
        extra = part.get("additionalProperties") if extra is None else extra
    for name in sorted(required - properties.keys())[:MAX_PROPERTIES]:
        properties[name] = True
    return Record(properties=properties, required=frozenset(required), patterns=patterns, extra=extra)


def either(base: Record, others: Sequence[Record], keep: Callable[[Any], object]) -> Record:
    """Return the object that fits *base* and at least one of *others*: what only some of those require is optional."""
    properties: dict[str, list[Any]] = {}
    for other in others:
        for name, schema in other.properties.items():
            known = properties.setdefault(name, [])
            if schema is not True and schema not in known:
                known.append(schema)
    merged = {
        name: some[0] if len(some) == 1 else _kept({"anyOf": some}, keep) if some else True
        for name, some in properties.items()
    }
    always = frozenset[str].intersection(*(other.required for other in others)) if others else frozenset[str]()
    return Record(
        properties={**merged, **base.properties},
        required=base.required | always,
        patterns=base.patterns,
        extra=base.extra if base.extra is not False or not merged else None,
    )


def _mapping(value: JSONValue) -> JSONObject:
    return value if isinstance(value, dict) else {}


def _kept(schema: JSONDict, keep: Callable[[Any], object]) -> JSONDict:
    keep(schema)
    return schema
