"""What the operands of a Python line that failed are, by the results of the calls that the run has made.

One mechanism for all operations: what an operation was given is looked up in the results, what it takes is known from
the others, and where one conversion leads from one to the other, the operation is written with it. In every other case
the kind of what was given is said.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import Final

from toolexec.code.repair.failure import Failure
from toolexec.code.repair.naive_times import of_naive_times
from toolexec.code.repair.no_return import returns_nothing
from toolexec.code.repair.python_program import PythonProgram, program_of
from toolexec.code.repair.python_tree import tree_of
from toolexec.code.repair.shown import kind_of, shown_keys
from toolexec.code.repair.source import calls_of, instead
from toolexec.code.repair.times import time_as_text, time_of_number
from toolexec.code.repair.unpacking import of_unpacking
from toolexec.code.tools import Tools
from toolexec.model.json_value import JSONValue

_NONE: Final = re.compile(r"(?:TypeError|AttributeError): (?:'NoneType' object|argument of type 'NoneType')")
_OF_OPERANDS: Final = re.compile(r"(?:Type|Value|Attribute|Index|Key)Error: ")
_AWARE: Final = re.compile(r"TypeError: can't (?:compare|subtract) offset-naive and offset-aware datetimes")
_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?")
_IN_PLACE: Final = {
    "sort": "sorted({})",
    "reverse": "{}[::-1]",
    "append": "",
    "extend": "",
    "insert": "",
    "update": "",
    "add": "",
    "remove": "",
    "clear": "",
}
"""Methods that change their object and give None, and what gives the changed one."""

_SET: Final = re.compile(
    r"TypeError: (?:set\.add\(\) takes exactly one argument"
    r"|(?:cannot use 'list' as a set element .)?unhashable type: '(\w+)')"
)
_FOLDS: Final = frozenset({"max", "min", "sorted", "sum"})
_MOST_NODES: Final = 300
_DATE: Final = "date"
_UNPACKED: Final = re.compile(r"ValueError: (?:too many|not enough) values to unpack \(expected (\d+)")


def about_python_values(failure: Failure, tools: Tools) -> str:
    """Return what to write for what an operation on the line was given, or what that is; "" where it is not known."""
    if failure.language != "python" or not _OF_OPERANDS.match(failure.message):
        return ""
    if found := _SET.match(failure.message):
        return _of_set(failure) if found[1] in (None, "list") else ""
    program = program_of(failure.code, tools)
    if program is None:
        return ""
    if failure.kind in ("IndexError", "KeyError"):
        return next(_of_places(program, program.nodes(failure.line)[:_MOST_NODES], failure.message), "")
    nodes = program.nodes(failure.line)[:_MOST_NODES]
    if _AWARE.match(failure.message):
        return next(of_naive_times(program, nodes, failure.code))
    if "'NoneType'" in failure.message and (said := next(_of_no_return(failure, program, nodes), "")):
        return said
    if _NONE.match(failure.message):
        return next(_of_none(program, nodes), "")
    if unpacked := _UNPACKED.match(failure.message):
        return next(of_unpacking(program, nodes, int(unpacked[1])), "")
    found = list(_of_operations(program, nodes, failure.message))
    return next((said for said, is_written in found if is_written), next((said for said, _ in found), ""))


def _of_set(failure: Failure) -> str:
    """Advise on `add` of a set, which is given a list."""
    adding = re.search(r"([\w.]+)\.add\(", failure.source)
    for old, inner in calls_of(f"{adding[1]}.add", failure.source) if adding is not None else ():
        new = old.replace(".add(", ".update(", 1).replace(inner, inner.removeprefix("*"))
        return f"`add` takes one item, `update` each item of a list: {instead(old, new)}"
    return ""


def _of_places(program: PythonProgram, nodes: Sequence[ast.AST], message: str) -> Iterator[str]:
    """Say how many items a list has that is read behind its end, and that some objects only have a key."""
    for node in nodes:
        if not isinstance(node, ast.Subscript):
            continue
        values, text, whole = program.values(node.value), program.text(node.value), program.text(node)
        lists = [each for each in values if isinstance(each, list)]
        if message.startswith("IndexError") and lists and len(lists) == len(values):
            count = min(len(each) for each in lists)
            last = f"the last is `{text}[{count - 1}]`, or `{text}[-1]`" if count else "check that it is not empty"
            yield f"`{text}` has {count} items: {last}"
        key = node.slice.value if isinstance(node.slice, ast.Constant) else None
        objects = [each for each in values if isinstance(each, dict)]
        if (
            isinstance(key, str)
            and message == f"KeyError: {key!r}"
            and (having := sum(key in each for each in objects))
        ):
            new = f'{text}.get("{key}")'
            yield f"`{text}` has `{key}` in {having} of {len(objects)}, not in all: {instead(whole, new)}"


def _of_no_return(failure: Failure, program: PythonProgram, nodes: Sequence[ast.AST]) -> Iterator[str]:
    """Say that a function of the program has made None, as it has no `return`."""
    tree = tree_of(failure.code)
    for node in nodes if tree is not None else ():
        made = program.given_to(node.id, failure.line) if isinstance(node, ast.Name) else node
        if isinstance(made, ast.expr) and tree is not None and (said := returns_nothing(made, tree, failure.code)):
            yield said


def _of_none(program: PythonProgram, nodes: Sequence[ast.AST]) -> Iterator[str]:
    """Say which value is None: a part of a result, or what a method gives that changes its object."""
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _IN_PLACE:
            of, new = program.text(node.func.value), _IN_PLACE[node.func.attr]
            if not any(isinstance(each, dict) for each in program.values(node.func.value)):
                about = f"`{node.func.attr}` changes `{of}` and gives None"
                written = instead(program.text(node), new.format(of))
                yield f"{about}: {written}, as `reversed` and `sorted` give a new one" if new else about
        if not isinstance(node, ast.Name | ast.Attribute | ast.Subscript | ast.Call | ast.Await):
            continue
        values = program.values(node)
        if values and None in values:
            text = program.text(node)
            if all(each is None for each in values):
                yield f"`{text}` is None here: check it before it is read, as with `if {text} is not None`"
            else:
                others = [each for each in values if each is not None]
                read, new = program.read_of(node), ""
                if read is not None and all(isinstance(each, dict) and read[1] in each for each in others):
                    new = instead(read[0], f'({text} or {{}}).get("{read[1]}")')
                yield (
                    f"`{text}` is None in {len(values) - len(others)} of {len(values)}, "
                    f"and {kind_of(others[0])} elsewhere: {new or f'check it first, as with `if {text}`'}"
                )


def _of_operations(program: PythonProgram, nodes: Sequence[ast.AST], message: str) -> Iterator[tuple[str, bool]]:
    for node in nodes:
        operands = _operands(node)
        if not operands or all(not program.values(each) for each in operands):
            yield from _of_items(program, node)
            continue
        known = [(each, program.values(each)) for each in operands]
        if said := _of_times(program, node, known):
            yield said, True
            continue
        wanted = _wanted(node, known, message)
        if not wanted:
            continue
        new, said = program.text(node) if isinstance(node, ast.expr) else _augmented(program, node), list[str]()
        old, is_written = new, False
        for each, values in known:
            if not values or _fits(values, wanted):
                continue
            text = program.text(each)
            said.append(f"`{text}` is {_kinds(values)}")
            if made := _made(text, values, _DATE if _is_date(message, values) else wanted):
                new, is_written = _put(made, text, new) if made not in new else new, True
        if not said:
            continue
        about = ", ".join(said)
        yield (f"{about}: {instead(old, new)}", True) if is_written and new != old else (about, False)


def _of_times(program: PythonProgram, node: ast.AST, known: Sequence[tuple[ast.expr, list[JSONValue]]]) -> str:
    """Advise on a number that is read as a time, or as one of another unit."""
    method = node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""
    if method not in ("fromisoformat", "strptime", "fromtimestamp", "utcfromtimestamp") or not known:
        return ""
    text, values = program.text(known[0][0]), known[0][1]
    made = time_of_number(text, values[0], is_python=True) if values else ""
    if not made or not isinstance(node, ast.Call) or made == program.text(node):
        return ""
    return f"`{text}` is {kind_of(values[0])}: {instead(program.text(node), made)}"


def _operands(node: ast.AST) -> list[ast.expr]:
    """Return what an operation is given."""
    match node:
        case ast.BinOp(left=left, right=right):
            return [left, right]
        case ast.Compare(left=left, comparators=others):
            return [left, *others]
        case ast.AugAssign(value=value):
            return [value]
        case ast.Call(func=ast.Attribute(attr="sort"), keywords=keywords):
            return [each.value.body for each in keywords if isinstance(each.value, ast.Lambda)]
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords) if name in _FOLDS:
            if (
                not keywords
                and name != "sum"
                and not isinstance(args[0] if args else None, ast.GeneratorExp | ast.ListComp)
            ):
                return []
            lambdas = [each.value.body for each in keywords if isinstance(each.value, ast.Lambda)]
            items = [each.elt for each in args if isinstance(each, ast.GeneratorExp | ast.ListComp)]
            return lambdas or items
        case ast.Call(args=args):
            return args
        case _:
            return []


def _wanted(node: ast.AST, known: Sequence[tuple[ast.expr, list[JSONValue]]], message: str) -> str:
    """Return the kind that an operation takes: "number", "text", "time"; "" where it is not known."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) and all(time_as_text(each) for _, each in known):
        return "time"
    if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] not in _FOLDS | {"sort"}:
        is_text = re.search(r"must be (?:a )?str|expected str", message)
        return "text" if is_text else "number" if re.search(r"(?:real|int) number|float\(\)|int\(\)", message) else ""
    has_text = any(isinstance(each, ast.Constant) and isinstance(each.value, str) for each, _ in known)
    return "text" if has_text or "to str" in message else "number"


