"""JSON Schemas as Python types."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from toolexec import Tool
from toolexec.code.stub_types import Budget, Definition, Parameters, SchemaTypes
from toolexec.code.stubs import stub_of
from toolexec.model.schema import Schema

A = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
B = {"type": "object", "properties": {"b": {"type": "string"}}}
SHORTENED = "Shortened: its schema is longer than a stub."


def result(schema: Any) -> str:
    """The stub of a tool with this output, without its first line."""
    tool = Tool(name="t", input_schema={"properties": {}}, output_schema=schema)
    return stub_of(tool).partition("\n\n")[2].strip()


def returned(schema: Any) -> str:
    """The return type of a tool with this output."""
    shown = result(schema).rpartition("def t() -> ")[2]
    return shown.removesuffix(": ...").removesuffix(f':\n    """{SHORTENED}"""')


def parameters(schema: Any) -> Parameters:
    document = Schema.of(schema).guard().to_json()
    return SchemaTypes(document, Budget(), itertools.count()).parameters(("t",))


def taken(schema: Any) -> dict[str, tuple[str, bool]]:
    """The type of each parameter, and whether it is required."""
    return {field.name: (field.type, field.required) for field in parameters(schema).fields}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "string"}, "str"),
        ({"type": "integer"}, "int"),
        ({"type": "number"}, "float"),
        ({"type": "boolean"}, "bool"),
        ({"type": "null"}, "None"),
        ({"type": ["null", "string"]}, "str | None"),
        ({"type": "array"}, "list[Any]"),
        ({"items": {"type": "string"}}, "list[str]"),
        ({"type": "object"}, "dict[str, Any]"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "dict[str, int]"),
        ({"type": "object", "additionalProperties": False}, "dict[str, Any]"),
        ({"patternProperties": {"^x": {"type": "integer"}, "^y": {"type": "null"}}}, "dict[str, int | None]"),
        ({"properties": {"gone": False}}, "dict[str, Any]"),
        (True, "Any"),
        (False, "Any"),
        ({}, "Any"),
        ({"type": "strange"}, "Any"),
        ({"description": "no type"}, "Any"),
    ],
)
def test_simple_types(schema: Any, expected: str) -> None:
    """Each has its Python type; what says nothing is Any."""
    if schema != {"type": "strange"}:
        assert returned(schema) == expected
    assert SchemaTypes(schema, Budget(), itertools.count()).type_of(schema, ("t",)) == expected


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"const": "x"}, 'Literal["x"]'),
        ({"enum": ["a", 1, True, "a"]}, 'Literal["a", 1, True]'),
        ({"enum": ["a", None]}, 'Literal["a"] | None'),
        ({"enum": [1.5, [1], {"a": 1}]}, "dict[str, Any] | float | list[Any]"),
        ({"enum": [f"value {i}" for i in range(100)]}, "str"),
        ({"enum": [*range(100), True, "x"]}, "int | bool | str"),
        ({"enum": ["x" * 2_000]}, "str"),
        ({"oneOf": [{"const": "a", "title": "A"}, {"const": "b"}, {"enum": ["c"]}]}, 'Literal["a", "b", "c"]'),
        ({"enum": ['"""', "\\", "\n", "\u202e", "it's"]}, """Literal['\"\"\"', "\\\\", "\\n", "\\u202e", "it's"]"""),
    ],
)
def test_choices(schema: Any, expected: str) -> None:
    """Literals where Python has them, and not too many; else the types of the values."""
    assert returned(schema) == expected


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}, "str | None"),
        ({"oneOf": [{"type": "null"}, {"type": "integer"}, {"type": "integer", "minimum": 1}]}, "int | None"),
        ({"anyOf": [{"type": "string"}, {}]}, "Any"),
        ({"anyOf": [{"type": "string"}, False]}, "str"),
        ({"anyOf": [False]}, "Any"),
        ({"anyOf": [{"type": "array", "items": {"const": i}} for i in range(30)]}, "Any"),
        ({"type": "string", "anyOf": [{"minLength": 1}, {"pattern": "x"}]}, "str"),
        ({"type": "object", "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, "TResult | TResult2"),
    ],
)
def test_alternatives(schema: Any, expected: str) -> None:
    """A union of all, in which Any swallows the rest."""
    assert returned(schema) == expected


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"prefixItems": [{"type": "string"}, {"type": "integer"}], "items": False}, "tuple[str, int]"),
        ({"prefixItems": [{"type": "string"}], "maxItems": 1}, "tuple[str]"),
        ({"prefixItems": [{"type": "string"}]}, "tuple[str, *tuple[Any, ...]]"),
        ({"prefixItems": [{"type": "string"}], "items": {"type": "null"}}, "tuple[str, *tuple[None, ...]]"),
        ({"prefixItems": [True] * 40}, "list[Any]"),
    ],
)
def test_tuples(schema: Any, expected: str) -> None:
    """Closed where there cannot be more items."""
    assert returned(schema) == expected


def test_tuples_of_draft_07() -> None:
    """There the list of items is under another name."""
    draft = {"$schema": "http://json-schema.org/draft-07/schema#"}
    assert returned({**draft, "items": [{"type": "string"}], "additionalItems": False}) == "tuple[str]"
    assert returned({**draft, "items": [{"type": "string"}]}) == "tuple[str, *tuple[Any, ...]]"


def test_an_object_gets_a_name() -> None:
    """From the way to it; what is required, what is not, and what else there is to say."""
    schema = {
        "type": "object",
        "properties": {
            "id": {"type": "integer", "minimum": 1},
            "owner": {"type": "object", "properties": {"name": {"type": "string", "description": "who\nit is"}}},
        },
        "required": ["id", "extra"],
        "additionalProperties": {"type": "string"},
    }
    assert result(schema) == (
        "class TResultOwner(TypedDict):\n"
        "    name: NotRequired[str]  # who it is\n\n"
        "class TResult(TypedDict):\n"
        "    # and any other keys: str\n"
        "    id: int  # >= 1\n"
        "    owner: NotRequired[TResultOwner]\n"
        "    extra: Any\n\n"
        "def t() -> TResult: ..."
    )


def test_a_note_names_what_else_is_there() -> None:
    """The names of types in it are the final ones."""
    shown = result({"properties": {"x": True}, "additionalProperties": A})
    assert "# and any other keys: TResultValue\n" in shown


def test_keys_that_are_no_names() -> None:
    """A type with keys that are not names is written as a call."""
    shown = result(
        {"properties": {"x-y": {"type": "integer", "maximum": 2}, "list": {"items": {}}}, "required": ["list"]}
    )
    assert 'TResult = TypedDict("TResult", {' in shown
    assert '    "x-y": NotRequired[int],  # <= 2' in shown
    assert '    "list": list[Any],' in shown


def test_references() -> None:
    """A type of its own under the name it has there; used twice it is still one."""
    schema = {"type": "array", "items": {"anyOf": [{"$ref": "#/$defs/Point"}, {"$ref": "#/$defs/Name"}]}}
    shown = result(schema | {"$defs": {"Point": A, "Name": {"type": "string"}}})
    assert "class Point(TypedDict):" in shown
    assert shown.endswith("-> list[Point | str]: ...")
    twice = {"prefixItems": [{"$ref": "#/$defs/P"}, {"$ref": "#/$defs/P"}], "items": False, "$defs": {"P": A}}
    assert returned(twice) == "tuple[P, P]"
    assert returned({"$ref": "#/$defs/none"}) == "Any"
    assert returned({"$ref": "#/definitions/P", "definitions": {"P": B}}) == "P"
    assert returned({"items": {"$ref": "#/properties/a"}, "properties": {"a": {"type": "null"}}, "type": "array"}) == (
        "list[None]"
    )


def test_an_ambiguous_reference_is_anything() -> None:
    """Where readings differ, none is chosen."""
    schema = {
        "items": {"$id": "http://a.example/x", "items": {"$ref": "#/$defs/P"}, "$defs": {"P": {"type": "null"}}},
        "$defs": {"P": {"type": "string"}},
    }
    assert returned(schema) == "list[list[Any]]"


def test_recursive_objects() -> None:
    """Recursive objects refer to themselves by name, also through each other."""
    tree = {"$defs": {"Tree": {"properties": {"kids": {"items": {"$ref": "#/$defs/Tree"}}}}}, "$ref": "#/$defs/Tree"}
    assert result(tree).startswith("class Tree(TypedDict):\n    kids: NotRequired[list[Tree]]\n")
    assert "next: NotRequired[TResult]" in result({"properties": {"next": {"$ref": "#"}}})
    left = {"properties": {"right": {"$ref": "#/$defs/Right"}}}
    right = {"properties": {"left": {"$ref": "#/$defs/Left"}}}
    shown = result({"$defs": {"Left": left, "Right": right}, "$ref": "#/$defs/Left"})
    assert "class Right(TypedDict):\n    left: NotRequired[Left]" in shown
    assert "class Left(TypedDict):\n    right: NotRequired[Right]" in shown


def test_recursive_values() -> None:
    """A recursive type that is not an object becomes an alias."""
    json = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"$ref": "#/$defs/Json"}}]}
    assert "Json: TypeAlias = str | list[Json]" in result({"$ref": "#/$defs/Json", "$defs": {"Json": json}})
    empty = {"properties": {"x": False}, "additionalProperties": {"$ref": "#"}}
    assert "TResult: TypeAlias = dict[str, TResult]" in result(empty)


def test_recursion_through_all_of() -> None:
    """A type that extends another and holds itself."""
    node = {"allOf": [{"$ref": "#/$defs/Base"}, {"properties": {"next": {"$ref": "#/$defs/Node"}}}]}
    shown = result({"$ref": "#/$defs/Node", "$defs": {"Node": node, "Base": A}})
    assert "class Node(TypedDict):\n    a: int\n    next: NotRequired[Node]" in shown


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"allOf": [A, B]}, "a: int\n    b: NotRequired[str]"),
        ({"allOf": [A, {"required": ["b"]}], **B}, "b: str\n    a: int"),
        ({"allOf": [A], "description": "just one"}, "a: int"),
        ({"allOf": [A, {"properties": {"a": {"minimum": 2}}}]}, "a: int"),
        ({"allOf": [{"allOf": [A]}, {"$ref": "#/$defs/B"}], "$defs": {"B": B}}, "a: int\n    b: NotRequired[str]"),
    ],
)
def test_all_of_objects_is_one_object(schema: Any, expected: str) -> None:
    """With the keys of all."""
    assert f"class TResult(TypedDict):\n    {expected}" in result(schema)


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"allOf": [{"type": "string"}]}, "str"),
        ({"allOf": [{"type": "string"}, {"minLength": 1}]}, "str"),
        ({"allOf": [{"minLength": 1}]}, "Any"),
        ({"allOf": [{"type": "string"}, {"enum": ["a"]}]}, "Any"),
        ({"allOf": [{"title": str(i)} for i in range(50)]}, "Any"),
        ({"$ref": "#/$defs/S", "type": "string", "$defs": {"S": {"enum": ["x"]}}}, "Any"),
    ],
)
def test_all_of_other_things(schema: Any, expected: str) -> None:
    """One that says it all, else Any."""
    assert returned(schema) == expected


def test_parameters_come_required_ones_first() -> None:
    """With what the schema says beside the type."""
    found = parameters(
        {
            "properties": {
                "b": {"type": "string", "format": "uri", "default": "x"},
                "a": {"$ref": "#/$defs/A", "description": "own"},
                "c": {"$ref": "#/$defs/A"},
                "never": False,
            },
            "required": ["a"],
            "$defs": {"A": {"type": "integer", "description": "theirs"}},
        }
    )
    assert [(f.name, f.type, f.required, f.comment, f.description) for f in found.fields] == [
        ("a", "int", True, "", "own"),
        ("b", "str", False, 'format uri, default "x"', ""),
        ("c", "int", False, "", "theirs"),
    ]
    assert found.rest == ""


@pytest.mark.parametrize(
    ("schema", "names", "rest"),
    [
        ({"type": "object"}, [], "Any"),
        (True, [], "Any"),
        (False, [], ""),
        ({"properties": {}}, [], ""),
        ({"additionalProperties": False}, [], ""),
        ({"additionalProperties": {"type": "integer"}}, [], "int"),
        ({"properties": {"a": True}, "additionalProperties": True}, ["a"], "Any"),
        ({"properties": {"a": True}, "patternProperties": {"^x": {"type": "null"}}}, ["a"], "None"),
        ({"$ref": "#/$defs/A", "$defs": {"A": A}}, ["a"], ""),
        ({"allOf": [A, B]}, ["a", "b"], ""),
        ({"required": ["x"]}, ["x"], ""),
        ({"properties": {"": True, "a": True}}, ["a"], "Any"),
        ({"properties": {"a" * 500: True}}, [], "Any"),
    ],
)
def test_which_parameters_there_are(schema: Any, names: list[str], rest: str) -> None:
    """Those with names, and the type of others where the schema speaks of others, or of none at all."""
    found = parameters(schema)
    assert ([field.name for field in found.fields], found.rest) == (names, rest)


def test_alternative_arguments() -> None:
    """All names of all alternatives; required is what each of them requires."""
    one = {"properties": {"kind": {"const": "a"}, "x": {"type": "integer"}}, "required": ["kind", "x"]}
    two = {"properties": {"kind": {"const": "b"}, "x": {"type": "string"}, "y": True}, "required": ["kind", "y"]}
    assert taken({"type": "object", "oneOf": [one, two], "properties": {"z": {"type": "null"}}}) == {
        "kind": ('Literal["a", "b"]', True),
        "x": ("int | str", False),
        "y": ("Any", False),
        "z": ("None", False),
    }
    assert taken({**B, "anyOf": [{"required": ["b"]}, {"required": ["c"]}]}) == {
        "b": ("str", False),
        "c": ("Any", False),
    }


def test_too_many_parameters_are_cut() -> None:
    """The first hundred are named, the rest may be passed."""
    found = parameters({"properties": {f"p{i}": {"type": "integer"} for i in range(500)}})
    assert (len(found.fields), found.rest) == (100, "Any")
    assert returned({"properties": {f"p{i}": True for i in range(500)}}) == "dict[str, Any]"
    assert returned({"properties": {"": True}}) == "dict[str, Any]"


def nested(levels: int) -> Any:
    schema: Any = {"type": "string"}
    for _ in range(levels):
        schema = {"items": schema}
    return schema


def test_deep_types_end_in_any() -> None:
    """After sixteen levels."""
    assert returned(nested(3)) == "list[list[list[str]]]"
    assert returned(nested(60)) == f"{'list[' * 16}Any{']' * 16}"


def doubling(keyword: str, levels: int) -> Any:
    """Each level has the next one twice."""
    defs: dict[str, Any] = {f"L{levels}": {"type": "string"}}
    for level in range(levels):
        pair = [{"type": "array", "items": {"$ref": f"#/$defs/L{level + 1}"}} for _ in range(2)]
        defs[f"L{level}"] = {"type": "array", "items": {keyword: pair}, "title": str(level)}
    return {"$ref": "#/$defs/L0", "$defs": defs}


@pytest.mark.parametrize("keyword", ["anyOf", "oneOf", "allOf", "prefixItems"])
def test_types_that_double_with_each_level_stay_small(keyword: str) -> None:
    """The work and the text are bounded, whatever the references multiply to."""
    assert len(result(doubling(keyword, 40))) < 5_000


def wide(levels: int) -> Any:
    schema: Any = {"type": "string"}
    for _ in range(levels):
        schema = {"properties": {f"key{i}": schema for i in range(8)}}
    return schema


def test_a_wide_and_deep_schema_stays_small() -> None:
    """Thousands of objects are not all written down; those at the top are."""
    shown = result(wide(4))
    assert len(shown) < 40_000
    assert "class TResult(TypedDict):\n    key0: NotRequired[TResultKey0]\n" in shown
    assert "    key7: NotRequired[Any]\n" in shown


def test_a_recursive_type_that_grows_too_long_is_any() -> None:
    """Its name is still there for those that refer to it."""
    budget = Budget(schemas=1_000, characters=40)
    document = {"items": {"anyOf": [{"$ref": "#"}, {"const": "x" * 100}]}}
    types = SchemaTypes(document, budget, itertools.count())
    token = types.type_of(document, ("t",))
    assert types.definitions == [Definition(token=token, words=("t",), alias="Any")]
    assert not budget.left


def test_long_names_use_up_the_budget() -> None:
    """No schema makes more than some dozens of kilobytes."""
    schema: Any = {"type": "string"}
    for _ in range(2):
        schema = {"properties": {f"{'k' * 190}{i}": schema for i in range(60)}}
    assert len(Schema.of(schema).text) > 600_000
    assert len(stub_of(Tool(name="t", input_schema=schema, output_schema=schema))) < 60_000
