"""Check calls of the standard library against its own table of signatures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from toolexec.errors.hints import did_you_mean
from toolexec.workflow.functions import FUNCTIONS
from toolexec.workflow.library.function import Function, Parameter
from toolexec.workflow.nodes import Call, Constant
from toolexec.workflow.report import Report, shown
from toolexec.workflow.shapes import (
    ANY,
    NULL,
    NUMBER,
    STRING,
    Kind,
    ObjectShape,
    Shape,
    kinds_text,
    list_of,
    of_kinds,
    union,
)
from toolexec.workflow.values import MAX_ENTRIES

_KINDS: Final[dict[str, tuple[Kind, ...]]] = {
    "null": ("null",),
    "boolean": ("boolean",),
    "integer": ("number",),
    "number": ("number",),
    "string": ("string",),
    "list": ("list",),
    "object": ("object",),
}
_SAME_ITEMS: Final = frozenset({"sort", "reverse", "unique", "take", "drop"})
"""Functions whose result has the items of the list that is their first argument."""
_ONE_ITEM: Final = frozenset({"first", "last"})
_OF_STRINGS: Final = frozenset({"split", "lines", "keys"})
_TOOLS: Final = frozenset({"run_tool", "call", "call_tool", "tool", "invoke", "execute"})


def check_function(report: Report, call: Call, arguments: Sequence[Shape]) -> Shape:
    """Check a call whose arguments have these shapes, and return the shape of its result."""
    function = FUNCTIONS.get(call.function)
    if function is None:
        hint = 'write run("namespace:name", {...}) to call a tool' if call.function in _TOOLS else ""
        known = did_you_mean(call.function, FUNCTIONS, otherwise=f"there are {', '.join(FUNCTIONS)}")
        report.error("unknown-function", call.at, f"there is no function {shown(call.function)}", hint or known)
        return ANY
    if not function.least <= len(arguments) <= (len(arguments) if function.most is None else function.most):
        message = f"{function.name} takes {_count(function)}, not {len(arguments)}"
        report.error("wrong-arguments", call.at, message, function.signature)
        return _result(function, arguments)
    for place, shape in enumerate(arguments):
        parameter = function.parameters[min(place, len(function.parameters) - 1)]
        _check_argument(report, call, function, parameter, place, shape)
    if function.name == "range":
        _check_range(report, call)
    return _result(function, arguments)


def _check_argument(
    report: Report, call: Call, function: Function, parameter: Parameter, place: int, shape: Shape
) -> None:
    kinds = _kinds_of(parameter.types)
    node = call.arguments[place]
    if kinds is None or (parameter.optional and shape.may_be("null")):
        return
    if not shape.may_be(*kinds):
        message = f"{parameter.name} of {function.name} is {kinds_text(frozenset(kinds))}"
        report.error(
            "wrong-arguments", node.at, f"{message}, and this is {kinds_text(shape.kinds)}", function.signature
        )
    elif parameter.types == ("integer",) and isinstance(node, Constant):
        value = node.value
        if isinstance(value, float) and not value.is_integer():
            message = f"{parameter.name} of {function.name} is an integer, not {value}"
            report.error("wrong-arguments", node.at, message, function.signature)


def _check_range(report: Report, call: Call) -> None:
    bounds = [node.value for node in call.arguments if isinstance(node, Constant)]
    numbers = [value for value in bounds if isinstance(value, int) and not isinstance(value, bool)]
    if len(numbers) != len(call.arguments):
        return
    start, stop, step = (0, numbers[0], 1) if len(numbers) == 1 else (*numbers[:2], *(numbers[2:] or [1]))
    if step and len(made := range(start, stop, step)) > MAX_ENTRIES:
        message = f"this range has {len(made):,} numbers; a list has at most {MAX_ENTRIES:,}"
        report.error("unbounded-loop", call.at, message)


def _result(function: Function, arguments: Sequence[Shape]) -> Shape:
    first = arguments[0] if arguments else ANY
    if function.name in _SAME_ITEMS and first.is_only("list"):
        return list_of(first.item())
    if function.name in _ONE_ITEM and first.is_only("list"):
        return union([first.item(), NULL])
    if function.name in _OF_STRINGS:
        return list_of(STRING)
    if function.name == "range":
        return list_of(NUMBER)
    kinds = _kinds_of(tuple(function.returns.split(" | ")))
    if kinds is None:
        return ANY
    return ObjectShape({}, is_open=True) if kinds == ("object",) else of_kinds(*kinds)


def _kinds_of(types: Sequence[str]) -> tuple[Kind, ...] | None:
    """Return the kinds of values of these types; None where any value will do."""
    kinds: list[Kind] = []
    for name in types:
        if name not in _KINDS:
            return None
        kinds += _KINDS[name]
    return tuple(dict.fromkeys(kinds))


def _count(function: Function) -> str:
    least, most = function.least, function.most
    if most is None:
        return f"at least {least} argument{'s' * (least != 1)}"
    some = f"{least}" if least == most else f"{least} to {most}"
    return f"{some} argument{'s' * (most != 1)}"