def _is_date(message: str, values: Sequence[JSONValue]) -> bool:
    """Return whether a date is put together with one that is a string."""
    return "'datetime.date'" in message and all(isinstance(each, str) and len(each) == 10 for each in values)


def _fits(values: Sequence[JSONValue], wanted: str) -> bool:
    if wanted == "number":
        return all(isinstance(each, int | float) for each in values)
    return wanted == "text" and all(isinstance(each, str) for each in values)


def _made(text: str, values: Sequence[JSONValue], wanted: str) -> str:
    """Return what makes the wanted of these values; "" where there is not one way."""
    if wanted == _DATE:
        return f"date.fromisoformat({text})"
    if wanted == "time" or (wanted == "number" and time_as_text(values)):
        return f"datetime.fromisoformat({text})"
    filled = [each for each in values if each is not None]
    if wanted == "number" and len(filled) < len(values) and filled and _fits(filled, wanted):
        return f"({text} or 0)"
    if wanted == "number" and len(filled) < len(values) and filled and _fits(filled, "text"):
        return f'({text} or "")'
    if wanted == "number" and all(isinstance(each, str) and _NUMBER.fullmatch(each) for each in values):
        return f"float({text})"
    lists = [each for each in values if isinstance(each, list)]
    if wanted == "text" and len(lists) == len(values) and all(_fits(each, "number") for each in lists):
        return f"map(str, {text})"
    if wanted == "text" and all(isinstance(each, int | float) for each in values):
        return f"str({text})"
    objects = [each for each in values if isinstance(each, dict)]
    if objects and len(objects) == len(values):
        keys = [key for key in objects[0] if _fits([each.get(key) for each in objects], wanted)]
        return f'{text}["{keys[0]}"]' if len(keys) == 1 else ""
    rows = [row for each in values if isinstance(each, list) for row in each if isinstance(row, dict)]
    if wanted == "text" and rows and all(isinstance(each, list) for each in values):
        keys = [key for key in rows[0] if _fits([row.get(key) for row in rows], wanted)]
        return f'(each["{keys[0]}"] for each in {text})' if len(keys) == 1 else ""
    return ""


