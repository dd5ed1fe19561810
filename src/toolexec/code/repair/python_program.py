"""What the names and reads of a Python program have had, by the results of the calls that the run has made."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Final

from toolexec.code.repair.python_names import Bound, Part, PythonNames
from toolexec.code.repair.python_tree import tree_of
from toolexec.code.repair.shapes import results_of
from toolexec.code.tools import Tools
from toolexec.model.json_value import JSONValue

_MOST: Final = 200
_LONG: Final = 2_000
_DEPTH: Final = 40
_SAME: Final = frozenset({"list", "sorted", "reversed", "tuple", "iter"})
_ONE: Final = frozenset({"next", "max", "min"})
_OF_DICTS: Final[Mapping[str, Callable[[dict[str, JSONValue]], JSONValue]]] = {
    "items": lambda value: [[key, part] for key, part in islice(value.items(), _MOST)],
    "keys": lambda value: [*islice(value, _MOST)],
    "values": lambda value: [*islice(value.values(), _MOST)],
    "copy": lambda value: value,
}
_OF_TEXT: Final[Mapping[str, Callable[..., JSONValue]]] = {
    "split": lambda text, *by: [*text[:_LONG].split(*by)],
    "splitlines": lambda text: [*text[:_LONG].splitlines()],
    "strip": lambda text, *of: text[:_LONG].strip(*of),
    "lower": lambda text: text[:_LONG].lower(),
    "upper": lambda text: text[:_LONG].upper(),
}
_MADE: Final = frozenset({*_OF_DICTS, *_OF_TEXT, "pop"})
_BY_ID: Final = frozenset(
    {"tools.run", "tools.run_tool", "tools.call", "tools.call_tool", "call_tool", "run_tool", "tools.execute"}
)


def program_of(code: str, tools: Tools) -> PythonProgram | None:
    """Return a program with what its names have had; None where it cannot be read."""
    tree = tree_of(code)
    return PythonProgram(tree, code, tools) if tree is not None else None


class PythonProgram(PythonNames):
    """A program with the values that its names and reads have had, by the results of its calls."""

    def __init__(self, tree: ast.Module, code: str, tools: Tools) -> None:
        super().__init__(tree, code)
        self._tools = tools
        self._open: set[tuple[int, str]] = set()
        self._is_circular = False
        self._known: dict[tuple[int, str], list[JSONValue]] = {}
        self._made: dict[str, list[JSONValue]] = {}

    def values(self, node: Bound, depth: int = 0) -> list[JSONValue]:
        """Return the values that *node* has had; none where they are not known."""
        if depth > _DEPTH:
            return []
        if isinstance(node, Part):
            return self._each(node, depth + 1)
        if isinstance(node, ast.Await | ast.Starred):
            return self.values(node.value, depth + 1)
        if isinstance(node, ast.Name):
            return self._named(node, depth)
        if isinstance(node, ast.ListComp | ast.GeneratorExp):
            inner = self.values(node.elt, depth + 1)
            return [inner] if inner else []
        if isinstance(node, ast.Dict) and node.keys:
            return self._made_of(node, depth + 1)
        if isinstance(node, ast.List | ast.Tuple) and node.elts:
            parts = [self.values(each, depth + 1) for each in node.elts]
            return [[part[0] for part in parts]] if all(parts) else []
        if isinstance(node, ast.BoolOp | ast.IfExp):
            return self._chosen(node, depth + 1)
        if isinstance(node, ast.Subscript) and self._key(node) is None:
            return self._at_any(node, depth + 1)
        key = self._key(node)
        if key is not None and not (isinstance(node, ast.Attribute) and self._is_tool(node)):
            found = self.values(self._base(node), depth + 1)
            return [each for base in found for each in _item(base, key)]
        return self._called(node, depth) if isinstance(node, ast.Call) else []

    def literal(self, node: ast.expr) -> list[JSONValue]:
        """Return the value that the program itself has for a text, or for a list of strings; none for all else."""
        bound = self.bound(node) if isinstance(node, ast.Name) else [node]
        one = bound[0] if len(bound) == 1 else None
        parts = one.elts if isinstance(one, ast.List | ast.Tuple | ast.Set) else [one]
        strings: list[JSONValue] = [
            each.value for each in parts if isinstance(each, ast.Constant) and isinstance(each.value, str)
        ]
        if not strings or len(strings) != len(parts):
            return []
        return strings if isinstance(one, ast.Constant) else [strings]

    def _made_of(self, node: ast.Dict, depth: int) -> list[JSONValue]:
        """Return an object that the program makes; none where a part of it is not known."""
        found: dict[str, JSONValue] = {}
        for key, part in zip(node.keys, node.values, strict=True):
            values = self.values(part, depth)
            name = key.value if isinstance(key, ast.Constant) else None
            if values and key is None and isinstance(values[0], dict):
                found.update(values[0])
            elif values and isinstance(name, str):
                found[name] = values[0]
            else:
                return []
        return [found]

    def _chosen(self, node: ast.BoolOp | ast.IfExp, depth: int) -> list[JSONValue]:
        """Return what a choice has had: a value that is not empty before `or`, what is behind `and`."""
        if isinstance(node, ast.IfExp):
            return self.values(node.body, depth)
        if isinstance(node.op, ast.And):
            return self.values(node.values[-1], depth)
        found = self.values(node.values[0], depth)
        return [each for each in found if each] or found

    def _at_any(self, node: ast.Subscript, depth: int) -> list[JSONValue]:
        """Return what is at a place that is not known, or the list or text that is cut."""
        found = self.values(node.value, depth)
        if isinstance(node.slice, ast.Slice):
            return [each for each in found if isinstance(each, list | str)]
        return [part for each in found for part in islice(_parts(each), _MOST)][:_MOST]

    def _named(self, name: ast.Name, depth: int) -> list[JSONValue]:
        place = self._place(name)
        if place in self._open:
            self._is_circular = True  # it is made of itself: its other bindings say what it is
            return []
        if place not in self._known:
            self._open.add(place)
            self._known[place] = self._bound_to(name, depth)
            self._open.discard(place)
        return self._known[place]

    def _bound_to(self, name: ast.Name, depth: int) -> list[JSONValue]:
        found: list[JSONValue] = []
        for bound in self.bound(name):
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

    def _each(self, part: Part, depth: int) -> list[JSONValue]:
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
        if name in _ONE and len(node.args) == 1:
            return self._items(node.args[0], depth + 1)
        if name == "filter" and len(node.args) == 2:
            return self.values(node.args[1], depth + 1)
        if isinstance(node.func, ast.Attribute) and node.func.attr in _MADE:
            return self._made_by(node.func, node.args, depth + 1)
        if name == "asyncio.gather":
            given = node.args[0].elts if len(node.args) == 1 and isinstance(node.args[0], ast.List) else node.args
            parts = [self.values(each, depth + 1) for each in given]
            if len(given) == 1 and isinstance(given[0], ast.Starred | ast.Name | ast.ListComp):
                return parts[0]
            return [[part[0] for part in parts]] if parts and all(parts) else []
        if name == "asyncio.to_thread" and node.args:
            return self.values(ast.Call(node.args[0], node.args[1:], node.keywords), depth + 1)
        if name == "json.loads" and node.args:
            return [part for each in self.values(node.args[0], depth + 1) for part in _loaded(each)]
        if name.endswith(".run_chain"):
            calls = [call for call in self._tools.tool_calls() if call.error is None and not call.is_open]
            return [calls[-1].value] if calls else []
        if name in self._functions:
            returned = self._functions[name]
            return self.values(returned, depth + 1) if returned is not None else []
        first = node.args[0] if node.args else None
        if name in _BY_ID and isinstance(first, ast.Constant) and isinstance(first.value, str):
            name = first.value
        if name not in self._made:  # `results_of` reads `tools["a:b"]` as `tools.a.b`
            self._made[name] = results_of(self._tools, name.replace("tools[", "tools."))
        return self._made[name]

    def _made_by(self, method: ast.Attribute, args: list[ast.expr], depth: int) -> list[JSONValue]:
        """Return what a method of dicts, lists or strings gives."""
        given = [each.value for each in args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        found: list[JSONValue] = []
        for value in self.values(method.value, depth):
            if isinstance(value, dict) and method.attr in _OF_DICTS:
                found.append(_OF_DICTS[method.attr](value))
            elif isinstance(value, str) and method.attr in _OF_TEXT and len(given) == len(args) < 2:
                found.append(_OF_TEXT[method.attr](value, *(each for each in given if each)))
            elif isinstance(value, list) and method.attr == "pop":
                found += value[:_MOST]
        return found[:_MOST]


def _item(value: JSONValue, key: str | int) -> list[JSONValue]:
    if isinstance(key, str):
        return [value[key]] if isinstance(value, dict) and key in value else []
    return [value[key]] if isinstance(value, list) and -len(value) <= key < len(value) else []


def _parts(value: JSONValue) -> Iterable[JSONValue]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _loaded(value: JSONValue) -> list[JSONValue]:
    try:
        return [json.loads(value) if isinstance(value, str) else value]
    except ValueError:
        return []
