"""Functions of numbers."""

from __future__ import annotations

import math
import re
from typing import Final

from toolexec.workflow.library.function import Library
from toolexec.workflow.values import OperationError, Value, described, is_number, number

NUMBERS: Final = Library("numbers")
_INTEGER: Final = re.compile(r"\s*[-+]?[0-9]{1,1300}\s*")
_FLOAT: Final = re.compile(r"\s*[-+]?(?:[0-9]{1,400}(?:\.[0-9]{0,400})?|\.[0-9]{1,400})(?:[eE][-+]?[0-9]{1,4})?\s*")


@NUMBERS.function("int(value: number | string) -> integer", 'int("42")', 42)
def _int(value: Value) -> Value:
    """Return the integer that a text stands for, or a number without its decimals."""
    if type(value) is str:
        if _INTEGER.fullmatch(value) is None:
            raise OperationError(f"{described(value)} is not an integer", "value")
        return number(int(value))
    return number(int(value))


@NUMBERS.function("float(value: number | string) -> number", 'float("1.50")', 1.5)
def _float(value: Value) -> Value:
    """Return a number, or the one that a text stands for, as a float."""
    return _as_float(value)


@NUMBERS.function("number(value: number | string) -> number", 'number("42")', 42)
def _number(value: Value) -> Value:
    """Return the number that a text stands for: an integer, else a float."""
    if type(value) is str and _INTEGER.fullmatch(value) is not None:
        return number(int(value))
    return value if is_number(value) else _as_float(value)


def _as_float(value: Value) -> Value:
    if type(value) is str and _FLOAT.fullmatch(value) is None:
        raise OperationError(f"{described(value)} is not a number", "value")
    try:
        return number(float(value))
    except OverflowError:
        raise OperationError("the number is too large for a float", "number") from None


@NUMBERS.function("round(value: number, digits?: integer) -> number", "round(2.345, 1)", 2.3)
def _round(value: Value, digits: int | None = None) -> Value:
    """Return the nearest integer, or the nearest number with so many digits after the point; a half goes to the even
    one."""
    if digits is None:
        return number(round(value))
    if not -400 <= digits <= 400:
        raise OperationError(f"round takes -400 to 400 digits, not {digits}", "value")
    return number(round(value, digits))


@NUMBERS.function("floor(value: number) -> integer", "floor(2.7)", 2)
def _floor(value: Value) -> Value:
    """Return the nearest integer that is not above the number."""
    return number(math.floor(value))


@NUMBERS.function("ceil(value: number) -> integer", "ceil(2.1)", 3)
def _ceil(value: Value) -> Value:
    """Return the nearest integer that is not below the number."""
    return number(math.ceil(value))


@NUMBERS.function("abs(value: number) -> number", "abs(-3)", 3)
def _abs(value: Value) -> Value:
    """Return the number without its sign."""
    return abs(value)


@NUMBERS.function("min(value: list | number | string, ...more: number | string) -> any", "min([3, 1, 2])", 1)
def _min(value: Value, *more: Value) -> Value:
    """Return the least of a list, or of several numbers or strings."""
    return min(_comparable("min", value, more))


@NUMBERS.function("max(value: list | number | string, ...more: number | string) -> any", "max(3, 7)", 7)
def _max(value: Value, *more: Value) -> Value:
    """Return the greatest of a list, or of several numbers or strings."""
    return max(_comparable("max", value, more))


def _comparable(name: str, value: Value, more: tuple[Value, ...]) -> list[Value]:
    if type(value) is list and more:
        raise OperationError(f"{name} takes one list, or several numbers or strings", "arguments")
    values: list[Value] = value if type(value) is list else [value, *more]
    if not values:
        raise OperationError(f"{name}: the list is empty", "value")
    return all_comparable(name, values)


def all_comparable(name: str, values: list[Value]) -> list[Value]:
    """Return the values if they are all numbers or all strings; raises OperationError."""
    kinds = set(map(type, values))
    if kinds <= {int, float} or kinds <= {str}:
        return values
    first = next((value for value in values if not is_number(value) and type(value) is not str), None)
    odd = described(first) if first is not None or type(None) in kinds else "both"
    raise OperationError(f"{name} takes numbers only, or strings only, not {odd}")
