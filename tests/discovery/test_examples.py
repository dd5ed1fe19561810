"""Examples that people wrote, and examples made up from a schema."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolexec.discovery import ToolExample, example_args
from toolexec.discovery.examples import args_size
from toolexec.errors import InvalidToolError
from toolexec.model import Schema


def nested(levels: int) -> Any:
    """A value of so many levels."""
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    return value


class TestToolExample:
    @pytest.mark.parametrize(
        ("args", "size"),
        [
            (None, (0, 0)),
            ("text", (0, 0)),
            ({}, (1, 0)),
            ([], (1, 0)),
            ({"a": 1}, (1, 1)),
            ({"a": {}}, (2, 1)),
            ({"a": [1, 2]}, (2, 3)),
            ({"a": {"b": {"c": 1}}, "d": 2}, (3, 4)),
            ([{"a": 1}] * 3, (2, 6)),
            (({"a": (1,)},), (3, 3)),
        ],
    )
    def test_args_size(self, args: Any, size: tuple[int, int]) -> None:
        """Levels of containers, and all their entries together, lists of dicts included."""
        assert args_size(args) == size

    @pytest.mark.parametrize("args", [nested(5), {f"k{i}": i for i in range(50)}, {"a": [{"b": 1}] * 24}])
    def test_caps_are_reached(self, args: Any) -> None:
        """5 levels and 50 values are fine."""
        assert ToolExample(args=args).checked(0).args == args

    @pytest.mark.parametrize("args", [nested(6), {f"k{i}": i for i in range(51)}, {"a": [{"b": 1}] * 25}])
    def test_caps_are_kept(self, args: Any) -> None:
        """More raises, and says which example and how much."""
        with pytest.raises(InvalidToolError, match=r"example 3 \(Big\)") as caught:
            ToolExample(title="Big", args=args).checked(2)
        assert set(caught.value.details) == {"depth", "size"}

    def test_args_must_be_json(self) -> None:
        """Refuses an example that no caller could send."""
        with pytest.raises(InvalidToolError, match="not JSON at /when"):
            ToolExample(args={"when": object()}).checked(0)

    def test_long_texts_are_cut(self) -> None:
        """Title 200, description 300, result hint 200 characters."""
        cut = ToolExample(title="é" * 500, description="d" * 500, result_hint="r" * 500).checked(0)
        assert (len(cut.title), len(cut.description), len(cut.result_hint)) == (200, 300, 200)

    def test_copies_share_nothing(self) -> None:
        """A checked example, a copy and the data form have arguments of their own."""
        args = {"a": {"b": [1]}}
        example = ToolExample(args=args).checked(0)
        args["a"]["b"].append(2)
        example.copy().args["a"]["b"].append(3)
        example.to_dict()["args"]["a"]["b"].append(4)
        assert example.args == {"a": {"b": [1]}}

    def test_to_dict(self) -> None:
        """ID and result hint appear when there are some."""
        assert ToolExample(title="t").to_dict() == {"title": "t", "description": "", "args": {}}
        assert ToolExample(id="i", result_hint="h").to_dict()["resultHint"] == "h"


SHAPES: list[tuple[dict[str, Any] | bool, dict[str, Any] | None]] = [
    (True, {}),
    (False, None),
    ({"type": "object"}, {}),
    ({"type": "string"}, None),
    ({"properties": {"a": {"type": "integer"}}}, {"a": 1}),
    ({"type": "object", "properties": {"a": {}, "b": {}}, "required": ["b"]}, {"b": "text"}),
    ({"type": "object", "properties": {"a": {}}, "required": []}, {}),
    ({"type": "object", "required": ["x"]}, {"x": "text"}),
    ({"properties": {"a": {"default": 7}, "b": {"const": None}, "c": {"enum": ["x", "y"]}, "d": {"examples": [3]}}},
     {"a": 7, "b": None, "c": "x", "d": 3}),
    ({"properties": {"a": {"type": "integer", "minimum": 5}, "b": {"type": "number", "exclusiveMinimum": 5}}}, {"a": 5, "b": 6}),
    ({"properties": {"a": {"type": "integer", "maximum": -5}, "b": {"type": "number", "exclusiveMaximum": 0}}}, {"a": -5, "b": -1}),
    ({"properties": {"a": {"type": "integer", "multipleOf": 7, "minimum": 10}, "b": {"type": "integer", "multipleOf": 3}}}, {"a": 14, "b": 3}),
    ({"properties": {"a": {"type": "boolean"}, "b": {"type": "null"}, "c": {"type": ["integer", "null"]}}}, {"a": True, "b": None, "c": 1}),
    ({"properties": {"a": {"type": "string", "minLength": 6}, "b": {"type": "string", "maxLength": 2}}}, {"a": "textxx", "b": "te"}),
    ({"properties": {"a": {"type": "array", "items": {"type": "integer"}, "minItems": 2}}}, {"a": [1, 1]}),
    ({"properties": {"a": {"type": "array", "maxItems": 0}}}, {"a": []}),
    ({"properties": {"a": {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "null"}], "minItems": 2}}}, {"a": [1, None]}),
    ({"properties": {"a": {"type": "string", "format": "date"}, "b": {"type": "string", "format": "odd"}}}, {"a": "2026-01-31", "b": "text"}),
    ({"properties": {"a": {"$ref": "#/$defs/t"}}, "$defs": {"t": {"type": "integer"}}}, {"a": 1}),
    ({"properties": {"a": {"$ref": "#/$defs/x~1y"}}, "$defs": {"x/y": {"type": "integer"}}}, {"a": 1}),
    ({"properties": {"a": {"anyOf": [{"type": "integer"}, {"type": "null"}]}, "b": {"oneOf": [{"type": "null"}]}}}, {"a": 1, "b": None}),
    ({"allOf": [{"properties": {"a": {"type": "integer"}}}, {"properties": {"b": {"type": "null"}}}], "type": "object"}, {"a": 1, "b": None}),
    ({"type": "object", "properties": {"a": {}}, "anyOf": [{"required": ["z"]}, {"required": ["a"]}], "additionalProperties": True}, None),
    ({"properties": {"a": {"type": "string", "pattern": "^[0-9]+$"}}}, None),
    ({"properties": {"a": False}}, None),
    ({"properties": {"a": {"properties": {"b": {"type": "integer"}}, "required": ["b"]}}}, {"a": {"b": 1}}),
]  # fmt: skip


class TestExampleArgs:
    @pytest.mark.parametrize(("schema", "expected"), SHAPES)
    def test_shapes(self, schema: Any, expected: dict[str, Any] | None) -> None:
        """Made-up arguments are small and fit, or there are none."""
        made = example_args(json.dumps(schema))
        if expected is None:
            assert made is None or Schema.of(schema).accepts(made)
        else:
            assert made == expected
            assert Schema.of(schema).accepts(made)

    @pytest.mark.parametrize(
        "schema",
        [
            {"properties": {f"p{i}": {"$ref": "#"} for i in range(30)}},
            {"properties": {f"p{i}": {"$ref": "#"} for i in range(30)}, "required": [f"p{i}" for i in range(30)]},
            {"properties": {"a": {"type": "array", "minItems": 10**12}}},
            {"properties": {"a": {"type": "array", "items": {"type": "array", "items": {"type": "array", "minItems": 20}, "minItems": 20}, "minItems": 20}}},
            {"properties": {"a": {"type": "string", "minLength": 10**12}}},
            {"properties": {"a": {"type": "string", "minLength": "x", "maxLength": [], "format": {}}}},
            {"properties": {"a": {"type": "integer", "minimum": "x", "exclusiveMinimum": True, "multipleOf": 0}}},
            {"properties": [], "required": [["x"], 7]},
            {"properties": {"a": {}}, "required": [[], {}, "a"]},
            {"type": [], "anyOf": {}, "allOf": 7, "oneOf": []},
            {"type": {"a": 1}},
            {"properties": {"a": {"$ref": "#/properties/b"}, "b": {"$ref": "#/properties/a"}}},
            {"properties": {"a": {"$ref": "#/nowhere"}, "b": {"$ref": 7}}},
            {"properties": {"a": {"pattern": "("}}},
            {"properties": {"a": {"type": "array", "items": [7], "prefixItems": "x"}}},
            '{"properties": {"a": {"type": "array", "minItems": 1e999}, "b": {"type": "number", "minimum": 1e999}}}',
        ],
    )  # fmt: skip
    def test_hostile_schemas(self, schema: Any) -> None:
        """No schema makes it crash, hang or fill the memory."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        made = example_args(text)
        assert made is None or len(json.dumps(made)) < 10_000

    def test_callers_cannot_spoil_it(self) -> None:
        """Each answer is a fresh one."""
        text = json.dumps({"properties": {"a": {"default": {"list": [1]}}}})
        first = example_args(text)
        assert first is not None
        first["a"]["list"].append(2)
        assert example_args(text) == {"a": {"list": [1]}}


