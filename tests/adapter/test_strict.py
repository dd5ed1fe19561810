"""Strict tools, and the way back from them."""

from __future__ import annotations

from typing import Any

import pytest

from toolexec.adapter import DIALECTS, FormOptions, Losses, OpenAIAdapter, default_adapters, fit_strict, without_nulls
from toolexec.adapter.strict import strict_cost
from toolexec.errors import InvalidSchemaError
from toolexec.model import Schema, Tool

OPENAI, ANTHROPIC = DIALECTS["openai-strict"], DIALECTS["anthropic-strict"]


def strict(properties: dict[str, Any], dialect: Any = OPENAI, **more: Any) -> tuple[dict[str, Any] | None, list[str]]:
    """The strict schema of an object, if it can be, and the warnings."""
    losses = Losses("a", "b")
    schema = {"type": "object", "properties": properties, **more}
    with losses.root("input"):
        fitted = fit_strict(Schema.of(schema), dialect, losses)
    return (fitted.schema if fitted is not None else None), [
        f"{w.path} {w.feature}: {w.note}" for w in losses.warnings()
    ]


def test_everything_is_required_and_closed() -> None:
    """Every property is required; an optional one takes null instead."""
    place = {"type": "object", "properties": {"city": {"type": "string"}}}
    schema, _ = strict(
        {
            "a": {"type": "string"},
            "b": {"type": "integer", "description": "B"},
            "c": {"enum": ["x", "y"], "type": "string"},
            "d": {"type": ["string", "null"]},
            "e": {"anyOf": [{"type": "string"}, {"type": "integer"}], "description": "E"},
            "f": {"$ref": "#/$defs/P"},
            "g": {"const": "k", "description": "G"},
            "h": {"type": ["string", "integer"]},
            "i": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "j": {"type": "null"},
            "k": {"enum": [1, None]},
        },
        required=["a", "f"],
        **{"$defs": {"P": place}},
    )
    assert schema is not None
    assert schema["required"] == list(schema["properties"])
    assert schema["additionalProperties"] is False
    null = {"type": "null"}
    assert schema["properties"] == {
        "a": {"type": "string"},
        "b": {"type": ["integer", "null"], "description": "B"},
        "c": {"enum": ["x", "y", None], "type": ["string", "null"]},
        "d": {"type": ["string", "null"]},
        "e": {"anyOf": [{"type": "string"}, {"type": "integer"}, null], "description": "E"},
        "f": {"$ref": "#/$defs/P"},
        "g": {"description": "G", "anyOf": [{"const": "k"}, null]},
        "h": {"type": ["string", "integer", "null"]},
        "i": {"anyOf": [{"type": "string"}, null]},
        "j": null,
        "k": {"enum": [1, None]},
    }
    city = {"city": {"type": ["string", "null"]}}
    assert schema["$defs"]["P"] == {**place, "properties": city, "required": ["city"], "additionalProperties": False}


def test_anthropic_lets_things_be_absent() -> None:
    """Closes objects, but leaves optional properties optional."""
    schema, _ = strict(
        {"a": {"type": "string"}, "o": {"type": "object", "properties": {"x": {"type": "string"}}}}, ANTHROPIC
    )
    assert schema is not None
    assert schema["properties"]["a"] == {"type": "string"}
    assert schema["required"] == []
    assert schema["properties"]["o"]["additionalProperties"] is False


@pytest.mark.parametrize(
    ("node", "path", "reason"),
    [
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "/properties/x", "any other properties"),
        ({"type": "object", "additionalProperties": True, "properties": {"a": {"type": "string"}}}, "/properties/x", "other"),
        ({"type": "object"}, "/properties/x", "an object with any properties"),
        ({}, "/properties/x", "a value of any type"),
        ({"type": "array", "items": {}}, "/properties/x", "items of any type"),
        ({"type": "array"}, "/properties/x", "items of any type"),
        ({"type": "object", "properties": {"a/b": {}}}, "/properties/x/properties/a~1b", "a value of any type"),
        ({"type": "object", "patternProperties": {"^a": {}}, "properties": {"a": {"type": "string"}}}, "/properties/x", "patternProp"),
        ({"allOf": [{"pattern": "a"}, {"pattern": "b"}], "type": "string"}, "/properties/x", "allOf cannot be held"),
        ({"enum": list(range(1001))}, "", "1002 values of enums; 1000 is the most"),
        ({"enum": ["x" * 130_000]}, "", "characters of names and values"),
        ({"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(5001)}}, "", "5003 properties"),
    ],
)  # fmt: skip
def test_what_cannot_be_strict(node: Any, path: str, reason: str) -> None:
    """There is one warning that says where and why, and none of what else would have been lost."""
    schema, warnings = strict({"x": node, "y": {"type": "string", "minLength": 2}})
    assert schema is None
    assert len(warnings) == 1
    assert warnings[0].startswith(f"input:{path} strict: ")
    assert reason in warnings[0]


def test_levels_are_counted() -> None:
    """Ten are the most."""
    node: dict[str, Any] = {"type": "string"}
    for _ in range(11):
        node = {"type": "object", "properties": {"x": node}}
    assert strict({"x": node})[0] is None
    inner = node["properties"]["x"]["properties"]["x"]
    assert strict({"x": inner})[0] is not None


@pytest.mark.parametrize("loop", [True, False])
def test_recursion(loop: bool) -> None:
    """OpenAI takes it, Anthropic does not."""
    tree = {
        "type": "object",
        "properties": {"v": {"type": "string"}, "w": {"$ref": "#/$defs/T" if loop else "#/$defs/L"}},
    }
    leaf = {"type": "object", "properties": {"v": {"type": "string"}}}
    more = {"$defs": {"T": tree, "L": leaf}}
    assert strict({"x": {"$ref": "#/$defs/T"}}, OPENAI, **more)[0] is not None
    schema, warnings = strict({"x": {"$ref": "#/$defs/T"}}, ANTHROPIC, **more)
    assert (schema is None) is loop
    assert ("a loop" in "".join(warnings)) is loop


def test_it_falls_back() -> None:
    """The tool is written as without the option, and marked as not strict."""
    tool = Tool(name="t", input_schema={"type": "object", "properties": {"x": {}}})
    for name in ("openai", "openai-responses", "anthropic"):
        done = default_adapters().get(name).from_tool(tool, FormOptions(strict=True))
        assert not done.strict
        assert [str(w.path) for w in done.warnings] == ["input:/properties/x"]
    assert "strict" not in OpenAIAdapter().from_tool(tool, FormOptions(strict=True)).form["function"]


def test_what_a_request_pays() -> None:
    """Parameters that may be absent, and unions, at every level."""
    schema, _ = strict(
        {
            "a": {"type": "string"},
            "b": {"type": ["string", "null"]},
            "c": {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "integer"}]}},
            "d": {"type": "object", "properties": {"e": {"type": "string"}}},
        },
        ANTHROPIC,
        required=["a"],
    )
    assert schema is not None
    cost = strict_cost(schema)
    assert (cost.optional, cost.unions) == (4, 2)


