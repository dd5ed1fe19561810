"""Schemas whose checks multiply with each level of the value are bounded at each check."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import jsonschema_rs
import pytest

from toolexec.model import Schema
from toolexec.model.schema_growth import CountingValidator, bounded

T = {"$ref": "#/$defs/t"}
KINDS = [f"kind{i}" for i in range(10)]


def both(**extra: Any) -> list[dict[str, Any]]:
    """Two alternatives that both lead to the same recursive schema under the same name."""
    branch = {"type": "object", "properties": {"a": T}, **extra}
    return [branch, {**branch, "title": "other"}]


def chain(links: int) -> dict[str, Any]:
    """Definitions without recursion, each of which leads to the next in two ways."""

    def link(i: int) -> dict[str, Any]:
        step = {"type": "object", "properties": {"a": {"$ref": f"#/$defs/t{i + 1}"}}}
        return {"anyOf": [step, {**step, "title": "other"}]}

    defs = {f"t{i}": link(i) for i in range(links)}
    return {"$defs": {**defs, f"t{links}": {"type": "object"}}, "$ref": "#/$defs/t0"}


def ring(links: int) -> dict[str, Any]:
    """The same, with the last leading back to the first."""
    schema = chain(links)
    return {**schema, "$defs": {**schema["$defs"], f"t{links}": {"$ref": "#/$defs/t0"}}}


MULTIPLYING: dict[str, dict[str, Any]] = {
    "anyOf": {"$defs": {"t": {"anyOf": both()}}, **T},
    "anyOf required": {"$defs": {"t": {"anyOf": both(required=["a"])}}, **T},
    "oneOf": {"$defs": {"t": {"oneOf": both()}}, **T},
    "allOf": {"$defs": {"t": {"allOf": both()}}, **T},
    "patterns": {"$defs": {"t": {"type": "object", "properties": {"a": T}, "patternProperties": {"^a": T}}}, **T},
    "unevaluated": {
        "$defs": {"t": {"type": "object", "anyOf": [{"properties": {"a": T}}], "unevaluatedProperties": False}},
        **T,
    },
    "if": {"$defs": {"t": {"type": "object", "if": {"properties": {"a": T}}, "else": {"properties": {"a": T}}}}, **T},
    "root": {"anyOf": [{"type": "object", "properties": {"a": {"$ref": "#"}}, "title": t} for t in "xy"]},
    "dynamic": {
        "$dynamicAnchor": "t",
        "anyOf": [{"type": "object", "properties": {"a": {"$dynamicRef": "#t"}}, "title": t} for t in "xy"],
    },
    "two names": {
        "$defs": {
            "t": {"anyOf": [{"$ref": "#/$defs/u"}, {"$ref": "#/$defs/v"}]},
            "u": both()[0],
            "v": both()[1],
        },
        **T,
    },
    "chain 20": chain(20),
    "chain 60": chain(60),
    "ring 30": ring(30),
    "arrays": {"$defs": {"t": {"anyOf": [{"type": "array", "items": T}, {"type": "array", "prefixItems": [T]}]}}, **T},
}


def nest(levels: int, leaf: Any, *, lists: bool = False) -> Any:
    """A value of so many levels."""
    for _ in range(levels):
        leaf = [leaf] if lists else {"a": leaf}
    return leaf


def expressions() -> dict[str, Any]:
    """An expression tree: a union of ten kinds of nodes, each with two operands."""
    nodes = {
        kind: {
            "type": "object",
            "properties": {"type": {"const": kind}, "left": {"$ref": "#/$defs/E"}, "right": {"$ref": "#/$defs/E"}},
            "required": ["type", "left", "right"],
            "additionalProperties": False,
        }
        for kind in KINDS
    }
    union = {"oneOf": [*({"$ref": f"#/$defs/{kind}"} for kind in KINDS), {"type": "number"}]}
    return {"$defs": {"E": union, **nodes}, "$ref": "#/$defs/E"}


def expression(levels: int, leaf: Any = 1) -> Any:
    """An expression of so many levels."""
    if not levels:
        return leaf
    side = expression(levels - 1, 1)
    return {"type": KINDS[levels % 10], "left": expression(levels - 1, leaf), "right": side}


@pytest.mark.full
def test_hostile_schemas_end_for_deep_values() -> None:
    """In a process of its own: every multiplying schema answers for values of up to 100 levels in time."""
    code = """
import json, sys
from toolexec.model import Schema
for schema, values in json.load(sys.stdin):
    schema = Schema.of(schema).guard()
    for value in values:
        fits = schema.accepts(value)
        assert fits == (not schema.violations(value)), schema
