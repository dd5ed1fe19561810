"""The inputs of a workflow as JSON Schema, and the values that literals stand for."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from toolexec.workflow.nodes import (
    Constant,
    Duration,
    Entry,
    Expression,
    Input,
    ListLiteral,
    ObjectLiteral,
    Spread,
    TypeName,
    Unary,
    Value,
)

_JSON_TYPES: Final = {"list": "array"}


class NotLiteralError(ValueError):
    """An expression needs a run to have a value."""

    def __init__(self) -> None:
        super().__init__("only literals can stand here")


def input_schema(inputs: Iterable[Input]) -> dict[str, object]:
    """Return the JSON Schema of the arguments of a workflow with these inputs; those without a default are required."""
    properties: dict[str, object] = {}
    required: list[str] = []
    for declared in inputs:
        schema = type_schema(declared.type)
        if declared.description:
            schema["description"] = declared.description
        if declared.default is None:
            required.append(declared.name)
        else:
            with suppress(NotLiteralError):  # others are computed when the workflow begins
                schema["default"] = literal_value(declared.default)
        properties[declared.name] = schema
    whole: dict[str, object] = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        whole["required"] = required
    return whole


def type_schema(wanted: TypeName) -> dict[str, object]:
    """Return the JSON Schema of the values of a type."""
    if wanted.name == "any":
        return {}
    if wanted.name == "choice":
        schema: dict[str, object] = {"type": "string", "enum": list(wanted.choices)}
    else:
        schema = {"type": _JSON_TYPES.get(wanted.name, wanted.name)}
        if wanted.items is not None:
            schema["items"] = type_schema(wanted.items)
    return {"anyOf": [schema, {"type": "null"}]} if wanted.nullable else schema


def literal_value(expression: Value) -> object:
    """Return the JSON value of an expression of literals only; raises NotLiteralError for any other."""
    match expression:
        case Constant():
            return expression.value
        case Duration():
            return expression.seconds
        case Unary(operator="-", value=inner):
            value = literal_value(inner)
            if isinstance(value, int | float) and not isinstance(value, bool):
                return -value
        case ListLiteral():
            return [literal_value(_own(item)) for item in expression.items]
        case ObjectLiteral():
            return {entry.key: literal_value(entry.value) for entry in map(_entry, expression.entries)}
        case _:
            pass
    raise NotLiteralError


def _own(item: Expression | Spread) -> Expression:
    if isinstance(item, Spread):
        raise NotLiteralError
    return item


def _entry(entry: Entry | Spread) -> Entry:
    if isinstance(entry, Spread):
        raise NotLiteralError
    return entry