class TestTheWayBack:
    """Nulls that models write for what they leave out."""

    SCHEMA = Schema.of(
        {
            "type": "object",
            "properties": {
                "a": {"type": "string"},
                "b": {"type": ["string", "null"]},
                "c": {"$ref": "#/$defs/P"},
                "d": {"type": "array", "items": {"$ref": "#/$defs/P"}},
                "e": {"anyOf": [{"$ref": "#/$defs/P"}, {"type": "null"}]},
                "f": {"enum": ["x"]},
                "g": {"anyOf": [{"type": "string"}, {"const": None}]},
                "h": {"type": "integer"},
                "i": {},
            },
            "required": ["h"],
            "$defs": {
                "P": {
                    "type": "object",
                    "properties": {"q": {"type": "integer"}, "r": {"type": "integer"}},
                    "required": ["r"],
                }
            },
        }
    )

    def test_nulls_that_say_nothing_go(self) -> None:
        """Those that may be, and those that must not be absent, stay."""
        args = {
            "a": None,
            "b": None,
            "c": {"q": None, "r": 1},
            "d": [{"q": None, "r": 2}, {"q": 3, "r": 4}],
            "e": {"q": None, "r": 5},
            "f": None,
            "g": None,
            "h": 1,
            "i": None,
        }
        before = repr(args)
        assert without_nulls(self.SCHEMA, args) == {
            "b": None,
            "c": {"r": 1},
            "d": [{"r": 2}, {"q": 3, "r": 4}],
            "e": {"r": 5},
            "g": None,
            "h": 1,
            "i": None,
        }
        assert repr(args) == before
        assert without_nulls(self.SCHEMA, {"h": None, "c": {"r": None}}) == {"h": None, "c": {"r": None}}

    def test_what_fits_stays_the_same(self) -> None:
        """Returns a value that fits as the very same object."""
        args = {"h": 1, "b": None}
        assert without_nulls(self.SCHEMA, args) is args

    @pytest.mark.parametrize(
        "schema",
        [
            False,
            {"properties": 5, "required": ["x"]},
            {"properties": {"a": {"$ref": "#/$defs/gone"}}, "required": ["x"], "$defs": {}},
            {"anyOf": [{"required": ["x"]}, {"required": ["y"]}]},
        ],
    )
    def test_odd_schemas(self, schema: Any) -> None:
        """Nothing is taken away where nothing is known."""
        try:
            found = without_nulls(Schema.of(schema), {"a": None})
        except InvalidSchemaError:  # it cannot be compiled
            found = {"a": None}
        assert found == {"a": None}

    def test_a_strict_call_fits_the_tool_again(self) -> None:
        """Whatever a strict schema takes, without the nulls it is what the tool takes."""
        made = fit_strict(self.SCHEMA_TWO, OPENAI, Losses("a", "b"))
        assert made is not None
        call = {"name": "x", "size": None, "home": {"city": "Bern", "zip": None}, "tags": [{"k": None}], "mode": None}
        assert Schema.of(made.schema).accepts(call)
        assert not self.SCHEMA_TWO.accepts(call)
        back = without_nulls(self.SCHEMA_TWO, call)
        assert self.SCHEMA_TWO.accepts(back)
        assert back == {"name": "x", "home": {"city": "Bern"}, "tags": [{}]}

    SCHEMA_TWO = Schema.of(
        {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "size": {"type": "integer", "default": 3},
                "home": {"type": "object", "properties": {"city": {"type": "string"}, "zip": {"type": "string"}}},
                "tags": {"type": "array", "items": {"type": "object", "properties": {"k": {"type": "string"}}}},
                "mode": {"enum": ["a", "b"]},
            },
            "required": ["name"],
        }
    )