def _of_items(program: PythonProgram, node: ast.AST) -> Iterator[tuple[str, bool]]:
    """Say that rows are compared by one of their keys, where none is given."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.keywords or len(node.args) != 1:
        return
    values = program.values(node.args[0])
    if node.func.id == "sum" and values and all(isinstance(each, dict) and _numbers(each) for each in values):
        text = program.text(node.args[0])
        new = f"sum({text}.values())"
        yield f"`{text}` is a dict, whose items are its keys: {instead(program.text(node), new)}", True
    values = values if node.func.id in _FOLDS - {"sum"} else []
    rows = [row for each in values if isinstance(each, list) for row in each if isinstance(row, dict)]
    if rows:
        text = program.text(node.args[0])
        numbers = [key for key in rows[0] if _fits([row.get(key) for row in rows], "number")]
        about = f"`{text}` has dicts with {shown_keys(rows)}: say by which with `key=lambda each: each[...]`"
        new = f'{node.func.id}({text}, key=lambda each: each["{numbers[0]}"])' if len(numbers) == 1 else ""
        yield (f"{about}; {instead(program.text(node), new)}", True) if new else (about, False)


def _numbers(value: JSONValue) -> bool:
    return isinstance(value, dict) and bool(value) and _fits([*value.values()], "number")


def _put(made: str, text: str, within: str) -> str:
    """Return an operation with *made* in the place of an operand, and of no part of another name."""
    before, after = (r"(?<![\w.])" if text[0].isidentifier() else ""), (r"(?!\w)" if text[-1].isidentifier() else "")
    if re.search(rf"\w{re.escape(text)}", within) and text.startswith("("):
        made = f"({made})"  # those around a generator are the call's own
    return re.sub(before + re.escape(text) + after, lambda _: made, within, count=1)


def _augmented(program: PythonProgram, node: ast.AST) -> str:
    return f"= {program.text(node.value)}" if isinstance(node, ast.AugAssign) else ""


def _kinds(values: Sequence[JSONValue]) -> str:
    some = [each for each in values if each is not None]
    if some and len(some) < len(values):
        return f"None in {len(values) - len(some)} of {len(values)}"
    return kind_of(values[0])
