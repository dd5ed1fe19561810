"""Schemas: kept as text, compared as JSON, checked under the rules of their own dialect."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolexec.errors import InvalidSchemaError, Outcome
from toolexec.model import DRAFT_07, DRAFT_2020_12, Schema
from toolexec.model.schema import EMPTY_OBJECT

D7 = {"$schema": DRAFT_07}


def accepts(schema: Any, value: Any) -> bool:
    """Return whether a schema accepts a value; guarded first, as a tool's schemas are."""
    return Schema.of(schema).guard().accepts(value)


class TestForms:
    @pytest.mark.parametrize(
        "form",
        [
            {"type": "object", "required": ["a"]},
            '{"type":"object","required":["a"]}',
            b' {"required": ["a"], "type": "object"} ',
            bytearray(b'{"type":"object","required":["a"]}'),
            Schema.of({"type": "object", "required": ["a"]}),
            {"type": "object", "required": ("a",)},
        ],
        ids=["dict", "text", "bytes", "bytearray", "schema", "tuple inside"],
    )
    def test_any_form_is_the_same_schema(self, form: Any) -> None:
        """Mapping, text, bytes: the same JSON is the same schema."""
        schema = Schema.of(form)
        assert schema == Schema.of({"required": ["a"], "type": "object"})
        assert hash(schema) == hash(Schema.of({"required": ["a"], "type": "object"}))
        assert schema.accepts({"a": 1})
        assert not schema.accepts({})

    @pytest.mark.parametrize(
        ("form", "message"),
        [
            (None, "not NoneType"),
            (7, "not int"),
            (["type"], "not list"),
            ("", "cannot parse"),
            (b"", "cannot parse"),
            ("{", "cannot parse"),
            (b"\xff\xfe", "cannot parse"),
            ('"text"', "not str"),
            ("null", "not NoneType"),
            ("[]", "not list"),
            ('{"maximum": NaN}', "NaN is not JSON"),
            ({"maximum": float("inf")}, "not JSON"),
            ({"default": object()}, "not JSON"),
            ({"default": b"x"}, "not JSON"),
        ],
    )
    def test_what_is_no_schema(self, form: Any, message: str) -> None:
        """Everything else is refused with the reason."""
        with pytest.raises(InvalidSchemaError, match=message):
            Schema.of(form)

    def test_caller_and_schema_share_nothing(self) -> None:
        """Changing the dict it was made of, or the one that it gives, changes nothing."""
        given_dict: dict[str, Any] = {"required": ["a"]}
        schema = Schema.of(given_dict)
        given_dict["required"].append("b")
        schema.to_json()["required"].append("c")
        assert schema.to_json() == {"required": ["a"]}

    def test_the_callers_schema_is_not_changed(self) -> None:
        """Checking a draft-07 schema does not touch it."""
        given_dict = {**D7, "type": "string"}
        before = json.dumps(given_dict)
        assert accepts(given_dict, "x")
        assert json.dumps(given_dict) == before

    def test_booleans(self) -> None:
        """`true` accepts everything, `false` nothing, and `{}` is as good as `true`."""
        assert accepts(True, 1)
        assert accepts({}, 1)
        assert not accepts(False, 1)
        assert Schema.of(False).violations(1)

    def test_repr_is_short(self) -> None:
        """A schema in a log line does not flood it."""
        assert repr(Schema.of({"type": "null"})) == 'Schema({"type":"null"})'
        assert len(repr(Schema.of({"enum": ["x" * 10_000]}))) < 300


class TestEquality:
    @pytest.mark.parametrize(
        ("left", "right", "equal"),
        [
            ({"const": 42}, {"const": 42.0}, True),
            ({"const": 42.0}, {"const": 42}, True),
            ({"const": True}, {"const": 1}, False),
            ({"const": None}, {}, False),
            ({"const": [1, 2]}, {"const": [2, 1]}, False),
            ({"const": {"a": 1, "b": [{}]}}, {"const": {"b": [{}], "a": 1}}, True),
            ({"enum": ["a"]}, {"enum": ["a", "a"]}, False),
            (True, {}, False),
        ],
    )
    def test_equality_of_json(self, left: Any, right: Any, equal: bool) -> None:
        """Numbers by value, booleans apart from numbers, keys in any order; both ways alike."""
        a, b = Schema.of(left), Schema.of(right)
        assert (a == b) is equal
        assert (b == a) is equal
        if equal:
            assert hash(a) == hash(b)

    def test_a_schema_is_no_dict(self) -> None:
        """Comparing with something else is false."""
        assert Schema.of({}) != {}


