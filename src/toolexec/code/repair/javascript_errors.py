"""Errors of JavaScript that name a word of the program, or an operation on nothing: what to write there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from toolexec.code.repair.failure import Failure
from toolexec.code.repair.javascript_program import JavaScriptProgram
from toolexec.code.repair.source import calls_of, instead, split
from toolexec.code.tools import Tools
from toolexec.model.json_value import JSONValue

_CONSTANT: Final = re.compile(r"TypeError: (?:'(\w+)' is read-only|Assignment to constant variable)")
_ASSIGNED: Final = re.compile(
    r"(?<![\w$.])([A-Za-z_$][\w$]*)\s*(?:(?:[-+*/%|&?^]|\*\*|\|\||&&|\?\?)?=(?![=>])|\+\+|--)"
)
_OVER_NUMBERS: Final = re.compile(r"(\bfor\s*\(\s*(?:const|let|var)\s+(\w+)\s+in\s+)([A-Za-z_$][\w$]*|\[)")
_NOT_FUNCTION: Final = re.compile(r"TypeError: .*not a function")
_EMPTY: Final = re.compile(r"TypeError: (?:empty array|Reduce of empty array)")
_FOLD: Final = re.compile(r"((?<![\w$.])[A-Za-z_$][\w$]*(?:\??\.[A-Za-z_$][\w$]*|\[[^\[\]]*\])*\.reduce)\(")
_SUM: Final = re.compile(r"\(\s*(\w+)\s*,\s*(\w+)\s*\)\s*=>\s*\1\s*\+\s*\2")


def about_javascript_errors(failure: Failure, tools: Tools | None) -> str:
    """Return what to write instead; "" where nothing certain can be said."""
    if failure.language not in ("javascript", "typescript"):
        return ""
    if found := _CONSTANT.match(failure.message):
        return _of_constant(found[1], failure)
    if failure.kind != "SyntaxError" and (advice := _of_numbers(failure)):
        return advice
    if _NOT_FUNCTION.match(failure.message):
        return _of_call(failure, tools)
    return _of_nothing(failure, tools) if _EMPTY.match(failure.message) else ""


def _of_numbers(failure: Failure) -> str:
    """Advise on a loop over the numbers of an array that the program has written out, taken for its items."""
    for found in _OVER_NUMBERS.finditer(failure.code):
        name, array = found[2], found[3]
        is_array = array.startswith("[") or re.search(rf"\b{re.escape(array)}\s*=\s*\[", failure.code) is not None
        if is_array and not re.search(rf"\[{re.escape(name)}\]", failure.code[found.end() :]):
            new = found[0].replace(f"{name} in ", f"{name} of ")
            return f"`in` gives the numbers of an array: {instead(found[0].strip(), new.strip())}"
    return ""


def _of_call(failure: Failure, tools: Tools | None) -> str:
    """Advise on a length that is called, and on an array that is called with a place."""
    if found := re.search(r"((?:[\w$]|\.|\[[^\[\]]*\])*)\.(length|count|size|len)\(\)", failure.source):
        return f"an array has no `{found[2]}()`: {instead(found[0], f'{found[1]}.length')}"
    program = JavaScriptProgram(failure.code, tools) if tools is not None else None
    for found in re.finditer(r"(?<![\w$.])([A-Za-z_$][\w$]*)\((\d+)\)", failure.source):
        if program is not None and program.is_bound(found[1]):
            return f"`{found[1]}` is an array, not a function: {instead(found[0], f'{found[1]}[{found[2]}]')}"
    return ""


def _of_constant(name: str | None, failure: Failure) -> str:
    assigned = _ASSIGNED.search(failure.source) if name is None else None
    name = assigned[1] if assigned is not None else name
    if name is None:
        return ""
    about = f"`{name}` is a constant, and a variable with `let`"
    made = re.findall(rf"\bconst\s+{re.escape(name)}(?![\w$])", failure.code)
    return f"{about}: {instead(made[0], made[0].replace('const', 'let', 1))}" if len(made) == 1 else about


def _of_nothing(failure: Failure, tools: Tools | None) -> str:
    known = JavaScriptProgram(failure.code, tools).read_on(failure.line) if tools is not None else ()
    read = dict(known)
    for found in _FOLD.finditer(failure.source):
        array = found[1].removesuffix(".reduce")
        values = read.get(array, [])
        empty = f"`{array}` is empty" + (f" in {values.count([])} of {len(values)}" if [] in values else " here")
        for old, inner in calls_of(found[1], failure.source):
            if len(split(inner)) == 1:
                new = f"{old[:-1].rstrip()}, {_first(inner, values)})"
                return f"{empty}, and `reduce` has no first value: {instead(old, new)}"
    return "`reduce` of an empty array takes its first value behind the function: `.reduce(f, 0)`"


def _first(function: str, arrays: Sequence[JSONValue]) -> str:
    """Return what a fold of nothing gives, by what it does and what is folded elsewhere."""
    items = [item for each in arrays if isinstance(each, list) for item in each]
    if not _SUM.search(function):
        return "null"
    return '""' if items and all(isinstance(each, str) for each in items) else "0"
