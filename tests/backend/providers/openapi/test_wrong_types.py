"""Documents with anything anywhere: every operation is a valid tool or has a reason, and nothing else is raised."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.openapi import api, operations

from toolexec.errors import ConfigurationError

PET = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "id": {"type": "integer", "readOnly": True, "minimum": 1, "exclusiveMinimum": True},
        "name": {"type": "string", "pattern": "^[a-z]+$", "nullable": True, "enum": ["a", "b"], "default": "a"},
        "parent": {"$ref": "#/components/schemas/Pet"},
        "any": {
            "oneOf": [{"$ref": "#/components/schemas/Pet"}],
            "discriminator": {"propertyName": "k", "mapping": {"a": "Pet"}},
        },
        "map": {
            "additionalProperties": {"type": "array", "items": {"type": "number"}},
            "patternProperties": {"^x": {}},
        },
        "all": {"allOf": [{"properties": {"x": {}}}], "not": {}, "dependentRequired": {"x": ["y"]}},
    },
}
NEW: dict[str, Any] = {
    "/pets/{id}": {
        "parameters": [{"$ref": "#/components/parameters/Id"}],
        "servers": [{"url": "https://{r}.example.com", "variables": {"r": {"default": "eu", "enum": ["eu"]}}}],
        "get": {
            "operationId": "getPet",
            "tags": ["pets"],
            "parameters": [
                {"name": "page", "in": "query", "style": "form", "explode": True, "schema": {"type": "integer"}}
            ],
            "security": [{"key": []}],
            "responses": {
                "200": {
                    "headers": {"Link": {}},
                    "links": {"Next": {"operationId": "getPet", "parameters": {"id": "$response.body#/id"}}},
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Pet"}}},
                }
            },
        },
        "put": {
            "requestBody": {
                "required": True,
                "content": {
                    "multipart/form-data": {
                        "schema": {"type": "object", "properties": {"f": {"type": "string", "format": "binary"}}},
                        "encoding": {"f": {"contentType": "image/png"}},
                    }
                },
            }
        },
        "post": {"requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Pet"}}}}},
    }
}
PARTS = {
    "parameters": {"Id": {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}},
    "schemas": {"Pet": PET},
    "securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "X-Key"}},
}
OLD: dict[str, Any] = {
    "swagger": "2.0",
    "host": "old.example.com",
    "basePath": "/v1",
    "schemes": ["https"],
    "consumes": ["application/json"],
    "securityDefinitions": {"o": {"type": "oauth2", "flow": "application", "tokenUrl": "https://x", "scopes": {}}},
    "definitions": {"Pet": {"type": "object", "properties": {"name": {"type": "string"}}}},
    "paths": {
        "/pets": {
            "post": {
                "parameters": [{"name": "b", "in": "body", "schema": {"$ref": "#/definitions/Pet"}}],
                "responses": {"200": {"schema": {"type": "file"}}},
            },
            "get": {"parameters": [{"name": "q", "in": "query", "type": "array", "items": {"type": "string"}, "collectionFormat": "pipes"}]},
            "put": {"parameters": [{"name": "f", "in": "formData", "type": "file"}, {"name": "l", "in": "formData", "type": "array"}]},
        }
    },
}  # fmt: skip
VALUES: list[Any] = [
    None,
    True,
    0,
    -1,
    1e308,
    10**400,
    "",
    "x",
    "#",
    "#/",
    "{",
    "\0",
    [],
    [None],
    [[]],
    {},
    {"$ref": 5},
]
VALUES += [
    {"$ref": "#/components/schemas/Pet"},
    {"$ref": "#/paths"},
    {"type": ["x", 3]},
    "(?<",
    ["a", "a"],
    float("inf"),
]


def places(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths to all values of a document."""
    pairs = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [path, *(found for key, child in pairs for found in places(child, (*path, key)))]


def changed(root: dict[str, Any], changes: list[tuple[tuple[Any, ...], Any]]) -> Any:
    """Return a copy of a document with other values at some places."""
    made = copy.deepcopy(root)
    for path, value in changes:
        node: Any = made
        for step in path[:-1]:
            node = node[step] if isinstance(node, dict | list) and _has(node, step) else None
        if path and isinstance(node, dict | list) and _has(node, path[-1]):
            node[path[-1]] = value
    return made


def _has(node: Any, step: Any) -> bool:
    return step in node if isinstance(node, dict) else isinstance(step, int) and step < len(node)


@pytest.mark.parametrize(
    "root", [api(NEW, components=PARTS), api(NEW, components=PARTS, version="3.1.0"), OLD], ids=["3.0", "3.1", "2.0"]
)
def test_any_value_anywhere(root: dict[str, Any]) -> None:
    """Each place has each value once, alone and beside another one."""
    all_places = places(root)

    @given(st.lists(st.tuples(st.sampled_from(all_places), st.sampled_from(VALUES)), min_size=1, max_size=3))
    def check(changes: list[tuple[tuple[Any, ...], Any]]) -> None:
        made = changed(root, changes)
        try:
            found = operations(made)
        except ConfigurationError:
            return
        for each in found.found:
            each.tool.input_schema.check()
            if each.tool.output_schema is not None:
                each.tool.output_schema.check()

    check()