class TestDialects:
    @pytest.mark.parametrize(
        "uri",
        [
            DRAFT_2020_12,
            DRAFT_2020_12 + "#",
            DRAFT_07,
            DRAFT_07.rstrip("#"),
            "https://json-schema.org/draft-07/schema#",
            "https://json-schema.org/draft-07/schema",
        ],
    )
    def test_known_dialects(self, uri: str) -> None:
        """Both drafts in every common spelling work to the end."""
        assert accepts({"$schema": uri, "type": "string"}, "x")
        assert not accepts({"$schema": uri, "type": "string"}, 1)

    @pytest.mark.parametrize(
        "uri",
        [
            "http://json-schema.org/draft-04/schema#",
            "http://json-schema.org/draft-06/schema#",
            "https://json-schema.org/draft/2019-09/schema",
            "https://json-schema.org/draft/2020-12/meta/core",
            "http://json-schema.org/draft-07/links",
            "https://example.com/my-dialect",
            "",
            7,
            None,
            ["x" * 10_000],
        ],
    )
    def test_other_dialects_are_refused(self, uri: Any) -> None:
        """At the guard and at use, with a short message that names those that work."""
        schema = Schema.of({"$schema": uri, "type": "string"})
        for use in (schema.guard, lambda: schema.accepts("x")):
            with pytest.raises(InvalidSchemaError, match="2020-12") as caught:
                use()
            assert len(str(caught.value)) < 500

    def test_draft_07_tuples(self) -> None:
        """`items` as a list is a tuple in draft-07, and `additionalItems` follows it."""
        schema = {**D7, "items": [{"type": "string"}, {"type": "integer"}], "additionalItems": False}
        assert accepts(schema, ["a", 1])
        assert not accepts(schema, [1, "a"])
        assert not accepts(schema, ["a", 1, 2])

    def test_draft_07_dependencies(self) -> None:
        """`dependencies` are enforced, both kinds."""
        schema = {**D7, "dependencies": {"card": ["address"], "vip": {"required": ["name"]}}}
        assert accepts(schema, {"card": 1, "address": 2})
        assert not accepts(schema, {"card": 1})
        assert not accepts(schema, {"vip": 1})

    def test_draft_07_ignores_siblings_of_ref(self) -> None:
        """In draft-07 only the reference counts; in 2020-12 both do."""
        schema = {
            "definitions": {"t": {"type": "string"}},
            "properties": {"a": {"$ref": "#/definitions/t", "maxLength": 1}},
        }
        assert accepts({**D7, **schema}, {"a": "long"})
        assert not accepts({**D7, **schema}, {"a": 7})
        assert not accepts(schema, {"a": "long"})

    def test_draft_07_anchors(self) -> None:
        """`$id: "#name"` is an anchor in draft-07."""
        schema = {**D7, "definitions": {"t": {"$id": "#t", "type": "string"}}, "properties": {"a": {"$ref": "#t"}}}
        assert accepts(schema, {"a": "x"})
        assert not accepts(schema, {"a": 1})

    def test_draft_07_does_not_know_newer_keywords(self) -> None:
        """`prefixItems`, `dependentRequired` and `unevaluatedProperties` mean nothing there."""
        newer = {"prefixItems": [False], "dependentRequired": {"a": ["b"]}, "unevaluatedProperties": False}
        assert accepts({**D7, **newer}, {"a": 1})
        assert accepts({**D7, **newer}, [1])
        assert not accepts(newer, {"a": 1, "b": 2})
        assert not accepts(newer, [1])

    def test_2020_12_dynamic_references(self) -> None:
        """`$dynamicRef` finds its anchor."""
        tree = {
            "$dynamicAnchor": "node",
            "type": "object",
            "properties": {"children": {"type": "array", "items": {"$dynamicRef": "#node"}}},
        }
        assert accepts(tree, {"children": [{"children": []}]})
        assert not accepts(tree, {"children": [{"children": [3]}]})


