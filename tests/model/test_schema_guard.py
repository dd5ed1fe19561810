"""Untrusted schemas are refused before they are compiled."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from toolexec.errors import ExternalRefError, InvalidSchemaError
from toolexec.model import Schema
from toolexec.model.schema_guard import MAX_SCHEMA_BYTES, guard_schema, has_references


def nested(levels: int) -> str:
    """A schema of so many levels, as text (too deep for Python's own encoder)."""
    return '{"not":' * (levels - 1) + "{}" + "}" * (levels - 1)


def doubling(links: int) -> dict[str, Any]:
    """A chain of definitions, each of which checks the same value twice by the next."""
    defs: dict[str, Any] = {
        f"t{i}": {"anyOf": [{"$ref": f"#/$defs/t{i + 1}"}, {"$ref": f"#/$defs/t{i + 1}"}]} for i in range(links)
    }
    return {"$defs": {**defs, f"t{links}": {"type": "string"}}, "$ref": "#/$defs/t0"}


LOOPS: dict[str, Any] = {
    "self": {"$ref": "#"},
    "mutual": {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
    "unused": {"$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}},
    "anyOf": {"anyOf": [{"type": "string"}, {"$ref": "#"}]},
    "not": {"not": {"$ref": "#"}},
    "if": {"if": {"$ref": "#"}},
    "then": {"then": {"$ref": "#"}},
    "dependent": {"dependentSchemas": {"a": {"$ref": "#"}}},
    "dependencies": {"$schema": "http://json-schema.org/draft-07/schema#", "dependencies": {"a": {"$ref": "#"}}},
    "anchor": {"$anchor": "x", "allOf": [{"$ref": "#x"}]},
    "dynamic": {"$dynamicAnchor": "x", "allOf": [{"$dynamicRef": "#x"}]},
    "recursive": {"allOf": [{"$recursiveRef": "#"}]},
    "id": {"$id": "https://example.com/r", "allOf": [{"$ref": "https://example.com/r"}]},
    "relative id": {"$id": "https://example.com/a/r", "allOf": [{"$ref": "r"}]},
    "embedded": {"properties": {"a": {"$id": "https://example.com/x", "allOf": [{"$ref": "#"}]}}},
    "embedded anchor": {
        "properties": {"a": {"$id": "x", "$anchor": "q", "$ref": "#q"}},
        "$defs": {"z": {"$anchor": "q"}},
    },
    "draft-07 anchor": {"properties": {"a": {"$id": "#foo", "allOf": [{"$ref": "#foo"}]}}},
    "pointer": {"properties": {"a/b": {"$ref": "#/properties/a~1b"}}},
    "percent": {"$defs": {"t": {"$ref": "#/%24defs/t"}}},
    "list": {"allOf": [{"$ref": "#/allOf/0"}]},
    "unknown keyword": {"x-parts": {"t": {"allOf": [{"$ref": "#/x-parts/t"}]}}},
    "in a default": {"$ref": "#/default/t", "default": {"t": {"$ref": "#/default/t"}}},
    "escaped": '{"\\u0024ref":"#"}',
    "written twice": '{"$ref":"#/$defs/a","$defs":{"a":{}},"$ref":"#"}',
}


@pytest.mark.parametrize("schema", LOOPS.values(), ids=LOOPS)
def test_loops_that_never_reach_a_value(schema: Any) -> None:
    """A reference that leads back to itself without a step into the value is refused, however it is spelled."""
    with pytest.raises(InvalidSchemaError, match="form a loop"):
        Schema.of(schema).guard()


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"child": {"$ref": "#"}}},
        {"items": {"$ref": "#"}},
        {"additionalProperties": {"$ref": "#"}},
        {"$defs": {"t": {"type": "array", "items": {"$ref": "#/$defs/t"}}}, "$ref": "#/$defs/t"},
        {"anyOf": [{"type": "string"}, {"type": "array", "items": {"$ref": "#"}}]},
        {"$id": "https://example.com/tree", "properties": {"left": {"$ref": "tree"}}},
        {"$defs": {"s": {"$id": "s", "properties": {"next": {"$ref": "#"}}}}, "$ref": "s"},
    ],
)
def test_recursion_into_the_value_is_fine(schema: dict[str, Any]) -> None:
    """Trees and lists are recursive, and end with the value."""
    Schema.of(schema).guard().accepts({"child": {"left": [[]]}})


