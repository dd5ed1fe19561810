"""What the names and reads of a Python program stand for, by the results of the calls that the run has made."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from toolexec.code.repair.failure import Failure
from toolexec.code.repair.shapes import (
    WRAPPERS,
    Advice,
    Read,
    nouns_of,
    of_a_time,
    only_list,
    results_of,
    shown_keys,
    time_as_text,
    what_to_write,
)
from toolexec.code.repair.signatures import takers_of
from toolexec.code.repair.source import instead
from toolexec.code.tools import Tools
from toolexec.model.json_value import JSONValue

__all__ = ["OTHER_NAMES", "PythonProgram", "about_python_reads", "program_of", "silent_python_reads"]

_MOST: Final = 200
_MOST_READS: Final = 300
"""How many reads of a program are looked at: hundreds of reads of large results would take seconds."""
_DEPTH: Final = 12
_METHODS: Final = frozenset({"get", "items", "keys", "values"})
_SAME: Final = frozenset({"list", "sorted", "reversed", "tuple", "iter"})
_BY_ID: Final = frozenset({"tools.run", "tools.run_tool", "call_tool", "run_tool", "tools.call"})
_GIVE_EACH: Final = frozenset({"filter", "map", "max", "min", "sorted"})
_AS_LIST: Final = frozenset(
    {"enumerate", "len", "list", "reversed", "sorted", "sum", "max", "min", "set", "iter", "zip"}
)
OTHER_NAMES: Final[Mapping[str, str]] = {
    "push": "append",
    "toUpperCase": "upper",
    "toLowerCase": "lower",
    "trim": "strip",
    "startsWith": "startswith",
    "endsWith": "endswith",
    "length": "",
}
"""What methods of JavaScript are called in Python."""

_OF_READS: Final = frozenset({"AttributeError", "IndexError", "KeyError", "StopIteration", "TypeError", "ValueError"})


@dataclass(frozen=True, slots=True)
class _Part:
    """A name that is each item of what is iterated; with an `at`, that place of each."""

    of: ast.expr
    target: str
    at: int = -1


_Bound = ast.expr | _Part


def about_python_reads(failure: Failure, tools: Tools) -> str:
    """Return what to write for the first read on the line that failed which finds nothing; "" where none is known."""
    program = program_of(failure.code, tools) if failure.kind in _OF_READS else None
    if program is None:
        return ""
    here = (each for each in program.reads() if _is_at(each, failure.line))
    for node in islice(here, _MOST_READS):
        if not program.is_silent(node) and (advice := program.advice(node)):
            return advice.text
    return next(iter(program.silent()), "")


def _is_at(node: ast.expr | ast.stmt, line: int) -> bool:
    return not line or node.lineno <= line <= (node.end_lineno or node.lineno)


def silent_python_reads(code: str, tools: Tools) -> list[str]:
    """Return what to write for each `get` that certainly means another key, and gave its default."""
    program = program_of(code, tools)
    return list(program.silent()) if program is not None else []


def program_of(code: str, tools: Tools) -> PythonProgram | None:
    """Return a program with what its names have had; None where it cannot be read."""
    try:
        return PythonProgram(ast.parse(code), code, tools)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


class PythonProgram:
    """A program with the values that its names and reads have had, by the results of its calls."""

    def __init__(self, tree: ast.Module, code: str, tools: Tools) -> None:
        self._lines = code.encode().splitlines(keepends=True)  # those of bytes end where Python's do
        self._tools, self._nouns = tools, nouns_of(tools)
        self._nodes = list(ast.walk(tree))
        self._above = {id(child): node for node in self._nodes for child in ast.iter_child_nodes(node)}
        self._names: dict[str, list[_Bound]] = {}
        self._unknown: set[str] = set()
        self._functions: dict[str, ast.expr | None] = {}
        self._open: set[str] = set()
        self._is_circular = False
        self._later: dict[str, dict[str, None]] = {}
        self._known: dict[str, list[JSONValue]] = {}
        self._made: dict[str, list[JSONValue]] = {}
        self._given = {id(each) for node in self._nodes for each in self._bind_lambda(node)}
        for node in self._nodes:
            self._bind(node)
        self._bind_functions()

    def _bind(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._take(target, node.value)
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            self._take(node.target, node.value)
        elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            self._take_each(node.target, node.iter)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            given = [each.value for each in ast.walk(node) if isinstance(each, ast.Return)]
            self._functions[node.name] = given[0] if len(given) == 1 else None
        elif isinstance(node, ast.arg) and id(node) not in self._given:
            self._unknown.add(node.arg)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            self._unknown.add(node.target.id)

    def _bind_lambda(self, node: ast.AST) -> Iterator[ast.arg]:
        """Yield the arguments of a lambda that is given each item of a list, as by `sorted` or `filter`."""
        called = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
        if not isinstance(node, ast.Call) or called not in _GIVE_EACH:
            return
        plain = [each for each in node.args if not isinstance(each, ast.Lambda)]
        for each in (*node.args, *(keyword.value for keyword in node.keywords)):
            if isinstance(each, ast.Lambda) and len(each.args.args) == 1 and len(plain) == 1:
                self._names.setdefault(each.args.args[0].arg, []).append(_Part(plain[0], each.args.args[0].arg))
                yield each.args.args[0]

    def _bind_functions(self) -> None:
        """Take the arguments of the program's own functions for what they are called with, where all calls are seen."""
        defined = [node for node in self._nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        named: dict[str, list[ast.Name]] = {function.name: [] for function in defined}
        for node in self._nodes if named else ():
            if isinstance(node, ast.Name) and node.id in named:
                named[node.id].append(node)
        for function in defined:
            used = named[function.name]
            calls = [self._above.get(id(node)) for node in used]
            if not all(
                isinstance(call, ast.Call) and call.func is node for call, node in zip(calls, used, strict=True)
            ):
                continue
            for call in calls:
                given = call.args if isinstance(call, ast.Call) else []
                for argument, value in zip(function.args.args, given, strict=False):
                    self._unknown.discard(argument.arg)
                    self._names.setdefault(argument.arg, []).append(value)

    def _take(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self._names.setdefault(target.id, []).append(value)
        elif isinstance(target, ast.Tuple | ast.List):
            for number, each in enumerate(target.elts):
                if isinstance(each, ast.Name):
                    item = ast.Subscript(value, ast.Constant(number), ast.Load())
                    self._names.setdefault(each.id, []).append(item)

    def _take_each(self, target: ast.expr, of: ast.expr) -> None:
        source = self._source(target)
        if isinstance(target, ast.Name):
            self._names.setdefault(target.id, []).append(_Part(of, source))
        elif isinstance(target, ast.Tuple):
            for number, each in enumerate(target.elts):
                if isinstance(each, ast.Name):
                    self._names.setdefault(each.id, []).append(_Part(of, source, number))

    def nodes(self, line: int) -> list[ast.expr | ast.stmt]:
        """Return what is on a line, the smallest parts first."""
        nodes = self._nodes if line else ()
        found = [each for each in nodes if isinstance(each, ast.expr | ast.stmt) and _is_at(each, line)]
        return sorted(found, key=lambda each: ((each.end_lineno or 0) - each.lineno, len(self._source(each))))

    def reads(self) -> Iterator[ast.Subscript | ast.Attribute | ast.Call]:
        """Yield the reads of keys, an inner one before what reads from it."""
        found = [node for node in self._nodes if isinstance(node, ast.expr) and self._key(node) is not None]
        found.sort(key=lambda node: (node.lineno, node.end_lineno or 0, node.end_col_offset or 0))
        for node in found:
            if isinstance(node, ast.Subscript | ast.Attribute | ast.Call):
                yield node

    @staticmethod
    def _key(node: ast.AST) -> str | int | None:
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and isinstance(node.ctx, ast.Load):
            key = node.slice.value
            return key if type(key) in (str, int) else None  # pyright: ignore[reportReturnType] - as was looked
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            return node.attr
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "get"
            and node.args
        ):
            first = node.args[0]
            return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else None
        return None

    @staticmethod
    def _base(node: ast.AST) -> ast.expr:
        if isinstance(node, ast.Call):
            node = node.func
        assert isinstance(node, ast.Subscript | ast.Attribute)
        return node.value

    def is_silent(self, node: ast.AST) -> bool:
        """Return whether this read of a key gives its default where there is none."""
        return isinstance(node, ast.Call) and all(isinstance(each, dict) for each in self.values(self._base(node)))

    def silent(self) -> Iterator[str]:
        """Yield what to write for the reads that gave their default, where another is certain."""
        for node in islice(filter(self.is_silent, self.reads()), _MOST_READS):
            advice = self.advice(node)
            if advice is not None and advice.is_certain:
                yield advice.text

    def advice(self, node: ast.Subscript | ast.Attribute | ast.Call) -> Advice | None:
        """Return what to say of a read; None where it finds something, or its base is not known."""
        base, key, above = self._base(node), self._key(node), self._above.get(id(node))
        values = self.values(base)
        if key is None or not values:
            return self._of_characters(base) if isinstance(key, str) else None
        is_called = isinstance(above, ast.Call) and above.func is node
        of_times = is_called and time_as_text(values) and of_a_time(str(key))
        if (
            isinstance(node, ast.Attribute)
            and not of_times
            and (is_called or all(hasattr(type(each), node.attr) for each in values))
        ):
            return None
        text, whole = self.text(base), self.text(node)
        if isinstance(key, int):
            is_list = all(isinstance(each, dict) for each in values) and not self._is_chain(base)
            listed = only_list(values) if is_list else ""
            new = f'{text}["{listed}"]{whole.removeprefix(text)}'
            about = f"`{text}` is a dict, and the list is in `{listed}`: {instead(whole, new)}"
            return Advice(about, is_certain=True) if listed else self._of_place(base, text, whole, values, key)
        if all(isinstance(each, str) for each in values) and (advice := self._of_keys(base)):
            return advice
        if isinstance(node, ast.Attribute) and node.attr in OTHER_NAMES:
            return None
        after = self._key(above) if isinstance(above, ast.Subscript | ast.Attribute) and not is_called else None
        if after is None and isinstance(above, ast.Attribute):
            after = self._key(self._above.get(id(above), above))
        used = isinstance(after, int) or self._is_iterated(node, above)
        later = (after,) if isinstance(after, str) else self._read_later(above, node)
        tail = self._tail(node) if key in WRAPPERS else ""
        is_item = isinstance(base, ast.Name) and any(isinstance(each, _Part) for each in self._names.get(base.id, ()))
        is_part = is_item or isinstance(base, ast.Subscript)
        takers = takers_of(values[0], text, self._tools) if is_item and isinstance(values[0], int) else ""
        if takers:
            of = [self.text(each.of) for each in self._names.get(text, ()) if isinstance(each, _Part)]
            takers = f"it is one of `{of[0]}`, and {takers} reads what it stands for" if of else ""
        read = Read(text, key, whole, values, later, used, tail, self._nouns, is_part, takers)
        return what_to_write(read, "python")

    def _read_later(self, above: ast.AST | None, node: ast.AST) -> tuple[str, ...]:
        """Return the keys that are read from the name that a read is given."""
        if not isinstance(above, ast.Assign) or above.value is not node or not isinstance(above.targets[0], ast.Name):
            return ()
        return tuple(self._keys_of().get(above.targets[0].id, ()))

    def _keys_of(self) -> dict[str, dict[str, None]]:
        """Return the keys that are read from each name, but for the names of methods."""
        if not self._later:
            for each in self.reads():
                base, key = self._base(each), self._key(each)
                if isinstance(base, ast.Name) and isinstance(key, str) and key not in _METHODS:
                    self._later.setdefault(base.id, {})[key] = None
        return self._later

    def _tail(self, node: ast.expr) -> str:
        """Return the text of a read with what other APIs have around a value behind it."""
        text, above = "", self._above.get(id(node))
        while isinstance(above, ast.Subscript | ast.Attribute):
            key = self._key(above)
            if not isinstance(key, int) and key not in WRAPPERS | {"text"}:
                break
            text, above = self.text(above), self._above.get(id(above))
        return text

    def _of_place(self, base: ast.expr, text: str, whole: str, values: Sequence[JSONValue], key: int) -> Advice | None:
        """Advise on a dict that is read by place, as if it were a list."""
        objects = [each for each in values if isinstance(each, dict)]
        if len(objects) != len(values):
            return None
        last = "; `run_chain` gives the value of its last step only" if self._is_chain(base) else ""
        about = f"`{text}` is a dict with {shown_keys(objects)}{last}"
        if last or len({type(part) for each in objects for part in each.values()}) != 1:
            return Advice(about)
        return Advice(f"{about}, and has no place {key}: {instead(whole, f'list({text}.values())[{key}]')}")

    def _is_chain(self, base: ast.expr) -> bool:
        bound = self._names.get(base.id, ()) if isinstance(base, ast.Name) else (base,)
        return any(isinstance(each, ast.expr) and "run_chain" in ast.unparse(each) for each in bound)

    def _of_characters(self, base: ast.expr) -> Advice | None:
        """Advise on a name that is each character of a text, and is taken for an object."""
        for bound in self._names.get(base.id, ()) if isinstance(base, ast.Name) else ():
            values = self.values(bound.of) if isinstance(bound, _Part) else []
            if isinstance(bound, _Part) and values and all(isinstance(each, str) for each in values):
                of = self.text(bound.of)
                about = f"`{of}` is text, and `for {bound.target} in {of}` gives its characters"
                return Advice(f"{about}: `{of}.splitlines()` gives its lines, which have no keys")
        return None

    def _of_keys(self, base: ast.expr) -> Advice | None:
        """Advise on a name that is each key of a dict, and is taken for what is in a list in it."""
        for bound in self._names.get(base.id, ()) if isinstance(base, ast.Name) else ():
            values = self.values(bound.of) if isinstance(bound, _Part) and bound.at < 0 else []
            if isinstance(bound, _Part) and values and all(isinstance(each, dict) for each in values):
                of, listed = self.text(bound.of), only_list(values)
                if not listed:
                    about = f"`for {bound.target} in {of}` gives its keys, `{of}.values()` what they have"
                    return Advice(f"`{of}` is a dict with {shown_keys(values)}: {about}")
                old = f"for {bound.target} in {of}"
                new = f'{old}["{listed}"]'
                return Advice(f"`{of}` is a dict, and the list is in `{listed}`: {instead(old, new)}", is_certain=True)
        return None

    def _is_iterated(self, node: ast.AST, above: ast.AST | None) -> bool:
        if isinstance(above, ast.For | ast.AsyncFor | ast.comprehension):
            return above.iter is node
        is_call = isinstance(above, ast.Call) and isinstance(above.func, ast.Name) and above.func.id in _AS_LIST
        return is_call or isinstance(above, ast.Subscript | ast.Starred)

    def _source(self, node: ast.AST) -> str:
        """Return the text of *node*; "" for one that was made here. `ast.get_source_segment` splits the whole program
        into lines each time: 1,900 reads took seven seconds."""
        start, end = getattr(node, "lineno", 0), getattr(node, "end_lineno", None) or 0
        if not start or end > len(self._lines):
            return ""
        lines = self._lines[start - 1 : end]
        lines[-1] = lines[-1][: getattr(node, "end_col_offset", 0)]
        lines[0] = lines[0][getattr(node, "col_offset", 0) :]
        return b"".join(lines).decode(errors="replace")

    def text(self, node: ast.expr) -> str:
        """Return the source of an expression."""
        text = self._source(node) or ast.unparse(node)
        return f"({text})" if isinstance(node, ast.Await) else text

    def values(self, node: _Bound, depth: int = 0) -> list[JSONValue]:
        """Return the values that *node* has had; none where they are not known."""
        if depth > _DEPTH:
            return []
        if isinstance(node, _Part):
            return self._each(node, depth + 1)
        if isinstance(node, ast.Await | ast.Starred):
            return self.values(node.value, depth + 1)
        if isinstance(node, ast.Name):
            return self._named(node.id, depth)
        if isinstance(node, ast.ListComp | ast.GeneratorExp):
            inner = self.values(node.elt, depth + 1)
            return [inner] if inner else []
        if isinstance(node, ast.List | ast.Tuple) and node.elts:
            parts = [self.values(each, depth + 1) for each in node.elts]
            return [[part[0] for part in parts]] if all(parts) else []
        if isinstance(node, ast.BoolOp):
            return self.values(node.values[0], depth + 1)
        key = self._key(node)
        if key is not None and not (isinstance(node, ast.Attribute) and self._is_tool(node)):
            found = self.values(self._base(node), depth + 1)
            return [each for base in found for each in _item(base, key)]
        return self._called(node, depth) if isinstance(node, ast.Call) else []

    def _named(self, name: str, depth: int) -> list[JSONValue]:
        if name in self._open:
            self._is_circular = True  # it is made of itself: its other bindings say what it is
            return []
        if name not in self._known:
            self._open.add(name)
            self._known[name] = self._bound_to(name, depth)
            self._open.discard(name)
        return self._known[name]

    def _bound_to(self, name: str, depth: int) -> list[JSONValue]:
        if name in self._unknown:
            return []
        found: list[JSONValue] = []
        for bound in self._names.get(name, ()):
            if isinstance(bound, ast.Constant) or (
                isinstance(bound, ast.List | ast.Dict) and not ast.unparse(bound)[1:-1]
            ):
                continue
            self._is_circular = False
            values = self.values(bound, depth + 1)
            if not values and not self._is_circular:
                return []
            found += values
        return found[:_MOST]

    def _each(self, part: _Part, depth: int) -> list[JSONValue]:
        of = part.of
        called = of.func.id if isinstance(of, ast.Call) and isinstance(of.func, ast.Name) else ""
        if isinstance(of, ast.Call) and called in ("zip", "enumerate"):
            number = part.at if called == "zip" else part.at - 1
            if part.at < 0 or not 0 <= number < len(of.args) or (called == "enumerate" and part.at == 0):
                return []
            return self._items(of.args[number], depth)
        if part.at >= 0:
            return [each for item in self._items(of, depth) for each in _item(item, part.at)]
        return self._items(of, depth)

    def _items(self, node: ast.expr, depth: int) -> list[JSONValue]:
        found: list[JSONValue] = []
        for each in self.values(node, depth + 1):
            if isinstance(each, list | dict):
                found += islice(each, _MOST)
        return found[:_MOST]

    def _is_tool(self, node: ast.expr) -> bool:
        return isinstance(self._above.get(id(node)), ast.Call)

    def _called(self, node: ast.Call, depth: int) -> list[JSONValue]:
        name = ast.unparse(node.func)
        if name in _SAME and node.args:
            return self.values(node.args[0], depth + 1)
        if name == "asyncio.gather":
            given = node.args[0].elts if len(node.args) == 1 and isinstance(node.args[0], ast.List) else node.args
            parts = [self.values(each, depth + 1) for each in given]
            if len(given) == 1 and isinstance(given[0], ast.Starred | ast.Name | ast.ListComp):
                return parts[0]
            return [[part[0] for part in parts]] if parts and all(parts) else []
        if name == "json.loads" and node.args:
            return [_loaded(each) for each in self.values(node.args[0], depth + 1)]
        if name.endswith(".run_chain"):
            calls = [call for call in self._tools.tool_calls() if call.error is None and not call.is_open]
            return [calls[-1].value] if calls else []
        if name in self._functions:
            returned = self._functions[name]
            return self.values(returned, depth + 1) if returned is not None else []
        first = node.args[0] if node.args else None
        if name in _BY_ID and isinstance(first, ast.Constant) and isinstance(first.value, str):
            name = first.value
        if name not in self._made:
            self._made[name] = results_of(self._tools, name)
        return self._made[name]


def _item(value: JSONValue, key: str | int) -> list[JSONValue]:
    if isinstance(key, str):
        return [value[key]] if isinstance(value, dict) and key in value else []
    return [value[key]] if isinstance(value, list) and -len(value) <= key < len(value) else []


def _loaded(value: JSONValue) -> JSONValue:
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value