scalars = st.sampled_from(
    [
        {"type": "string"},
        {"type": "integer", "minimum": 3},
        {"type": "number", "exclusiveMinimum": 0},
        {"type": "boolean"},
        {"enum": ["a", "b"]},
        {"const": 5},
        {"type": "string", "minLength": 12},
        {"type": ["null", "string"]},
        {"type": "string", "format": "uuid"},
    ]
)
names = st.sampled_from(["a", "b", "c", "d"])
schemas = st.recursive(
    scalars,
    lambda children: st.one_of(
        children.map(lambda child: {"type": "array", "items": child}),
        st.dictionaries(names, children, max_size=3).map(
            lambda p: {"type": "object", "properties": p, "required": list(p)}
        ),
        st.lists(children, min_size=1, max_size=2).map(lambda branches: {"anyOf": branches}),
    ),
    max_leaves=8,
)


@pytest.mark.full
@given(st.dictionaries(names, schemas, max_size=4), st.booleans())
@settings(max_examples=150, deadline=None)
def test_ordinary_schemas_get_an_example_that_fits(properties: dict[str, Any], closed: bool) -> None:
    """For any arrangement of ordinary parts there is an example, and it conforms."""
    schema = {"type": "object", "properties": properties, "additionalProperties": not closed}
    made = example_args(json.dumps(schema))
    assert made is not None
    assert Schema.of(schema).accepts(made)
