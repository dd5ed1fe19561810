"""Schemas of OpenAPI as JSON Schema 2020-12."""

from __future__ import annotations

from typing import Any

import pytest
from tests.openapi import api, operations, tools

from toolexec.backend.providers.openapi.document import Document, InvalidPartError
from toolexec.backend.providers.openapi.schemas import SchemaTable
from toolexec.model.schema import Schema


def converted(schema: Any, *, version: str = "3.0.3", output: bool = False, **schemas: Any) -> Any:
    """Return a schema as JSON Schema, checked by a real validator."""
    document = Document(api({}, version=version, components={"schemas": schemas}))
    table = SchemaTable(document, output=output)
    refs: dict[str, None] = {}
    value = table.convert(schema, refs)
    return Schema.of(table.root(value, refs, 65_536)).guard().check().to_json()


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "string", "nullable": True}, {"type": ["string", "null"]}),
        ({"type": "string", "enum": ["a"], "nullable": True}, {"type": ["string", "null"], "enum": ["a", None]}),
        ({"type": "string", "x-nullable": True}, {"type": ["string", "null"]}),
        (
            {"allOf": [{"type": "object"}], "nullable": True, "description": "d"},
            {"anyOf": [{"allOf": [{"type": "object"}]}, {"type": "null"}], "description": "d"},
        ),
        ({"type": "integer", "minimum": 1, "exclusiveMinimum": True}, {"type": "integer", "exclusiveMinimum": 1}),
        ({"type": "number", "maximum": 9, "exclusiveMaximum": False}, {"type": "number", "maximum": 9}),
        ({"type": "string", "example": "x"}, {"type": "string", "examples": ["x"]}),
        ({"type": "file"}, {"type": "string"}),
        ({"type": "Int"}, {"type": "integer"}),
        ({"type": "whatever"}, {}),
        ({"type": "string", "enum": [True, 1, "x"]}, {"type": "string", "enum": ["true", "1", "x"]}),
        ({"type": "integer", "enum": ["1", 2]}, {"type": "integer", "enum": [1, 2]}),
        ({"type": "string", "minLength": "3", "maxLength": -1}, {"type": "string", "minLength": 3}),
        ({"type": "string", "pattern": "^[a-z]+$"}, {"type": "string", "pattern": "^[a-z]+$"}),
        ({"type": "string", "pattern": "(?<!x"}, {"type": "string"}),
        ({"type": "array", "items": [{"type": "string"}]}, {"type": "array", "prefixItems": [{"type": "string"}]}),
        ({"type": "object", "required": True, "properties": []}, {"type": "object", "properties": {}}),
        ({"type": "object", "required": ["a", "a", 3]}, {"type": "object", "required": ["a"]}),
        ({"x-internal": {"$ref": "elsewhere"}, "externalDocs": {}, "type": "null"}, {"type": "null"}),
        (True, True),
    ],
    ids=str,
)
def test_a_keyword_of_openapi_has_its_meaning_in_json_schema(schema: Any, expected: Any) -> None:
    """Values of the wrong type count as absent."""
    assert converted(schema) == expected


def test_the_examples_of_openapi_3_1_are_kept_with_its_types() -> None:
    """Lists of types, constants and tuples need no conversion."""
    schema = {"type": ["string", "null"], "examples": ["a", {"too": "long"}], "const": "a", "contentEncoding": "base64"}
    expected = {"type": ["string", "null"], "examples": ["a"], "const": "a", "contentEncoding": "base64"}
    assert converted(schema, version="3.1.0") == expected


def test_a_recursive_schema_stays_a_reference() -> None:
    """Each definition is there once, and only those that are needed."""
    node = {"type": "object", "properties": {"next": {"$ref": "#/components/schemas/Node"}}}
    found = converted({"$ref": "#/components/schemas/Node"}, Node=node, Other={"type": "string"})
    assert found["properties"] == {"next": {"$ref": "#/$defs/Node"}}
    assert found["$defs"].keys() == {"Node"}
    assert Schema.of(found).accepts({"next": {"next": {}}})
    assert not Schema.of(found).accepts({"next": {"next": 1}})


def test_references_to_any_place_are_followed() -> None:
    """Names with characters that a reference escapes, and places outside of `components/schemas`, work."""
    odd = {"a/b~c d": {"type": "integer"}, "Wrapper": {"properties": {"inner": {"type": "boolean"}}}}
    schema = {
        "type": "object",
        "properties": {
            "odd": {"$ref": "#/components/schemas/a~1b~0c%20d"},
            "inner": {"$ref": "#/components/schemas/Wrapper/properties/inner"},
        },
    }
    found = Schema.of(converted(schema, **odd))
    assert found.accepts({"odd": 1, "inner": True})
    assert not found.accepts({"odd": "x"})
    assert not found.accepts({"inner": 1})