class TestValues:
    @pytest.mark.parametrize(
        ("type_name", "good", "bad"),
        [
            ("string", "x", 123),
            ("integer", 1, True),
            ("integer", 1.0, 1.5),
            ("integer", 10**400, "1"),
            ("number", 1.5, False),
            ("boolean", True, 1),
            ("array", [], {}),
            ("object", {}, []),
            ("null", None, 0),
        ],
    )
    def test_types(self, type_name: str, good: Any, bad: Any) -> None:
        """JSON's types, where a boolean is not a number and a whole float is an integer."""
        assert accepts({"type": type_name}, good)
        assert not accepts({"type": type_name}, bad)

    def test_no_parameters(self) -> None:
        """`additionalProperties: false` alone accepts only the empty object, and says which name is unknown."""
        closed = Schema.of({"type": "object", "additionalProperties": False})
        assert closed.accepts({})
        (violation,) = closed.violations({"x": 1})
        assert violation.keyword == "additionalProperties"
        assert "'x' is not a known name" in violation.message
        assert EMPTY_OBJECT.accepts({"x": 1})

    def test_integers_stay_exact(self) -> None:
        """Numbers beyond 2**53 and beyond 2**64 are compared exactly."""
        assert not accepts({"const": 2**53}, 2**53 + 1)
        assert accepts({"const": 2**53 + 1}, 2**53 + 1)
        assert not accepts({"maximum": 2**64}, 2**64 + 1)
        assert accepts({"minimum": 10**30}, 10**30)
        assert not accepts({"minimum": 10**30}, 10**30 - 1)

    @pytest.mark.parametrize(
        "value",
        [float("nan"), float("inf"), "\ud800", {(1,): 2}, {"\ud800": 1}, {"a": ["\udfff"]}, b"\xff", 1j, object()],
    )
    def test_what_is_not_json_conforms_to_nothing(self, value: Any) -> None:
        """Every schema refuses such a value, even the empty one, with the location and the reason."""
        assert not accepts({}, value)
        assert [v.keyword for v in Schema.of({}).violations(value)] == ["json"]

    def test_bottomless_values(self) -> None:
        """100,000 levels, and values that contain themselves, are refused without harm to the process."""
        deep: Any = 1
        for _ in range(100_000):
            deep = {"a": deep}
        circle: list[Any] = []
        circle.append(circle)
        tree = Schema.of({"properties": {"a": {"$ref": "#"}}, "items": {"$ref": "#"}})
        for value in (deep, circle):
            assert not tree.accepts(value)
            assert [v.keyword for v in tree.violations(value)] == ["json"]

    def test_formats_are_notes(self) -> None:
        """`format`, `contentEncoding` and `default` enforce and change nothing."""
        value: dict[str, Any] = {"a": "no address"}
        schema = {"properties": {"a": {"format": "email", "contentEncoding": "base64"}, "b": {"default": 1}}}
        assert accepts(schema, value)
        assert value == {"a": "no address"}

    @given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=10))
    def test_const_accepts_exactly_its_value(self, value: Any) -> None:
        """A constant accepts what it says."""
        assert accepts({"const": value}, value)
        assert not accepts({"not": {"const": value}}, value)
        assert Schema.of({"const": value}).violations(value) == ()


