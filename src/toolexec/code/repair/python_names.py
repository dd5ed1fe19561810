"""What the names of a Python program are bound to, and the text of its parts."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_GIVE_EACH: Final = frozenset({"filter", "map", "max", "min", "sorted"})
_TAKING_VALUES: Final = frozenset({"list", "len", "sorted", "sum", "max", "min", "set", "dict", "zip", "enumerate"})
_MADE = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
_SCOPES = _MADE | ast.Lambda | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Part:
    """A name that is each item of what is iterated; with an `at`, that place of each."""

    of: ast.expr
    target: str
    at: int = -1


Bound = ast.expr | Part


def is_at(node: ast.expr | ast.stmt, line: int) -> bool:
    """Return whether a node is on a line; any is on line 0."""
    return not line or node.lineno <= line <= (node.end_lineno or node.lineno)


class PythonNames:
    """A program with what its names are bound to, and the text of its parts."""

    def __init__(self, tree: ast.Module, code: str) -> None:
        self._lines = code.encode().splitlines(keepends=True)  # those of bytes end where Python's do
        self._nodes = list(ast.walk(tree))
        self._above = {id(child): node for node in self._nodes for child in ast.iter_child_nodes(node)}
        self._names: dict[tuple[int, str], list[Bound]] = {}
        self._unknown: set[tuple[int, str]] = set()
        self._functions: dict[str, ast.expr | None] = {}
        self._given = {id(each) for node in self._nodes for each in self._bind_lambda(node)}
        for node in self._nodes:
            self._bind(node)
        for node in self._nodes:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and len(node.args) == 1:
                self._fill(node.func, node.args[0])
        self._bind_functions()

    def bound(self, name: ast.Name) -> list[Bound]:
        """Return what a name is bound to where it stands; nothing where a part of that is not known."""
        place = self._place(name)
        return [] if place in self._unknown else self._names.get(place, [])

    def is_awaited(self, node: ast.expr) -> bool:
        """Return whether a node stands in an `await`, or is given to a call that may await it."""
        above = self._above.get(id(node))
        called = ast.unparse(above.func) if isinstance(above, ast.Call) else ""
        return isinstance(above, ast.Await | ast.Starred) or (bool(called) and called not in _TAKING_VALUES)

    def _place(self, name: ast.Name) -> tuple[int, str]:
        """Return the innermost scope that binds a name, which is 0 for the whole program, with the name."""
        above = self._above.get(id(name))
        while above is not None:
            place = id(above), name.id
            if isinstance(above, _SCOPES) and (place in self._names or place in self._unknown):
                return place
            above = self._above.get(id(above))
        return 0, name.id

    def _scope(self, node: ast.AST) -> int:
        above = self._above.get(id(node))
        while above is not None and not isinstance(above, _SCOPES):
            above = self._above.get(id(above))
        return id(above) if above is not None else 0

    def _add(self, target: ast.Name | ast.arg, value: Bound) -> None:
        name = target.id if isinstance(target, ast.Name) else target.arg
        self._names.setdefault((self._scope(target), name), []).append(value)

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
            self._unknown.add((self._scope(node), node.arg))
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            self._unknown.add((self._scope(node), node.target.id))

    def _fill(self, method: ast.Attribute, value: ast.expr) -> None:
        """Take a list that the program fills for one of what it is given."""
        if not isinstance(method.value, ast.Name) or method.attr not in ("append", "extend"):
            return
        filled = ast.ListComp(value, []) if method.attr == "append" else value
        self._names.setdefault(self._place(method.value), []).append(filled)

    def _bind_lambda(self, node: ast.AST) -> Iterator[ast.arg]:
        """Yield the arguments of a lambda that is given each item of a list, as by `sorted` or `filter`."""
        func = node.func if isinstance(node, ast.Call) else None
        is_sort = isinstance(func, ast.Attribute) and func.attr == "sort"
        if not isinstance(node, ast.Call) or not (is_sort or (isinstance(func, ast.Name) and func.id in _GIVE_EACH)):
            return
        plain = [each for each in node.args if not isinstance(each, ast.Lambda)]
        plain = [func.value] if is_sort and isinstance(func, ast.Attribute) else plain
        for each in (*node.args, *(keyword.value for keyword in node.keywords)):
            if isinstance(each, ast.Lambda) and len(each.args.args) == 1 and len(plain) == 1:
                self._add(each.args.args[0], Part(plain[0], each.args.args[0].arg))
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
                    self._unknown.discard((id(function), argument.arg))
                    self._add(argument, value)

    def _take(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self._add(target, value)
        elif isinstance(target, ast.Tuple | ast.List):
            for number, each in enumerate(target.elts):
                if isinstance(each, ast.Name):
                    item = ast.Subscript(value, ast.Constant(number), ast.Load())
                    self._add(each, item)

    def _take_each(self, target: ast.expr, of: ast.expr) -> None:
        source = self._source(target)
        if isinstance(target, ast.Name):
            self._add(target, Part(of, source))
        elif isinstance(target, ast.Tuple):
            for number, each in enumerate(target.elts):
                if isinstance(each, ast.Name):
                    self._add(each, Part(of, source, number))

    def nodes(self, line: int) -> list[ast.expr | ast.stmt]:
        """Return what is on a line, the smallest parts first."""
        nodes = self._nodes if line else ()
        found = [each for each in nodes if isinstance(each, ast.expr | ast.stmt) and is_at(each, line)]
        return sorted(found, key=lambda each: ((each.end_lineno or 0) - each.lineno, len(self._source(each))))

    def given_to(self, name: str, line: int) -> ast.expr | None:
        """Return what a name was last given above a line; None where that is not an assignment."""
        given = [
            node
            for node in self._nodes
            if isinstance(node, ast.Assign) and node.lineno < line
            if any(isinstance(each, ast.Name) and each.id == name for each in node.targets)
        ]
        return max(given, key=lambda node: node.lineno).value if given else None

    def reads(self) -> Iterator[ast.Subscript | ast.Attribute | ast.Call]:
        """Yield the reads of keys, an inner one before what reads from it."""
        found = [node for node in self._nodes if isinstance(node, ast.expr) and self._key(node) is not None]
        found.sort(key=lambda node: (node.lineno, node.end_lineno or 0, node.end_col_offset or 0))
        for node in found:
            if isinstance(node, ast.Subscript | ast.Attribute | ast.Call):
                yield node

    def memberships(self) -> Iterator[tuple[ast.expr, ast.expr, str]]:
        """Yield what is asked to be in something, that, and the whole question."""
        for node in self._nodes:
            if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.In):
                yield node.left, node.comparators[0], self.text(node)

    def read_of(self, node: ast.expr) -> tuple[str, str] | None:
        """Return the read of a key from *node*, with the key; None without one, or where more is read from that."""
        above = self._above.get(id(node))
        above = self._above.get(id(above)) if isinstance(above, ast.Await) else above
        key = self._key(above) if isinstance(above, ast.Subscript | ast.Attribute) else None
        if not isinstance(above, ast.Subscript | ast.Attribute) or not isinstance(key, str):
            return None
        is_more = isinstance(self._above.get(id(above)), ast.Subscript | ast.Attribute)
        is_called = getattr(self._above.get(id(above)), "func", None) is above
        return None if is_more or is_called else (self.text(above), key)

    def compared(self) -> Iterator[tuple[ast.expr, str, str]]:
        """Yield what is asked to be a text, to begin or to end with it: what it is asked of, how, and the text."""
        for node in self._nodes:
            if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq):
                of, text, how = node.left, node.comparators[0], "=="
                of, text = (text, of) if isinstance(of, ast.Constant) else (of, text)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and len(node.args) == 1:
                of, text, how = node.func.value, node.args[0], node.func.attr
            else:
                continue
            if how in ("==", "startswith", "endswith") and isinstance(text, ast.Constant) and type(text.value) is str:
                yield of, how, text.value

    def is_tried(self, node: ast.AST) -> bool:
        """Return whether a node stands in a `try` whose errors the program catches."""
        above = self._above.get(id(node))
        while above is not None:
            outer = self._above.get(id(above))
            if isinstance(outer, ast.Try) and outer.handlers and above in outer.body:
                return True
            above = outer
        return False

    @staticmethod
    def _key(node: ast.AST) -> str | int | None:
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            at = node.slice
            if isinstance(at, ast.UnaryOp) and isinstance(at.op, ast.USub) and isinstance(at.operand, ast.Constant):
                return -at.operand.value if type(at.operand.value) is int else None
            key = at.value if isinstance(at, ast.Constant) else None
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

    def source(self, node: ast.AST) -> str:
        """Return the source of a node; "" for one that was made here."""
        return self._source(node)

    def text(self, node: ast.expr) -> str:
        """Return the source of an expression."""
        text = self._source(node) or ast.unparse(node)
        return f"({text})" if isinstance(node, ast.Await) else text
