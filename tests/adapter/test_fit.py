"""Schemas made to fit a dialect."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from toolexec.adapter import DIALECTS, Fitted, Losses, SchemaFeature, fit_schema, used_features
from toolexec.errors import InvalidSchemaError
from toolexec.model import DRAFT_07, Schema


def fit(schema: Any, dialect: str, *, describe: bool = True, root: bool = True) -> tuple[dict[str, Any], list[str]]:
    """The fitted schema, and the warnings as path, feature and action."""
    losses = Losses("a", "b")
    with losses.root("input"):
        fitted = fit_schema(Schema.of(schema), DIALECTS[dialect], losses, describe=describe, root=root)
    return fitted.schema, [f"{w.path} {w.feature} {w.action}" for w in losses.warnings()]


def fit_property(node: Any, dialect: str, **more: Any) -> tuple[Any, list[str]]:
    """The same for one property, `x`; the warnings without their path if it is that of the property."""
    schema, warnings = fit({"type": "object", "properties": {"x": node}, **more}, dialect)
    return schema["properties"].get("x"), [w.removeprefix("input:/properties/x ") for w in warnings]


@pytest.mark.parametrize(
    ("node", "dialect", "expected", "warnings"),
    [
        ({"const": 5}, "gemini-json", {"enum": [5]}, ["const rewritten"]),
        ({"const": "a", "type": "string"}, "gemini", {"type": "string", "enum": ["a"]}, ["const rewritten"]),
        (
            {"oneOf": [{"type": "string"}, {"type": "integer"}]},
            "openai-strict",
            {"anyOf": [{"type": "string"}, {"type": "integer"}]},
            ["oneOf loosened"],
        ),
        (
            {"type": ["integer", "null"], "exclusiveMinimum": 0, "exclusiveMaximum": 5.5},
            "gemini",
            {"type": "integer", "nullable": True, "minimum": 1, "maximum": 5},
            ["exclusiveMinimum rewritten", "exclusiveMaximum rewritten", "type rewritten"],
        ),
        (
            {"type": "number", "exclusiveMinimum": 0},
            "gemini",
            {"type": "number", "description": "(more than 0)"},
            ["exclusiveMinimum described"],
        ),
        (
            {"type": "integer", "exclusiveMinimum": 0, "minimum": 7},
            "gemini",
            {"type": "integer", "minimum": 7},
            ["exclusiveMinimum rewritten"],
        ),
        (
            {"type": "array", "prefixItems": [{"type": "number"}, {"type": "string"}], "items": {"type": "number"}},
            "gemini",
            {"type": "array", "items": {"anyOf": [{"type": "number"}, {"type": "string"}]}},
            ["prefixItems loosened"],
        ),
        (
            {"type": ["string", "integer", "null"], "minLength": 1, "minimum": 2, "title": "T"},
            "gemini",
            {
                "title": "T",
                "nullable": True,
                "anyOf": [{"type": "string", "minLength": 1}, {"type": "integer", "minimum": 2}],
            },
            ["type rewritten"],
        ),
        (
            {"anyOf": [{"type": "string", "maxLength": 3}, {"type": "null"}], "description": "d"},
            "gemini",
            {"type": "string", "maxLength": 3, "description": "d", "nullable": True},
            ["anyOf rewritten"],
        ),
        (
            {"anyOf": [{"type": "string"}, {"type": "integer"}, {"const": None}]},
            "gemini",
            {"anyOf": [{"type": "string"}, {"type": "integer"}], "nullable": True},
            ["anyOf rewritten"],
        ),
        ({"type": ["null"]}, "gemini", {"type": "null", "nullable": True}, ["type rewritten"]),
        ({"enum": ["a", "", "b"]}, "gemini", {"enum": ["a", "b"], "type": "string"}, ["enum loosened"]),
        ({"enum": [""]}, "gemini", {"anyOf": [{"type": t} for t in ("string", "number", "boolean")]}, None),
        ({"enum": [1, 2]}, "gemini", {"enum": ["1", "2"], "type": "integer", "format": "enum"}, ["enum rewritten"]),
        (
            {"type": "boolean", "enum": [True]},
            "gemini",
            {"type": "boolean", "description": "(one of true)"},
            ["enum described"],
        ),
        (
            {"type": ["string", "null"], "enum": ["a", None]},
            "gemini",
            {"type": "string", "enum": ["a"], "nullable": True},
            ["type rewritten"],
        ),
        (
            {"type": ["string", "null"], "enum": ["a", None]},
            "gemini-json",
            {"type": ["string", "null"], "enum": ["a"]},
            ["enum loosened"],
        ),
        ({"type": "string", "nullable": True}, "anthropic", {"type": "string", "nullable": True}, []),
        (
            {"type": "string", "nullable": True, "enum": ["a"]},
            "openai-strict",
            {"type": ["string", "null"], "enum": ["a", None]},
            ["nullable rewritten"],
        ),
        ({"type": "string", "nullable": False}, "openai-strict", {"type": "string"}, []),
        ({"nullable": True}, "openai-strict", {"description": "(may be null)"}, ["nullable described"]),
        ({"type": "string", "format": "email"}, "openai-strict", {"type": "string", "format": "email"}, []),
        (
            {"type": "string", "format": "uri", "description": "Where."},
            "openai-strict",
            {"type": "string", "description": "Where. (format uri)"},
            ["format described"],
        ),
        ({"type": "string", "format": "date-time"}, "gemini", {"type": "string", "format": "date-time"}, []),
        ({"type": ["integer", "null"], "format": "int32"}, "gemini", {"type": "integer", "format": "int32", "nullable": True}, None),
        ({"type": "array", "items": {"type": "string"}, "minItems": 1}, "anthropic-strict", {"type": "array", "items": {"type": "string"}, "minItems": 1}, []),
        (
            {"type": "array", "items": {"type": "string"}, "minItems": 2, "uniqueItems": True},
            "anthropic-strict",
            {"type": "array", "items": {"type": "string"}, "description": "(at least 2 items, no item twice)"},
            ["minItems described", "uniqueItems described"],
        ),
        ({"type": "array"}, "openai", {"type": "array", "items": {}}, []),
        ({}, "gemini", {"anyOf": [{"type": t} for t in ("string", "number", "boolean")]}, ["type loosened"]),
        ({"minLength": 1}, "gemini", {"minLength": 1, "type": "string"}, []),
        ({"properties": {}}, "gemini", {"properties": {}, "type": "object"}, []),
        (True, "gemini", {}, []),
        (False, "gemini", None, ["false dropped"]),
        (False, "openai", False, []),
        ({"items": False}, "gemini", {"items": {}, "type": "array"}, None),
        ({"x-unit": "m", "type": "number"}, "openai", {"x-unit": "m", "type": "number"}, []),
        ({"x-unit": "m", "type": "number"}, "gemini", {"type": "number", "description": '(x-unit "m")'}, ["x-unit described"]),
        (
            {"type": "object", "additionalProperties": {"type": "integer"}},
            "gemini",
            {"type": "object", "description": '(other properties: {"type": "integer"})'},
            ["additionalProperties described"],
        ),
        ({"type": "object", "additionalProperties": False}, "gemini", {"type": "object"}, ["additionalProperties dropped"]),
        ({"type": "string", "deprecated": False, "readOnly": True}, "gemini", {"type": "string", "description": "(read-only)"}, ["readOnly described"]),
        ({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a", "b"]}, "gemini", {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}, ["required loosened"]),
        ({"type": "object", "required": ["b"]}, "gemini", {"type": "object"}, ["required loosened"]),
        ({"type": "string", "$comment": "hm", "pattern": "x" * 300}, "gemini-json", {"type": "string"}, ["pattern dropped", "$comment dropped"]),
    ],
)  # fmt: skip
def test_one_property(node: Any, dialect: str, expected: Any, warnings: list[str] | None) -> None:
    """In other words where the dialect has them, else in plain ones; and each change is told, in a fixed order."""
    found, told = fit_property(node, dialect)
    assert found == expected
    if warnings is not None:
        assert [warning for warning in told if not warning.startswith("input:")] == warnings


def test_without_words() -> None:
    """On demand nothing is added to descriptions."""
    schema = {"type": "object", "properties": {"x": {"type": "string", "minLength": 1, "description": "d"}}}
    found, warnings = fit(schema, "openai-strict", describe=False)
    assert found["properties"]["x"] == {"type": "string", "description": "d"}
    assert warnings == ["input:/properties/x minLength dropped"]


class TestReferences:
    """References, and what stands in for them."""

    PLACE: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    TREE: dict[str, Any] = {"type": "object", "properties": {"left": {"$ref": "#/$defs/T"}, "v": {"type": "integer"}}}

    def test_they_stay_where_they_may(self) -> None:
        """With the definitions that are used, also by other definitions; the others go."""
        schema = {
            "type": "object",
            "properties": {"p": {"$ref": "#/$defs/P"}, "t": {"$ref": "#/$defs/T"}},
            "$defs": {"P": self.PLACE, "T": self.TREE, "Unused": {}},
        }
        found, warnings = fit(schema, "openai")
        assert found == {**schema, "$defs": {"P": self.PLACE, "T": self.TREE}}
        assert warnings == []

    def test_they_are_put_in_place(self) -> None:
        """Where the dialect has none; loops end."""
        schema = {
            "type": "object",
            "properties": {"p": {"$ref": "#/$defs/P", "description": "Home."}, "t": {"$ref": "#/$defs/T"}},
            "$defs": {"P": self.PLACE, "T": {**self.TREE, "description": "A tree."}},
        }
        found, warnings = fit(schema, "gemini")
        assert found["properties"]["p"] == {**self.PLACE, "description": "Home."}
        left = found["properties"]["t"]["properties"]["left"]
        assert left == {"type": "object", "description": "A tree."}
        assert "$defs" not in found
        assert warnings == [
            "input: $defs rewritten",
            "input:/properties/p $ref rewritten",
            "input:/properties/t $ref rewritten",
            "input:/properties/t/properties/left $ref dropped",
        ]

    @pytest.mark.parametrize(
        ("ref", "more"),
        [
            ("#/definitions/P", {"definitions": {"P": PLACE}}),
            ("#here", {"$defs": {"X": {**PLACE, "$anchor": "here"}}}),
            ("#/properties/q", {"properties": {"p": {"$ref": "#/properties/q"}, "q": PLACE}}),
        ],
    )
    def test_every_way_to_refer(self, ref: str, more: dict[str, Any]) -> None:
        """Whatever a reference points at is among the definitions afterwards, or in its place."""
        schema = {"type": "object", "properties": {"p": {"$ref": ref}}, **more}
        found, _ = fit(schema, "openai")
        name = found["properties"]["p"]["$ref"].removeprefix("#/$defs/")
        assert found["$defs"][name]["properties"] == self.PLACE["properties"]
        assert fit(schema, "gemini")[0]["properties"]["p"]["properties"] == self.PLACE["properties"]

    def test_a_name_is_taken_once(self) -> None:
        """Two definitions of the same name in different places stay two."""
        inner = {
            "type": "object",
            "$defs": {"P": {"type": "integer"}},
            "properties": {"i": {"$ref": "#/properties/o/$defs/P"}},
        }
        schema = {
            "type": "object",
            "properties": {"o": inner, "p": {"$ref": "#/$defs/P"}},
            "$defs": {"P": {"type": "string"}},
        }
        found, _ = fit(schema, "openai")
        assert found["$defs"] == {"P": {"type": "string"}, "P_2": {"type": "integer"}}
        assert found["properties"]["o"]["properties"]["i"] == {"$ref": "#/$defs/P_2"}

    def test_beside_a_reference(self) -> None:
        """Where nothing may stand there, the definition comes in its place; in a loop what is beside it goes."""
        schema = {
            "type": "object",
            "properties": {"p": {"$ref": "#/$defs/P", "description": "Home."}, "t": {"$ref": "#/$defs/T"}},
            "$defs": {
                "P": self.PLACE,
                "T": {"type": "object", "properties": {"t": {"$ref": "#/$defs/T", "title": "x"}}},
            },
        }
        found, _ = fit(schema, "openai-strict")
        assert found["properties"]["p"] == {**self.PLACE, "description": "Home."}
        inner = found["$defs"]["T"]["properties"]["t"]
        assert inner["properties"]["t"] == {"$ref": "#/$defs/T"} or inner == {"$ref": "#/$defs/T"}

    def test_to_the_root(self) -> None:
        """A loop through the whole schema."""
        schema = {"type": "object", "properties": {"me": {"$ref": "#"}}}
        assert fit(schema, "openai")[0] == schema
        assert fit(schema, "gemini")[0]["properties"]["me"]["type"] == "object"

    @pytest.mark.parametrize("dialect", ["gemini", "openai"])
    def test_to_nowhere(self, dialect: str) -> None:
        """Drops the reference and reports it."""
        found, warnings = fit_property({"$ref": "#/$defs/gone", "title": "t"}, dialect)
        assert found["title"] == "t"
        assert "$ref dropped" in warnings

    def test_to_a_boolean(self) -> None:
        """Anything goes there."""
        assert fit_property({"$ref": "#/$defs/any"}, "openai", **{"$defs": {"any": True}})[0] == {}

    def test_what_contradicts_a_definition(self) -> None:
        """Drops first what stands beside the reference."""
        node = {"$ref": "#/$defs/S", "type": "integer"}
        found, warnings = fit_property(node, "gemini", **{"$defs": {"S": {"type": "string", "minLength": 1}}})
        assert found["type"] == "integer"
        assert "$ref loosened" in warnings

    @pytest.mark.full
    def test_a_bomb_does_not_go_off(self) -> None:
        """Definitions that double at each link end somewhere."""
        defs: dict[str, Any] = {"d0": {"type": "string"}}
        for n in range(1, 14):
            ref = {"$ref": f"#/$defs/d{n - 1}"}
            defs[f"d{n}"] = {"type": "object", "properties": {"a": ref, "b": ref, "c": ref}}
        found, warnings = fit({"type": "object", "properties": {"x": {"$ref": "#/$defs/d13"}}, "$defs": defs}, "gemini")
        assert len(json.dumps(found)) < 3_000_000
        assert len(warnings) <= 501
        assert "more" in warnings[-1] or any("... dropped" in warning for warning in warnings)

    def test_a_deep_one_does_neither(self) -> None:
        """Levels end, too."""
        defs: dict[str, Any] = {"d0": {"type": "string"}}
        for n in range(1, 120):
            defs[f"d{n}"] = {"type": "object", "properties": {"a": {"$ref": f"#/$defs/d{n - 1}"}}}
        found, warnings = fit(
            {"type": "object", "properties": {"x": {"$ref": "#/$defs/d119"}}, "$defs": defs}, "gemini"
        )
        assert any("... dropped" in warning for warning in warnings)
        assert found["type"] == "object"


class TestAllOf:
    """`allOf` where there is none."""

    def test_one_part(self) -> None:
        """As pydantic writes it."""
        node = {"allOf": [{"$ref": "#/$defs/P"}], "description": "d"}
        found, warnings = fit_property(node, "gemini", **{"$defs": {"P": TestReferences.PLACE}})
        assert found == {**TestReferences.PLACE, "description": "d"}
        assert warnings[-1] == "allOf rewritten"

    def test_several_parts(self) -> None:
        """Bounds get tighter, properties and names come together."""
        node = {
            "allOf": [
                {"type": "object", "properties": {"a": {"type": "number", "minimum": 1}}, "required": ["a"]},
                {"properties": {"a": {"type": "integer", "minimum": 3}, "b": {"type": "string"}}, "required": ["b"]},
                True,
            ]
        }
        found, _ = fit_property(node, "gemini")
        assert found == {
            "type": "object",
            "properties": {"a": {"type": "integer", "minimum": 3}, "b": {"type": "string"}},
            "required": ["a", "b"],
        }

    @pytest.mark.parametrize(
        "parts",
        [
            [{"type": "string"}, {"type": "integer"}],
            [{"pattern": "a"}, {"pattern": "b"}],
            [{"properties": {"a": {}}, "additionalProperties": False}, {"properties": {"b": {}}}],
            [{"$ref": "#/properties/x"}],
            [False],
        ],
    )
    def test_what_cannot_be_one(self, parts: list[Any]) -> None:
        """Drops what cannot be merged and reports it."""
        found, warnings = fit_property({"allOf": parts, "title": "t"}, "gemini")
        assert "allOf" not in found
        assert any(warning.split()[0] == "allOf" for warning in warnings)

    def test_enums_in_common(self) -> None:
        """Only values that all have."""
        assert fit_property({"allOf": [{"enum": ["a", "b"]}, {"enum": ["b", "c"]}]}, "gemini")[0]["enum"] == ["b"]


class TestRoot:
    """Arguments are an object, and the root shows it."""

    @pytest.mark.parametrize("schema", [True, {}, {"type": ["object", "null"]}, {"properties": {}}])
    def test_always_an_object(self, schema: Any) -> None:
        """Whatever the schema says of it."""
        assert fit(schema, "openai")[0] == {"type": "object", "properties": {}}

    @pytest.mark.parametrize("schema", [{"type": "string"}, {"type": ["string", "null"]}])
    def test_never_anything_else(self, schema: Any) -> None:
        """There is no such call."""
        with pytest.raises(InvalidSchemaError, match="arguments are an object"):
            fit(schema, "anthropic")
        assert fit(schema, "mcp")[0] == schema
        assert fit(schema, "gemini", root=False)[0]["type"] == "string"

    def test_a_choice_becomes_one_object(self) -> None:
        """With all properties; which go together is said."""
        schema = {
            "oneOf": [
                {"$ref": "#/$defs/A"},
                {
                    "type": "object",
                    "properties": {"id": {"type": "integer"}, "k": {"const": "b"}},
                    "required": ["id", "k"],
                },
                {"type": "string"},
            ],
            "properties": {"dry": {"type": "boolean"}},
            "$defs": {
                "A": {
                    "type": "object",
                    "properties": {"name": {"type": "string"}, "k": {"const": "a"}},
                    "required": ["name", "k"],
                }
            },
        }
        found, warnings = fit(schema, "anthropic")
        assert found["type"] == "object"
        assert found["properties"] == {
            "dry": {"type": "boolean"},
            "name": {"type": "string"},
            "k": {"anyOf": [{"const": "a"}, {"const": "b"}]},
            "id": {"type": "integer"},
        }
        assert found["required"] == ["k"]
        assert found["description"] == "(give one of these: name and k; id and k)"
        assert "input: oneOf loosened" in warnings
        assert fit({**schema, "description": "d"}, "anthropic")[0]["description"].startswith("d (give one")

    def test_closed_branches_stay_closed(self) -> None:
        """If all of them are."""
        branch = {"type": "object", "properties": {"a": {}}, "additionalProperties": False}
        assert fit({"anyOf": [branch, branch]}, "openai")[0]["additionalProperties"] is False
        assert "additionalProperties" not in fit({"anyOf": [branch, {"type": "object"}]}, "openai")[0]

    def test_parts_that_all_hold(self) -> None:
        """As one object, if that can be said."""
        parts = [{"$ref": "#/$defs/A"}, {"properties": {"b": {}}, "required": ["b"]}]
        schema = {"allOf": parts, "$defs": {"A": {"type": "object", "properties": {"a": {}}, "required": ["a"]}}}
        found, warnings = fit(schema, "openai")
        assert found == {"type": "object", "properties": {"a": {}, "b": {}}, "required": ["a", "b"]}
        assert "input: allOf rewritten" in warnings
        found, warnings = fit({"allOf": [{"pattern": "a"}, {"pattern": "b"}]}, "openai")
        assert "input: allOf dropped" in warnings

    def test_what_cannot_be_at_the_root(self) -> None:
        """Drops a keyword that cannot be at the root."""
        schema = {"type": "object", "not": {"required": ["x"]}, "enum": [{}], "anyOf": [{"type": "string"}]}
        found, warnings = fit(schema, "openai")
        assert found == {"type": "object", "properties": {}}
        assert warnings == ["input: anyOf dropped", "input: not dropped", "input: enum dropped"]

    @pytest.mark.parametrize("ref", ["#", "#/$defs/A", "#/$defs/gone"])
    def test_a_root_that_only_refers(self, ref: str) -> None:
        """The definition takes its place; loops and dead ends are refused before, or end here."""
        schema = {"$ref": ref, "$defs": {"A": {"type": "object", "properties": {"a": {"type": "string"}}}}}
        if ref == "#":
            with pytest.raises(InvalidSchemaError):
                Schema.of(schema).guard()
        found, _ = fit(schema, "openai")
        assert found["type"] == "object"
        assert ("a" in found["properties"]) is (ref == "#/$defs/A")


def test_draft_07() -> None:
    """Its words become those of 2020-12, which vendors read; MCP takes them as they are."""
    schema = {
        "$schema": DRAFT_07,
        "type": "object",
        "properties": {
            "p": {"type": "array", "items": [{"type": "number"}], "additionalItems": False},
            "q": {"enum": [{"items": [1]}], "default": {"dependencies": {}}},
        },
        "dependencies": {"p": ["q"], "q": {"properties": {"r": {}}}},
    }
    found, warnings = fit(schema, "openai")
    assert found == {
        "type": "object",
        "properties": {
            "p": {"type": "array", "prefixItems": [{"type": "number"}], "items": False},
            "q": schema["properties"]["q"],
        },
        "dependentRequired": {"p": ["q"]},
        "dependentSchemas": {"q": {"properties": {"r": {}}}},
    }
    assert warnings == []
    assert fit(schema, "mcp")[0] == schema


def test_malformed_schemas_do_not_crash() -> None:
    """Keeps or drops what a validator would refuse later, and never crashes."""
    node = {
        "anyOf": 5,
        "allOf": "x",
        "enum": 7,
        "required": {"a": 1},
        "properties": [],
        "type": {},
        "items": 3,
        "minimum": "x",
    }
    for dialect in DIALECTS:
        if dialect != "a2a":
            fitted = fit({"type": "object", "properties": {"x": node, "y": 5}}, dialect)[0]
            assert fitted["type"] == "object"


def _random_schema(rng: random.Random, level: int = 0) -> Any:
    """Some schema, with references into `#/$defs`."""
    roll = rng.random()
    if roll < 0.05:
        return rng.choice([True, False, {}])
    if roll < 0.15:
        return {"$ref": f"#/$defs/D{rng.randrange(3)}", **({"description": "d"} if rng.random() < 0.3 else {})}
    node: dict[str, Any] = {}
    if rng.random() < 0.8:
        node["type"] = rng.choice(
            ["string", "integer", "number", "boolean", "array", "object", ["string", "null"], ["integer", "array"]]
        )
    values: dict[str, Any] = {
        "minLength": 1, "maxLength": 5, "pattern": "^a", "format": "uuid", "minimum": 0, "exclusiveMaximum": 9, "multipleOf": 2,
        "minItems": 2, "uniqueItems": True, "const": "c", "enum": ["a", None, 3], "default": None, "title": "T", "examples": [1],
        "nullable": True, "deprecated": True, "additionalProperties": False, "required": ["p", "zz"], "x-own": 1, "description": "D",
        "propertyNames": {"pattern": "^p"}, "dependentRequired": {"p": ["q"]}, "$comment": "c", "contentEncoding": "base64",
    }  # fmt: skip
    for key in rng.sample(sorted(values), rng.randrange(5)):
        node[key] = values[key]
    if level < 4:
        for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
            if rng.random() < 0.12:
                node[key] = [_random_schema(rng, level + 1) for _ in range(rng.randrange(1, 3))]
        for key in ("properties", "patternProperties", "dependentSchemas"):
            if rng.random() < (0.5 if key == "properties" else 0.06):
                node[key] = {name: _random_schema(rng, level + 1) for name in rng.sample(["p", "q", "r/s", "$t"], 2)}
        for key in ("items", "not", "if", "then", "contains", "additionalProperties"):
            if rng.random() < 0.08:
                node[key] = _random_schema(rng, level + 1)
    return node


@pytest.mark.full
@pytest.mark.parametrize(
    "dialect", ["openai", "openai-strict", "anthropic", "anthropic-strict", "gemini", "gemini-json"]
)
def test_only_what_the_dialect_has_is_left(dialect: str) -> None:
    """Of many schemas: no other keyword, every reference leads somewhere, the same again, and the source unchanged."""
    rng = random.Random(7)
    has = DIALECTS[dialect].features
    for _ in range(100):
        schema = {
            "type": "object",
            "properties": {"a": _random_schema(rng)},
            "$defs": {f"D{n}": _random_schema(rng) for n in range(3)},
        }
        try:
            source = Schema.of(schema).guard()
        except InvalidSchemaError:
            continue  # references that loop without reaching a value
        before = source.text
        losses = Losses("a", "b")
        fitted = fit_schema(source, DIALECTS[dialect], losses)
        again = fit_schema(source, DIALECTS[dialect], Losses("a", "b"))
        assert fitted == again
        assert source.text == before
        used = {feature for _, feature in used_features(fitted.schema)}
        assert used <= has | ({SchemaFeature.DEFS} if SchemaFeature.REF in has else set())
        _references_hold(fitted)
        for warning in losses.warnings():
            assert warning.path.startswith("tool:")
        Schema.of(fitted.schema).guard()


def _references_hold(fitted: Fitted) -> None:
    text = json.dumps(fitted.schema)
    defs = fitted.schema.get("$defs", {})
    for piece in text.split('"$ref": "')[1:]:
        ref = piece.partition('"')[0]
        assert ref == "#" or ref.removeprefix("#/$defs/") in defs
