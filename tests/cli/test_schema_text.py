"""JSON Schemas in words."""

from __future__ import annotations

from typing import Any

import pytest

from toolexec.cli.schema_text import Parameter, accepted_types, follow, parameters, type_words


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "string"}, "string"),
        ({"type": "string", "format": "date"}, "string (date)"),
        ({"type": "integer", "minimum": 1, "maximum": 10}, "integer, 1 to 10"),
        ({"type": "integer", "minimum": 1}, "integer ≥ 1"),
        ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, "number > 0 < 1"),
        ({"type": ["string", "null"]}, "string | null"),
        ({"anyOf": [{"type": "integer"}, {"type": "integer"}, {"type": "null"}]}, "integer | null"),
        ({"enum": ["a", 1, None]}, '"a" | 1 | null'),
        ({"enum": list(range(10))}, "0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 | …"),
        ({"const": "x"}, '"x"'),
        ({"type": "array", "items": {"type": "string"}}, "list of string"),
        ({"type": "array"}, "list"),
        ({"type": "array", "items": {}}, "list"),
        ({"type": "object"}, "object"),
        ({"type": "object", "properties": {"x": {}, "y": {}}}, "object {x, y}"),
        ({"properties": {"x": {}}}, "object"),
        ({"type": "boolean"}, "boolean"),
        ({}, "any"),
        (True, "any"),
        ({"type": 5, "enum": "x"}, "any"),
        ({"$ref": "#/$defs/point"}, "object {x}"),
        ({"$ref": "#/$defs/loop"}, "any"),
        ({"$ref": "#/nowhere"}, "any"),
    ],
)
def test_a_type_in_words(schema: Any, words: str) -> None:
    """Every common form of a schema has a short reading."""
    root = {"$defs": {"point": {"type": "object", "properties": {"x": {}}}, "loop": {"$ref": "#/$defs/loop"}}}
    assert type_words(schema, root) == words


def test_a_schema_that_contains_itself_ends() -> None:
    """A tree of nodes is cut, not followed for ever."""
    root: dict[str, Any] = {"anyOf": [{"$ref": "#"}, {"type": "null"}]}
    assert "null" in type_words(root, root)
    assert accepted_types(root, root) == {"null"}


@pytest.mark.parametrize(
    ("schema", "types"),
    [
        ({"type": "string"}, {"string"}),
        ({"type": ["integer", "null"]}, {"integer", "null"}),
        ({"enum": ["a", 1, True, None, [], {}]}, {"string", "number", "boolean", "null", "array", "object"}),
        ({"const": 1.5}, {"number"}),
        ({"oneOf": [{"type": "string"}, {"allOf": [{"type": "integer"}]}]}, {"string", "integer"}),
        ({"enum": 3}, set()),
        ({}, set()),
    ],
)
def test_the_types_that_a_value_may_have(schema: Any, types: set[str]) -> None:
    """The types decide how a word of the command line is read."""
    assert accepted_types(schema, schema) == types


def test_parameters_come_required_first() -> None:
    """Each with its type, default and description, of a referenced schema, too."""
    schema = {
        "type": "object",
        "$defs": {"level": {"type": "integer", "default": 3, "description": "how deep"}},
        "properties": {
            "level": {"$ref": "#/$defs/level"},
            "name": {"type": "string", "description": "who"},
            "odd": True,
        },
        "required": ["name", {}],
    }
    assert parameters(schema) == [
        Parameter("name", "string", True, "", "who"),
        Parameter("level", "integer", False, "3", "how deep"),
        Parameter("odd", "any", False, "", ""),
    ]


def test_a_schema_without_properties_has_no_parameters() -> None:
    """Nor has one whose parts are of the wrong type."""
    assert parameters(True) == []
    assert parameters({"properties": 1, "required": 2}) == []


def test_escaped_references_are_followed() -> None:
    """`~1` and `~0` stand for slash and tilde."""
    root = {"$defs": {"a/b~c": {"type": "null"}}}
    assert follow({"$ref": "#/$defs/a~1b~0c"}, root) == {"type": "null"}