def test_two_schemas_of_the_same_last_name_stay_apart() -> None:
    """The second one gets a number."""
    schema = {
        "properties": {
            "a": {"$ref": "#/components/schemas/x.y"},
            "b": {"$ref": "#/components/schemas/W/properties/x.y"},
        }
    }
    found = converted(schema, **{"x.y": {"type": "string"}, "W": {"properties": {"x.y": {"type": "integer"}}}})
    assert found["$defs"] == {"x.y": {"type": "string"}, "x.y_2": {"type": "integer"}}


def test_what_stands_beside_a_reference_counts_from_3_1_on() -> None:
    """In 3.0 only descriptions and null are read there."""
    beside = {"$ref": "#/components/schemas/S", "description": "d", "maxLength": 3}
    assert "maxLength" not in converted({"properties": {"a": beside}}, S={"type": "string"})["properties"]["a"]
    newer = converted({"properties": {"a": beside}}, version="3.1.0", S={"type": "string"})
    assert newer["properties"]["a"] == {"$ref": "#/$defs/S", "description": "d", "maxLength": 3}
    nullable = {"properties": {"a": {"$ref": "#/components/schemas/S", "nullable": True}}}
    assert Schema.of(converted(nullable, S={"type": "string"})).accepts({"a": None})


def test_what_is_read_only_is_not_asked_for() -> None:
    """In an output, the same goes for what is only written."""
    schema = {
        "type": "object",
        "required": ["id", "name", "secret"],
        "properties": {
            "id": {"type": "integer", "readOnly": True},
            "name": {"type": "string"},
            "secret": {"type": "string", "writeOnly": True},
        },
    }
    given, answered = converted(schema), converted(schema, output=True)
    assert given["required"] == ["name", "secret"]
    assert "id" not in given["properties"]
    assert answered["required"] == ["id", "name"]


def test_a_discriminator_separates_alternatives() -> None:
    """Its mapping becomes the values of the property, so that exactly one alternative fits."""
    pet = {
        "oneOf": [{"$ref": "#/components/schemas/Cat"}, {"$ref": "#/components/schemas/Dog"}],
        "discriminator": {"propertyName": "kind", "mapping": {"cat": "#/components/schemas/Cat", "dog": "Dog"}},
    }
    animal = {"type": "object", "properties": {"kind": {"type": "string"}, "name": {"type": "string"}}}
    found = converted(pet, Cat=animal, Dog=animal)
    schema = Schema.of(found)
    assert schema.accepts({"kind": "cat"})
    assert schema.accepts({"kind": "dog", "name": "Rex"})
    assert not schema.accepts({"kind": "cow"})
    assert "`kind` says which: 'cat': Cat" in found["description"]


def test_references_that_lead_nowhere_end_an_input_and_open_an_output() -> None:
    """An answer may be anything where its schema is not there."""
    broken = {"properties": {"a": {"$ref": "#/components/schemas/Gone"}}}
    with pytest.raises(InvalidPartError, match="'#/components/schemas/Gone', which is not in the document"):
        converted(broken)
    assert converted(broken, output=True)["$defs"] == {"Gone": True}


@pytest.mark.parametrize(
    "schemas",
    [
        {"A": {"$ref": "#/components/schemas/A"}},
        {"A": {"allOf": [{"$ref": "#/components/schemas/B"}]}, "B": {"anyOf": [{"$ref": "#/components/schemas/A"}]}},
        {
            **{f"A{n or ''}": {"anyOf": [{"$ref": f"#/components/schemas/A{n + 1}"}] * 2} for n in range(20)},
            "A20": {"type": "string"},
        },
    ],
    ids=["itself", "each other", "multiplying"],
)
def test_references_without_an_end_are_refused(schemas: dict[str, Any]) -> None:
    """Neither a loop that never reaches a value nor one that multiplies gets into a schema."""
    with pytest.raises(InvalidPartError, match=r"loop that never reaches|more than 10000 times"):
        converted({"properties": {"a": {"$ref": "#/components/schemas/A"}}}, **schemas)


def test_a_schema_of_too_many_levels_is_refused() -> None:
    """The other operations stay."""
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(60):
        deep = {"type": "array", "items": deep}
    parameter = {"name": "q", "in": "query", "schema": deep}
    found = operations(api({"/x": {"get": {"parameters": [parameter]}, "delete": {}}}))
    assert [each.tool.name for each in found.found] == ["delete_x"]
    assert found.skipped == {"get_x": "GET /x: a schema has more than 45 levels"}


def test_definitions_beyond_the_limit_are_left_open() -> None:
    """The nearest are kept; the schema stays valid."""
    chain = {f"S{n}": {"properties": {"next": {"$ref": f"#/components/schemas/S{n + 1}"}}} for n in range(50)}
    body = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/S0"}}}}
    root = api({"/x": {"post": {"requestBody": body}}}, components={"schemas": chain | {"S50": {"type": "string"}}})
    found = tools(root, max_schema_bytes=200)["post_x"].input_schema.to_json()
    assert 2 <= len(found["$defs"]) <= 5
    assert True in found["$defs"].values()