class TestUnusable:
    @pytest.mark.parametrize(
        "schema",
        [
            {"$ref": "#/$defs/missing"},
            {"$ref": "#missing"},
            {"$ref": "#/allOf/x"},
            {"type": "strnig"},
            {"type": 7},
            {"properties": []},
            {"required": "a"},
            {"pattern": "("},
            {"minimum": "1"},
            {"anyOf": []},
            {"$ref": 7},
        ],
    )
    def test_broken_schemas(self, schema: dict[str, Any]) -> None:
        """A dangling reference, an unknown type or a bad pattern is told at the first use."""
        with pytest.raises(InvalidSchemaError, match="the schema"):
            Schema.of(schema).guard().accepts({"a": 1})

    @pytest.mark.parametrize(
        ("pattern", "text"),
        [
            ("^(a+)+$", "a" * 5000 + "!"),
            (r"(a*)*\1b", "a" * 40),
            (r"^(?=(a|aa)+$)b", "a" * 100),
            ("(x+x+)+y", "x" * 60),
        ],
    )
    def test_catastrophic_patterns_end(self, pattern: str, text: str) -> None:
        """A pattern that backtracks without end does not match, and says so."""
        schema = Schema.of({"pattern": pattern})
        assert not schema.accepts(text)
        assert [v.keyword for v in schema.violations(text)] != []

    def test_a_pattern_that_explodes_is_no_schema(self) -> None:
        """A pattern too large to compile is refused."""
        with pytest.raises(InvalidSchemaError):
            Schema.of({"pattern": "(?:a{0,1000}){0,1000}b"}).accepts("a")


class TestFlatValues:
    """Require that `conforms_flat` answers with one look what `to_json` and `conforms` answer with two."""

    SCHEMAS = (
        {"type": "object"},
        {"properties": {"a": {"type": "string"}, "b": {"type": ["integer", "null"]}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"enum": ["x", 1, None]}}, "additionalProperties": False},
        {"properties": {"a": {"type": "integer"}, "b": {"type": "string"}, "é": True}, "additionalProperties": False},
        {
            "properties": {"a": {"type": ["number", "null"]}, "b": {}},
            "additionalProperties": False,
            "minProperties": 1,
        },
        {
            **D7,
            "properties": {"b": {}},
            "patternProperties": {"^[aé]": {"type": "boolean"}},
            "additionalProperties": False,
        },
        {"properties": {"a": {"type": "number"}}, "unevaluatedProperties": False},
        {"anyOf": [{"required": ["a"]}, {"required": ["b"]}], "maxProperties": 2},
        {**D7, "properties": {"a": {"const": True}}, "dependencies": {"a": ["b"]}},
        True,
        False,
    )
    VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["x", "\ud800"])

    @given(
        schema=st.sampled_from(SCHEMAS),
        value=st.dictionaries(st.sampled_from(["a", "b", "\ud800", "é"]) | st.text(max_size=2), VALUES, max_size=4),
    )
    def test_one_look_is_as_good_as_two(self, schema: Any, value: dict[str, Any]) -> None:
        """The answer is the same for all flat values, those that are not JSON included."""
        known = Schema.of(schema)
        assert known.conforms_flat(value) is known.accepts(value)

    @pytest.mark.parametrize(
        "value",
        [{"a": float("nan")}, {"a": "\udfff"}, {"a": 10**5000}, {1: "a"}, {"\udfff": 1}],
        ids=["nan", "surrogate", "digits", "key", "surrogate key"],
    )
    def test_what_is_not_json_does_not_conform(self, value: Any) -> None:
        """The value has to be looked at otherwise, be it to make JSON of it or to refuse it."""
        assert not EMPTY_OBJECT.conforms_flat(value)

    @pytest.mark.parametrize("kind", ["string", "number", "integer", "boolean", "null", ["string", "number"]], ids=str)
    @pytest.mark.parametrize(
        "value",
        [float("nan"), float("inf"), "\udfff", 10**5000, Decimal(3), [], {}, Outcome.DONE, b"x"],
        ids=["nan", "infinite", "surrogate", "digits", "Decimal", "list", "dict", "member", "bytes"],
    )
    def test_what_is_not_json_does_not_conform_to_a_type(self, kind: Any, value: Any) -> None:
        """Nor does what is nested, or of another type of Python, whatever type the only property has."""
        schema = Schema.of({"properties": {"a": {"type": kind}}, "additionalProperties": False})
        assert not schema.conforms_flat({"a": value})

    @pytest.mark.parametrize("schema", [{"$ref": "#/$defs/a", "$defs": {"a": {}}}, {"type": "nonsense"}], ids=str)
    def test_schemas_for_which_one_look_is_not_enough(self, schema: Any) -> None:
        """A schema with references, or an unusable one, gets False, and nothing is raised."""
        assert not Schema.of(schema).conforms_flat({})
