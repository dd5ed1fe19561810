"""Inputs of a workflow as JSON Schema."""

from __future__ import annotations

import pytest

from toolexec.workflow.inputs import NotLiteralError, input_schema, literal_value, type_schema
from toolexec.workflow.nodes import (
    Constant,
    Duration,
    Entry,
    Expression,
    Input,
    ListLiteral,
    Name,
    ObjectLiteral,
    Spread,
    TypeName,
    Unary,
)

TYPES: list[tuple[TypeName, dict[str, object]]] = [
    (TypeName(name="any"), {}),
    (TypeName(name="integer"), {"type": "integer"}),
    (TypeName(name="list"), {"type": "array"}),
    (TypeName(name="list", items=TypeName(name="string")), {"type": "array", "items": {"type": "string"}}),
    (TypeName(name="choice", choices=("a", "b")), {"type": "string", "enum": ["a", "b"]}),
    (TypeName(name="string", nullable=True), {"anyOf": [{"type": "string"}, {"type": "null"}]}),
]


@pytest.mark.parametrize(("wanted", "schema"), TYPES)
def test_a_type_is_a_schema(wanted: TypeName, schema: dict[str, object]) -> None:
    """Each type of the language has its JSON Schema."""
    assert type_schema(wanted) == schema


def test_inputs_are_the_properties_of_an_object() -> None:
    """An input with a default may be left out, and the schema says the default where it is a literal."""
    inputs = [
        Input(name="repo", type=TypeName(name="string"), description="owner/name"),
        Input(name="limit", type=TypeName(name="integer"), default=Constant(value=10)),
        Input(name="since", type=TypeName(name="string"), default=Name(name="today")),
    ]
    assert input_schema(inputs) == {
        "type": "object",
        "properties": {
            "repo": {"type": "string", "description": "owner/name"},
            "limit": {"type": "integer", "default": 10},
            "since": {"type": "string"},
        },
        "additionalProperties": False,
        "required": ["repo"],
    }
    assert "required" not in input_schema(inputs[1:])


def test_literals_have_their_value() -> None:
    """Nested lists and objects, negative numbers and durations."""
    tree = ObjectLiteral(
        entries=(
            Entry(key="a", value=ListLiteral(items=(Unary(operator="-", value=Constant(value=2)),))),
            Entry(key="b", value=Duration(seconds=0.5, text="500ms")),
        )
    )
    assert literal_value(tree) == {"a": [-2], "b": 0.5}


@pytest.mark.parametrize(
    "expression",
    [
        Name(name="x"),
        Unary(operator="-", value=Constant(value="text")),
        Unary(operator="not", value=Constant(value=True)),
        ListLiteral(items=(Spread(value=Name(name="xs")),)),
        ObjectLiteral(entries=(Spread(value=Name(name="x")),)),
    ],
    ids=["name", "minus string", "not", "spread in a list", "spread in an object"],
)
def test_what_needs_a_run_is_not_a_literal(expression: Expression) -> None:
    """Names, operators and spreads have no value before the run."""
    with pytest.raises(NotLiteralError):
        literal_value(expression)