@pytest.mark.parametrize(
    "ref",
    [
        "http://example.com/s.json",
        "https://example.com/s.json#/a",
        "file:///etc/passwd",
        "other.json",
        "../up.json",
        "//host/x",
        "urn:example:other",
        "https://json-schema.org/draft/2020-12/schema",
        "data:application/json,{}",
        "http://[broken",
    ],
)
@pytest.mark.parametrize("keyword", ["$ref", "$dynamicRef"])
@pytest.mark.parametrize(
    "place",
    [
        lambda part: part,
        lambda part: {"properties": {"a": part}},
        lambda part: {"$defs": {"unused": {"items": [{"not": part}]}}},
        lambda part: {"definitions": {"unused": part}},
        lambda part: {"x-other": {"y": [part]}},
    ],
    ids=["root", "property", "unused $defs", "unused definitions", "unknown keyword"],
)
def test_references_that_leave_the_document(keyword: str, ref: str, place: Any) -> None:
    """Whatever the scheme and wherever it stands, used or not: refused, and nothing is fetched."""
    with pytest.raises(ExternalRefError, match="outside of itself"):
        Schema.of(place({keyword: ref})).guard()


def test_an_escaped_reference_is_seen() -> None:
    r"""`"\u0024ref"` is `"$ref"`."""
    with pytest.raises(ExternalRefError):
        Schema.of('{"properties":{"a":{"\\u0024ref":"https://example.com/s"}}}').guard()


@pytest.mark.parametrize(
    "schema",
    [
        {"enum": [{"$ref": "https://example.com"}]},
        {"const": {"$ref": "#/const"}},
        {"properties": {"a": {"default": {"$ref": "other.json"}, "examples": [{"$ref": "steps.0.items"}]}}},
        {"properties": {"$ref": {"type": "string"}}},
        {"properties": {"default": {"type": "string"}, "enum": {"$ref": "#/properties/default"}}},
    ],
)
def test_values_that_look_like_references(schema: dict[str, Any]) -> None:
    """Inside of plain values, and as the name of a property, `$ref` is only text."""
    Schema.of(schema).guard().accepts({"a": 1})


def test_a_property_called_default_is_a_schema() -> None:
    """Names of properties are not mistaken for keywords."""
    with pytest.raises(ExternalRefError):
        Schema.of({"properties": {"default": {"$ref": "https://example.com"}}}).guard()


@pytest.mark.parametrize("links", [14, 60, 70])
def test_chains_that_double(links: int) -> None:
    """A chain of pairs would check one value 2**n times, so it is refused."""
    with pytest.raises(InvalidSchemaError, match="more than 10000 times"):
        Schema.of(doubling(links)).guard()


def test_short_chains_are_fine() -> None:
    """A few alternatives of alternatives are ordinary."""
    assert Schema.of(doubling(8)).guard().accepts("x")


def test_doubling_hidden_in_a_resource_of_its_own() -> None:
    """References are read relative to the resource that they stand in."""
    hidden = {**doubling(60), "$id": "https://example.com/hidden"}
    with pytest.raises(InvalidSchemaError, match="more than 10000 times"):
        Schema.of({"properties": {"a": hidden}}).guard()


def test_doubling_hidden_in_a_default() -> None:
    """A plain value that a reference points at is a schema after all."""
    chain = json.loads(json.dumps(doubling(60)).replace("#/$defs", "#/default"))
    schema = {"default": {**chain["$defs"], "s": {"properties": {"y": {"$ref": "#/default/t0"}}}}}
    with pytest.raises(InvalidSchemaError, match="more than 10000 times"):
        Schema.of({**schema, "properties": {"x": {"$ref": "#/default/s"}}}).guard()


