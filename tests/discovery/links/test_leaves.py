"""The leaves of schemas: where values are in results, which arguments there are, and that nothing is without bounds."""

from __future__ import annotations

import json
from typing import Any

import jmespath
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.discovery.links.services import COUNT, TEXT, many, obj

from toolexec.discovery.links.leaves import PATH, arguments_of, leaves_of, property_name


def paths(schema: Any) -> list[str]:
    """The paths of a result's leaves."""
    return [leaf.path for leaf in leaves_of(json.dumps(schema))]


class TestResults:
    """Where values are."""

    def test_objects_and_lists(self) -> None:
        """Paths are JMESPath, nearest to the root first."""
        schema = obj(id=COUNT, items=many(obj(name=TEXT, tags=many(TEXT))), owner=obj(login=TEXT))
        assert paths(schema) == ["id", "owner.login", "items[].name", "items[].tags[]"]
        assert paths(many(obj(id=TEXT))) == ["[].id"]
        assert paths(TEXT) == ["@"]

    def test_alternatives_and_references(self) -> None:
        """`$ref` into the document, and the parts of allOf, anyOf and oneOf, are followed."""
        schema = {
            "$defs": {"Issue": obj(id=TEXT, parent={"anyOf": [{"$ref": "#/$defs/Issue"}, {"type": "null"}]})},
            "allOf": [obj(a={"type": ["null", "string"]}), {"$ref": "#/$defs/Issue"}],
        }
        found = leaves_of(json.dumps(schema))
        assert [leaf.path for leaf in found][:3] == ["id", "a", "parent.id"]
        assert next(leaf for leaf in found if leaf.path == "id").hint == "Issue"
        assert len(found) < 12

    def test_what_is_left_out(self) -> None:
        """Secrets, enumerations, booleans, references elsewhere, and names that no path should hold."""
        schema = obj(
            password=TEXT, state={"type": "string", "enum": ["a"]}, ok={"type": "boolean"},
            far={"$ref": "other.json"}, lost={"$ref": "#/nowhere"}, odd=[1], **{"please do this": TEXT, "x" * 65: TEXT},
        )  # fmt: skip
        assert paths(schema) == []
        assert paths(True) == []
        assert paths({"$ref": f"#/{'x' * 600}"}) == []

    def test_names_that_need_quotes(self) -> None:
        """Quotes such names, so that JMESPath finds them."""
        (path,) = paths(obj(**{"content-type": TEXT}))
        assert path == '"content-type"'
        assert jmespath.search(path, {"content-type": "x"}) == "x"
        assert paths(obj(**{"a.b": obj(ß=TEXT)})) == ['"a.b"."ß"']

    def test_bounds(self) -> None:
        """Thousands of properties, deep nesting, endless references and megabytes give a bounded answer."""
        wide = obj(**{f"p{number}": TEXT for number in range(10_000)})
        assert len(paths(wide)) == 120
        deep: Any = TEXT
        for level in range(40):
            deep = obj(**{f"a{level}": deep, f"b{level}": TEXT})
        assert len(paths(deep)) == 6
        loop = {"$ref": "#/$defs/a", "$defs": {f"{c}": {"$ref": f"#/$defs/{c}"} for c in "ab"}}
        assert paths(loop) == []
        assert paths(obj(a={"type": "string", "description": "x" * 600_000})) == []
        many_parts = {"anyOf": [{"anyOf": [{"anyOf": [obj(**{f"n{part}": TEXT}) for part in range(9)]}] * 9}] * 9}
        assert 1 <= len(paths(many_parts)) <= 9
        branching = {"$defs": {"N": {"anyOf": [obj(a={"$ref": "#/$defs/N"}, b={"$ref": "#/$defs/N"}), TEXT]}},
                     "$ref": "#/$defs/N"}  # fmt: skip
        assert len(paths(branching)) <= 120


class TestArguments:
    """Which arguments there are."""

    def test_required_first(self) -> None:
        """With type, description, and whether they are lists or secret."""
        schema = {
            **obj(
                page=COUNT,
                ids=many({"type": "string", "description": "Issue IDs"}),
                token=TEXT,
                hidden={"type": "string", "format": "password"},
                when={"anyOf": [{"type": "null"}, {"type": "string", "format": "date"}], "description": "then"},
            ),
            "required": ["ids", "when", 7],
        }
        found = {argument.name: argument for argument in arguments_of(json.dumps(schema))}
        assert list(found) == ["ids", "when", "page", "token", "hidden"]
        assert (found["ids"].kind, found["ids"].many, found["ids"].description) == ("string", True, "Issue IDs")
        assert (found["when"].kind, found["when"].node["format"]) == ("string", "date")
        assert [argument.name for argument in found.values() if argument.secret] == ["token", "hidden"]

    def test_objects(self) -> None:
        """The arguments in an object have names with dots; they are required if all that leads to them is."""
        schema = {
            **obj(body={**obj(issue={"$ref": "#/$defs/I"}, note=TEXT), "required": ["issue"]}, free={"type": "object"}),
            "required": ["body"],
            "$defs": {"I": {"allOf": [{**obj(id=TEXT), "required": ["id"]}]}},
        }
        found = {argument.name: argument.required for argument in arguments_of(json.dumps(schema))}
        assert found == {"body.issue.id": True, "body.note": False, "free": False}
        assert arguments_of(json.dumps(schema))[0].names == ("body", "issue", "id")

    def test_bounds(self) -> None:
        """Thousands of arguments and deep objects give a bounded answer."""
        assert len(arguments_of(json.dumps(obj(**{f"p{number}": TEXT for number in range(10_000)})))) == 120
        deep: Any = TEXT
        for _ in range(40):
            deep = obj(a=deep)
        assert [argument.name for argument in arguments_of(json.dumps(deep))] == ["a.a.a"]
        wide = obj(
            **{f"p{n}": obj(**{f"q{m}": obj(**{f"r{k}": TEXT for k in range(9)}) for m in range(9)}) for n in range(99)}
        )
        assert len(arguments_of(json.dumps(wide))) <= 120
        assert arguments_of("true") == []


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["string", "integer", "object", "array", "#/$defs/a", ""]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["type", "properties", "items", "$ref", "anyOf", "allOf", "required", "$defs", "a", "enum", "title", "description", "format"]),
        inner,
        max_size=5,
    ),
    max_leaves=30,
)  # fmt: skip


@given(_json)
def test_any_schema(schema: Any) -> None:
    """Whatever stands where: nothing raises, and each path is one that JMESPath reads."""
    for leaf in leaves_of(json.dumps(schema)):
        assert PATH.fullmatch(leaf.path)
        jmespath.compile(leaf.path)
    for argument in arguments_of(json.dumps(schema)):
        assert all(map(property_name, argument.names))


@pytest.mark.parametrize("name", [None, 3, "", "a b", 'a"b', "a\nb", "x" * 65])
def test_names_that_no_path_holds(name: Any) -> None:
    """Blanks, quotes and long names are not taken up."""
    assert property_name(name) == ""
