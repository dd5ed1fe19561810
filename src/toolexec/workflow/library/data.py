"""Functions of any value: its type, its JSON text, and what a JMESPath selects from it."""

from __future__ import annotations

import json
import math
from json.decoder import JSONArray, JSONObject  # type: ignore[attr-defined]
from json.scanner import py_make_scanner  # type: ignore[attr-defined]
from typing import Any, Final

from toolexec.model.json_value import shorten
from toolexec.run.large import Budget, BudgetExceededError, search
from toolexec.workflow.library.function import Context, Library
from toolexec.workflow.values import (
    MAX_NESTING,
    OperationError,
    TooLargeError,
    Value,
    is_number,
    json_text,
    number,
    type_name,
)

DATA: Final = Library("data")
_MAX_JSON: Final = 8 << 20
_MAX_PATH: Final = 2000
_QUICK_STEPS: Final = 200_000
_QUICK_CHARS: Final = 1 << 16


@DATA.function("json(value: any) -> string", 'json({a: [1, "b"]})', '{"a":[1,"b"]}', deep=True)
def _json(context: Context, value: Value) -> str:
    """Return the value as JSON text."""
    return json_text(value, context.budget)


@DATA.function("parse_json(text: string) -> any", 'parse_json("[1, 2]")', [1, 2])
def _parse_json(context: Context, text: str) -> Value:
    """Return the value that a JSON text stands for."""
    if len(text) > _MAX_JSON:
        raise TooLargeError(f"parse_json takes {_MAX_JSON:,} characters, not {len(text):,}")
    decoder: Any = json.JSONDecoder(parse_float=_parse_float, parse_int=_parse_int, parse_constant=_refuse_constant)
    if len(text) > _QUICK_CHARS:  # the compiled scanner would hold the interpreter for as long as it takes
        decoder.parse_object, decoder.parse_array = JSONObject, JSONArray
        decoder.scan_once = py_make_scanner(decoder)
    try:
        value = decoder.decode(text)
        if "\\u" in text:
            json_text(value, context.budget).encode()
    except OperationError:
        raise
    except UnicodeEncodeError:
        raise OperationError("parse_json: the text has half of a surrogate pair", "value") from None
    except RecursionError:
        raise TooLargeError(f"parse_json: lists and objects may be nested {MAX_NESTING} deep") from None
    except ValueError as error:
        raise OperationError(f"parse_json: the text is not JSON: {shorten(str(error), 200)}", "value") from None
    _check_nesting(value, context)
    return value


def _parse_float(text: str) -> float:
    return float(number(float(text)))


def _parse_int(text: str) -> int:
    if len(text) > 1300:
        raise TooLargeError("parse_json: an integer has more than 1,300 digits")
    return int(number(int(text)))


def _refuse_constant(text: str) -> Value:
    raise OperationError(f"parse_json: {text} is not JSON", "value")


def _check_nesting(value: Value, context: Context, *, floats: bool = False) -> None:
    level: list[Value] = [value]
    for _ in range(MAX_NESTING):
        deeper: list[Value] = []
        for holder in level:
            kind = type(holder)
            items: list[Value] = holder if kind is list else [*holder.values()] if kind is dict else [holder]
            context.spend(len(items))
            if floats and any(type(item) is float and not math.isfinite(item) for item in items):
                raise OperationError("the number is too large for a float", "number")
            deeper += [item for item in items if type(item) is list or type(item) is dict]
        if not deeper:
            return
        level = deeper
    raise TooLargeError(f"lists and objects may be nested {MAX_NESTING} deep")


@DATA.function(
    "jmespath(value: any, path: string) -> any", 'jmespath({a: [{b: 1}, {b: 2}]}, "a[].b")', [1, 2], deep=True
)
def _jmespath(context: Context, value: Value, path: str) -> Value:
    """Return what a JMESPath expression selects from the value, or makes of it."""
    import jmespath

    if len(path) > _MAX_PATH:
        raise OperationError(f"a JMESPath may have {_MAX_PATH:,} characters, not {len(path):,}", "value")
    budget = context.budget or Budget(steps=_QUICK_STEPS)
    try:
        found = search(jmespath.compile(path).parsed, value, budget)
        _check_nesting(found, Context(budget=budget), floats=True)
    except (OperationError, RecursionError):
        raise
    except BudgetExceededError as error:
        raise TooLargeError(f"jmespath: {error}") from None
    except Exception as error:  # JMESPathError, and plain errors of its functions for values of wrong types
        raise OperationError(f"jmespath: {shorten(str(error), 300)}", "value") from None
    return found


@DATA.function("type(value: any) -> string", "type(1.5)", "number")
def _type(value: Value) -> str:
    """Return `null`, `boolean`, `integer`, `number`, `string`, `list` or `object`."""
    return type_name(value)


@DATA.function("is_null(value: any) -> boolean", "is_null(null)", True)
def _is_null(value: Value) -> bool:
    """Return whether the value is null."""
    return value is None


@DATA.function("is_boolean(value: any) -> boolean", "is_boolean(true)", True)
def _is_boolean(value: Value) -> bool:
    """Return whether the value is true or false."""
    return type(value) is bool


@DATA.function("is_number(value: any) -> boolean", 'is_number("1")', False)
def _is_number(value: Value) -> bool:
    """Return whether the value is an integer or another number."""
    return is_number(value)


@DATA.function("is_string(value: any) -> boolean", 'is_string("a")', True)
def _is_string(value: Value) -> bool:
    """Return whether the value is a string."""
    return type(value) is str


@DATA.function("is_list(value: any) -> boolean", "is_list([1])", True)
def _is_list(value: Value) -> bool:
    """Return whether the value is a list."""
    return type(value) is list


@DATA.function("is_object(value: any) -> boolean", "is_object({a: 1})", True)
def _is_object(value: Value) -> bool:
    """Return whether the value is an object."""
    return type(value) is dict