def test_long_chains() -> None:
    """A chain of thousands of references is refused, not followed to a stack overflow."""
    defs: dict[str, Any] = {f"t{i}": {"$ref": f"#/$defs/t{i + 1}"} for i in range(5000)}
    with pytest.raises(InvalidSchemaError, match="chain of more than 150 links"):
        Schema.of({"$defs": {**defs, "t5000": {}}, "$ref": "#/$defs/t0"}).guard()


@pytest.mark.parametrize("levels", [101, 10_000])
def test_too_deep(levels: int) -> None:
    """100 levels are the most; 10,000 do not crash anything."""
    with pytest.raises(InvalidSchemaError, match="too deeply"):
        Schema.of(nested(levels)).guard()


def test_deep_dicts_and_lists() -> None:
    """Depth counts for lists, for dicts that Python's encoder cannot take, and inside of plain values."""
    deep: Any = {}
    for _ in range(10_000):
        deep = {"not": deep}
    with pytest.raises(InvalidSchemaError, match="too deeply"):
        Schema.of(deep)
    for text in (f'{{"x":{"[" * 150}{"]" * 150}}}', f'{{"default":{"[" * 150}{"]" * 150}}}'):
        with pytest.raises(InvalidSchemaError, match="too deeply"):
            Schema.of(text).guard()


def test_a_hundred_levels() -> None:
    """A hundred levels are allowed and work."""
    assert not Schema.of(nested(100)).guard().accepts(1)  # 99 times not
    assert Schema.of(nested(99)).guard().accepts(1)


def test_many_brackets_are_not_depth() -> None:
    """A wide schema is not deep."""
    assert Schema.of({"properties": {f"p{i}": {"type": "null"} for i in range(1000)}}).guard().accepts({"p1": None})


@pytest.mark.parametrize("make", [lambda big: {"title": big}, lambda big: f'{{"title":"{big}"}}'], ids=["dict", "text"])
def test_too_large(make: Any) -> None:
    """More than 1 MiB is refused before it is parsed."""
    with pytest.raises(InvalidSchemaError, match="1048576 is the most"):
        Schema.of(make("x" * MAX_SCHEMA_BYTES))
    assert Schema.of(make("x" * 1_000_000)).guard().accepts(1)


def test_the_guard_checks_the_size_itself() -> None:
    """Text that did not come through `Schema.of` is bounded as well."""
    with pytest.raises(InvalidSchemaError, match="is the most"):
        guard_schema('{"title":"' + "x" * MAX_SCHEMA_BYTES + '"}')
    with pytest.raises(InvalidSchemaError, match="too deeply"):
        guard_schema(nested(5000))


def test_has_references() -> None:
    """Never false when there are some."""
    assert has_references('{"$ref":"#"}')
    assert has_references('{"$dynamicRef":"#a"}')
    assert has_references('{"\\u0024ref":"#"}')
    assert not has_references('{"type":"string"}')


def test_hostile_schemas_leave_the_process_unharmed() -> None:
    """In a process of its own, all of them together end in time: no crash, no hang."""
    code = """
import json, sys
from toolexec.errors import InvalidSchemaError
from toolexec.model import Schema
refused = 0
for text in json.load(sys.stdin):
    try:
        schema = Schema.of(text).guard()
        schema.accepts({"a": [{"a": 1}]})
        schema.violations({"a": [{"a": 1}]})
    except InvalidSchemaError:
        refused += 1
print(refused)
"""
    strings = [loop if isinstance(loop, str) else json.dumps(loop) for loop in LOOPS.values()]
    strings += [json.dumps(doubling(n)) for n in (20, 100, 149)] + [nested(n) for n in (101, 10_000, 100_000)]
    done = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps(strings), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) == len(strings)
