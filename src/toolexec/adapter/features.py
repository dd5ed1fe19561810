"""The features of JSON Schema that a provider format may or may not have, each named by its keyword."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Final

from toolexec.model.json_value import JSONValue, pointer


class SchemaFeature(StrEnum):
    """A keyword of JSON Schema beyond `type`, `description`, `properties`, `required` and `items`, which every form
    has. `list(SchemaFeature)` has them all, in the order in which warnings name them."""

    REF = "$ref"
    DEFS = "$defs"
    ANY_OF = "anyOf"
    ONE_OF = "oneOf"
    ALL_OF = "allOf"
    NOT = "not"
    PATTERN = "pattern"
    FORMAT = "format"
    ADDITIONAL_PROPERTIES = "additionalProperties"
    MINIMUM = "minimum"
    MAXIMUM = "maximum"
    MIN_LENGTH = "minLength"
    MAX_LENGTH = "maxLength"
    ENUM = "enum"
    CONST = "const"
    DEFAULT = "default"
    TITLE = "title"
    EXAMPLES = "examples"
    MULTIPLE_OF = "multipleOf"
    MIN_ITEMS = "minItems"
    MAX_ITEMS = "maxItems"
    MIN_PROPERTIES = "minProperties"
    MAX_PROPERTIES = "maxProperties"
    UNIQUE_ITEMS = "uniqueItems"
    NULLABLE = "nullable"
    DEPRECATED = "deprecated"
    READ_ONLY = "readOnly"
    WRITE_ONLY = "writeOnly"
    EXCLUSIVE_MINIMUM = "exclusiveMinimum"
    EXCLUSIVE_MAXIMUM = "exclusiveMaximum"
    PREFIX_ITEMS = "prefixItems"
    CONTAINS = "contains"
    MIN_CONTAINS = "minContains"
    MAX_CONTAINS = "maxContains"
    PATTERN_PROPERTIES = "patternProperties"
    PROPERTY_NAMES = "propertyNames"
    DEPENDENT_REQUIRED = "dependentRequired"
    DEPENDENT_SCHEMAS = "dependentSchemas"
    IF = "if"
    THEN = "then"
    ELSE = "else"
    UNEVALUATED_ITEMS = "unevaluatedItems"
    UNEVALUATED_PROPERTIES = "unevaluatedProperties"
    CONTENT_ENCODING = "contentEncoding"
    CONTENT_MEDIA_TYPE = "contentMediaType"
    CONTENT_SCHEMA = "contentSchema"
    SCHEMA = "$schema"
    ID = "$id"
    ANCHOR = "$anchor"
    DYNAMIC_REF = "$dynamicRef"
    DYNAMIC_ANCHOR = "$dynamicAnchor"
    VOCABULARY = "$vocabulary"
    COMMENT = "$comment"


ALWAYS: Final = frozenset({"type", "description", "properties", "required", "items"})
"""The keywords that every form with schemas has."""

SCHEMAS: Final = frozenset(
    {
        "items",
        "additionalProperties",
        "contains",
        "contentSchema",
        "else",
        "if",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
)
"""The keywords whose value is a schema."""

LISTS_OF_SCHEMAS: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
"""The keywords whose value is a list of schemas."""

MAPS_OF_SCHEMAS: Final = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""The keywords whose value has schemas by name."""


def subschemas(node: Mapping[str, object]) -> Iterator[tuple[str, JSONValue]]:
    """Yield the schemas directly in *node*, in its order, each with the JSON pointer that leads there (`/items`,
    ...)."""
    for key, value in node.items():
        if key in SCHEMAS and isinstance(value, dict | bool):
            yield f"/{key}", value
        elif key in LISTS_OF_SCHEMAS and isinstance(value, list):
            yield from ((f"/{key}/{number}", child) for number, child in enumerate(value))
        elif key in MAPS_OF_SCHEMAS and isinstance(value, dict):
            yield from ((f"/{key}/{pointer(name)}", child) for name, child in value.items())


def used_features(schema: object) -> Iterator[tuple[str, SchemaFeature]]:
    """Yield every feature that *schema* uses, with the JSON pointer of the subschema that does: from the outside in,
    and in the order of the features for each."""
    pending: list[tuple[str, JSONValue]] = [("", schema)]
    while pending:
        path, node = pending.pop()
        if not isinstance(node, dict):
            continue
        yield from ((path, feature) for feature in SchemaFeature if feature.value in node)
        pending += reversed([(path + step, child) for step, child in subschemas(node)])