print("all answered")
"""
    cases = [
        (schema, [nest(levels, leaf, lists=name == "arrays") for levels in (1, 3, 25, 40, 100) for leaf in (1, {}, [])])
        for name, schema in MULTIPLYING.items()
    ]
    done = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps(cases), capture_output=True, text=True, timeout=80, check=False
    )
    assert done.stdout.strip() == "all answered", done.stderr[-2000:]


class TestAnswers:
    def test_recursion_is_checked_at_any_depth(self) -> None:
        """A recursive union keeps its exact answer for deep values; only the explanation is cut short."""
        schema = Schema.of({"$defs": {"t": {"anyOf": [{"type": "number"}, *both()]}}, **T})
        assert schema.accepts(nest(100, 1))
        assert schema.violations(nest(100, 1)) == ()
        assert not schema.accepts(nest(100, "no"))
        (violation,) = schema.violations(nest(100, "no"))
        assert (violation.path, violation.keyword) == ("", "depth")
        assert "does not fit" in violation.message

    def test_shallow_values_are_explained(self) -> None:
        """A few levels get the whole explanation."""
        (violation,) = Schema.of({"$defs": {"t": {"anyOf": both(required=["a"])}}, **T}).violations(nest(3, {}))
        assert violation.keyword == "anyOf"

    def test_chains_are_refused_when_too_much(self) -> None:
        """Multiplication without recursion is checked while it is affordable, and refused beyond."""
        schema = Schema.of(chain(60)).guard()
        assert schema.accepts(nest(10, {}))
        assert not schema.accepts(nest(59, {}))
        (violation,) = schema.violations(nest(59, {}))
        assert violation.keyword == "depth"
        assert "too many checks" in violation.message
        assert "does not fit" not in violation.message

    def test_expression_trees_work(self) -> None:
        """A discriminated union of ten kinds, nested ten levels deep, is an ordinary schema."""
        schema = Schema.of(expressions()).guard()
        for levels in (0, 1, 3, 6, 10):
            assert schema.accepts(expression(levels))
            assert schema.violations(expression(levels)) == ()
            assert not schema.accepts(expression(levels, "no number"))
        assert [v.keyword for v in schema.violations(expression(2, "no number"))] == ["oneOf"]

    def test_large_flat_values_of_a_recursive_schema(self) -> None:
        """Width is not depth: a long list of small trees is checked."""
        schema = Schema.of({"type": "array", "items": {"$ref": "#/$defs/t"}, "$defs": {"t": {"properties": {"a": T}}}})
        assert schema.accepts([nest(3, 1)] * 20_000)


class TestRecognition:
    @pytest.mark.parametrize(
        "schema",
        [
            {"type": "object", "properties": {"a": {"type": "string"}}},
            {
                "$defs": {"s": {"type": "string"}},
                "properties": {"a": {"$ref": "#/$defs/s"}, "b": {"$ref": "#/$defs/s"}},
            },
            {
                "$defs": {f"t{i}": {"properties": {n: {"$ref": f"#/$defs/t{i + 1}"} for n in "abc"}} for i in range(40)}
                | {"t40": {}},
                "$ref": "#/$defs/t0",
            },
            {
                "$defs": {"p": {"properties": {"x": {"type": "number"}}}, "q": {"type": "null"}},
                "properties": {n: {"anyOf": [{"$ref": "#/$defs/p"}, {"$ref": "#/$defs/q"}]} for n in "abcdefgh"},
            },
        ],
        ids=["plain", "shared", "wide definitions", "optional models"],
    )
    def test_ordinary_schemas_are_not_counted(self, schema: dict[str, Any]) -> None:
        """Schemas that cannot multiply keep the library's own validator, and pay nothing per call."""
        validator = jsonschema_rs.Draft202012Validator(schema)
        assert bounded(validator, schema) is validator

    @pytest.mark.parametrize("schema", [{"properties": {"a": {"$ref": "#"}}}, expressions(), MULTIPLYING["anyOf"]])
    def test_recursion_is_counted_for_explanations_only(self, schema: dict[str, Any]) -> None:
        """The hot path of a recursive schema is the library's own method."""
        validator = jsonschema_rs.Draft202012Validator(schema)
        counting = bounded(validator, schema)
        assert isinstance(counting, CountingValidator)
        assert not counting.always
        assert counting.is_valid == validator.is_valid

    @pytest.mark.parametrize("schema", [chain(20), ring(20)], ids=["chain", "ring"])
    def test_multiplication_is_counted_always(self, schema: dict[str, Any]) -> None:
        """A multiplication that the library would not survive is counted first."""
        counting = bounded(jsonschema_rs.Draft202012Validator(schema), schema)
        assert isinstance(counting, CountingValidator)
        assert counting.always

    @pytest.mark.full
    def test_what_takes_too_long_to_analyse_is_counted(self) -> None:
        """A huge web of references is taken for the worst, and small values still pass."""
        names = [f"t{i}" for i in range(180)]
        web = {
            "$defs": {n: {"properties": {m: {"$ref": f"#/$defs/{m}"} for m in names[:150]}} for n in names},
            "$ref": "#/$defs/t0",
        }
        schema = Schema.of(web).guard()
        assert schema.accepts({"t1": {"t2": {}}})

    def test_booleans_have_nothing_to_count(self) -> None:
        """`true` and `false` are schemas too."""
        validator = jsonschema_rs.Draft202012Validator(True)
        assert bounded(validator, True) is validator
