"""Validation failures, told so that a model or a person can act on them."""

from __future__ import annotations

from typing import Any

import pytest

from toolexec.errors import Violation
from toolexec.model import Schema


def violations(schema: dict[str, Any], value: Any) -> tuple[Violation, ...]:
    """All violations of a schema by a value."""
    return Schema.of(schema).violations(value)


def test_all_at_once() -> None:
    """Every problem is listed, each with path, keyword, what was expected and what was found."""
    schema = {
        "type": "object",
        "properties": {
            "n": {"type": "integer", "minimum": 3},
            "list": {"type": "array", "items": {"type": "string"}},
            "mode": {"enum": ["fast", "slow"]},
        },
        "required": ["n", "must"],
        "additionalProperties": False,
    }
    found = violations(schema, {"n": 1, "list": ["a", 2, None], "mode": "odd", "lits": 1})
    told = {(v.path, v.keyword): v for v in found}
    assert set(told) == {
        ("/n", "minimum"),
        ("/list/1", "type"),
        ("/list/2", "type"),
        ("/mode", "enum"),
        ("", "required"),
        ("", "additionalProperties"),
    }
    assert (told["/n", "minimum"].expected, told["/n", "minimum"].got) == (3, 1)
    assert told["/mode", "enum"].expected == ["fast", "slow"]
    assert told["/list/1", "type"].got == 2
    assert told["", "required"].expected == "must"
    assert told["", "required"].got == "object with 4 keys"


def test_unknown_names_get_a_suggestion() -> None:
    """An extra argument close to a known one says so, and the known ones are listed."""
    schema = {"properties": {"query": {}, "limit": {}}, "additionalProperties": False}
    (violation,) = violations(schema, {"qeury": 1, "zzz": 2})
    assert "'qeury' is not a known name; did you mean 'query'?" in violation.message
    assert "'zzz' is not a known name" in violation.message
    assert violation.expected == ["query", "limit"]


def test_names_are_suggested_inside_too() -> None:
    """Suggestions come from the object where the extra name stands."""
    inner = {"type": "object", "properties": {"colour": {}}, "additionalProperties": False}
    (violation,) = violations({"properties": {"a": {"items": inner}}}, {"a": [{}, {"color": 1}]})
    assert violation.path == "/a/1"
    assert "did you mean 'colour'?" in violation.message


def test_paths_are_json_pointers() -> None:
    """Slashes and tildes in names are escaped."""
    (violation,) = violations({"properties": {"a/b~c": {"type": "string"}}}, {"a/b~c": 1})
    assert violation.path == "/a~1b~0c"


@pytest.mark.parametrize("mark", [{"writeOnly": True}, {"format": "password"}])
def test_secrets_are_not_repeated(mark: dict[str, Any]) -> None:
    """The value of a secret field appears neither in `got` nor in the message."""
    schema = {
        "properties": {
            "key": {"type": "string", "maxLength": 3, "pattern": "^x", **mark},
            "list": {"items": {"type": "integer", **mark}},
        }
    }
    found = violations(schema, {"key": "hunter2-secret", "list": ["hunter2-secret"]})
    assert len(found) == 3
    assert all(v.got == "***" for v in found)
    assert "hunter2" not in repr(found)


@pytest.mark.parametrize(
    "schema",
    [
        {
            "$defs": {"s": {"type": "string", "writeOnly": True, "maxLength": 3}},
            "properties": {"k": {"$ref": "#/$defs/s"}},
        },
        {"allOf": [{"properties": {"k": {"type": "string", "format": "password", "maxLength": 3}}}]},
        {"properties": {"k": {"anyOf": [{"type": "string", "writeOnly": True, "maxLength": 3}, {"type": "null"}]}}},
        {"additionalProperties": {"type": "string", "writeOnly": True, "maxLength": 3}},
        {"patternProperties": {"k": {"type": "string", "writeOnly": True, "maxLength": 3}}},
    ],
)
def test_secrets_are_found_behind_references(schema: dict[str, Any]) -> None:
    """Finds secret fields in whatever way the schema marks them."""
    found = violations(schema, {"k": "hunter2-secret"})
    assert found
    assert "hunter2" not in repr(found)


def test_secrets_inside_a_refused_parent() -> None:
    """A parent's failure shows neither its secret children nor whatever else it holds."""
    schema = {"properties": {"login": {"required": ["x"], "properties": {"pw": {"writeOnly": True}}}}}
    assert "hunter2" not in repr(violations(schema, {"login": {"pw": "hunter2-secret"}}))


def test_large_values_are_shortened() -> None:
    """An error stays small however large the value is."""
    schema = {"properties": {name: {"type": "null"} for name in "abcd"}}
    value = {"a": "x" * 1_000_000, "b": list(range(100_000)), "c": 10**4000, "d": {"k": "v" * 100_000}}
    found = {v.path: v for v in violations(schema, value)}
    assert len(repr(found)) < 5000
    assert found["/b"].got == "array of 100000"
    assert found["/c"].got == "integer of 13288 bits"
    assert found["/d"].got == "object with 1 keys"


def test_large_expectations_are_shortened() -> None:
    """A schema with a huge enum does not make a huge error."""
    (violation,) = violations({"enum": [f"word{i}" for i in range(10_000)]}, "x")
    assert len(repr(violation)) < 5000


def test_alternatives_have_no_expectation() -> None:
    """`anyOf` and `oneOf` say that none fits, or too many, without spelling all of them out."""
    for keyword in ("anyOf", "oneOf"):
        (violation,) = violations({keyword: [{"type": "string"}, {"type": "null"}]}, 3)
        assert violation.keyword.startswith(keyword)
        assert violation.expected is None
    (violation,) = violations({"oneOf": [{}, {"type": "integer"}]}, 3)
    assert violation.keyword.startswith("oneOf")


def test_at_most_a_hundred() -> None:
    """A thousand problems are too many to read."""
    assert len(violations({"items": {"type": "null"}}, list(range(1000)))) == 100
