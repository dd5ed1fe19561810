"""The graph of a schema: what looks at the same value, and what looks deeper."""

from __future__ import annotations

from typing import Any

import pytest

from toolexec.errors import ExternalRefError, InvalidSchemaError
from toolexec.model.schema_graph import ANY_ITEM, ANY_NAME, SchemaGraph


def test_same_value() -> None:
    """Every keyword that applies a subschema in place, and every reference."""
    schema: dict[str, Any] = {
        "not": {"title": "not"},
        "if": {"title": "if"},
        "then": {"title": "then"},
        "else": {"title": "else"},
        "allOf": [{"title": "all"}],
        "anyOf": [{"title": "any"}, True],
        "oneOf": [{"title": "one"}],
        "dependentSchemas": {"x": {"title": "dependent"}},
        "dependencies": {"x": {"title": "dependency"}, "y": ["z"]},
        "$ref": "#/$defs/t",
        "$defs": {"t": {"title": "ref"}},
    }
    titles = [child["title"] for child in SchemaGraph(schema).same_value(schema) if isinstance(child, dict)]
    assert titles == ["not", "if", "then", "else", "all", "any", "one", "dependent", "dependency", "ref"]


def test_deeper() -> None:
    """Every keyword that applies a subschema to a member or item, with its step."""
    schema: dict[str, Any] = {
        "properties": {"a": {"title": "a"}, "b": True},
        "patternProperties": {"^x": {"title": "pattern"}},
        "additionalProperties": {"title": "additional"},
        "unevaluatedProperties": {"title": "unevaluated"},
        "prefixItems": [{"title": "first"}, False],
        "items": {"title": "items"},
        "contains": {"title": "contains"},
    }
    steps = [(step, child["title"]) for step, child in SchemaGraph(schema).deeper(schema)]
    assert steps == [
        (".a", "a"),
        (ANY_NAME, "pattern"),
        (ANY_NAME, "additional"),
        (ANY_NAME, "unevaluated"),
        ("0", "first"),
        (ANY_ITEM, "items"),
        (ANY_ITEM, "contains"),
    ]
    older: dict[str, Any] = {"items": [{"title": "0"}, {"title": "1"}], "additionalItems": {"title": "rest"}}
    assert [step for step, _ in SchemaGraph(older).deeper(older)] == ["0", "1", ANY_ITEM]


@pytest.mark.parametrize(
    "odd", [{"properties": []}, {"allOf": {}}, {"anyOf": 3}, {"items": "x"}, {"dependencies": []}, {"$ref": 3}]
)
def test_malformed_keywords_are_skipped(odd: dict[str, Any]) -> None:
    """The compiler complains about them; the graph does not trip over them."""
    graph = SchemaGraph(odd)
    assert graph.same_value(odd) == []
    assert list(graph.deeper(odd)) == []


@pytest.mark.parametrize(
    ("ref", "title"),
    [
        ("#/$defs/plain", "plain"),
        ("#/%24defs/plain", "plain"),
        ("#/$defs/a~1b~0c", "slash"),
        ("#/allOf/1", "second"),
        ("#spot", "spot"),
        ("leaf", "leaf"),
        ("https://example.com/dir/leaf", "leaf"),
        ("https://example.com/dir/leaf#", "leaf"),
        ("leaf#/$defs/deep", "deep"),
        ("#/default/value", "value"),
    ],
)
def test_targets(ref: str, title: str) -> None:
    """Pointers, anchors and addresses are followed inside of the document."""
    schema: dict[str, Any] = {
        "$id": "https://example.com/dir/root",
        "$defs": {
            "plain": {"title": "plain"},
            "a/b~c": {"title": "slash"},
            "anchored": {"$anchor": "spot", "title": "spot"},
            "leaf": {"$id": "leaf", "title": "leaf", "$defs": {"deep": {"title": "deep"}}},
        },
        "allOf": [{}, {"title": "second"}],
        "default": {"value": {"title": "value"}},
    }
    assert [target["title"] for target in SchemaGraph(schema).targets(schema, ref)] == [title]


@pytest.mark.parametrize("ref", ["#/$defs/missing", "#/allOf/7", "#/allOf/x", "#nowhere", "#/title/x"])
def test_dangling_references_have_no_target(ref: str) -> None:
    """That is for the compiler to refuse."""
    schema = {"allOf": [{}], "title": "t"}
    assert SchemaGraph(schema).targets(schema, ref) == []


def test_references_are_read_where_they_stand() -> None:
    """Inside of a resource with its own `$id`, `#` is that resource; the whole document counts as well."""
    inner: dict[str, Any] = {"$id": "inner", "properties": {"x": {"$ref": "#"}}}
    schema = {"$defs": {"inner": inner}}
    assert SchemaGraph(schema).targets(inner["properties"]["x"], "#") == [inner, schema]


def test_other_documents() -> None:
    """An address that no `$id` has is outside."""
    schema = {"$id": "https://example.com/root"}
    for ref in ("https://example.com/other", "other", "https://example.com:bad/x"):
        with pytest.raises(ExternalRefError):
            SchemaGraph(schema).targets(schema, ref)


def test_depth() -> None:
    """More than 100 levels are refused."""
    schema: Any = {}
    for _ in range(100):
        schema = {"not": schema}
    with pytest.raises(InvalidSchemaError):
        SchemaGraph(schema)
