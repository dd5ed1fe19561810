"""A program as its author wrote it, made runnable: `await` and `return` at the top, and a value at the end.

Most programs are compiled from their text, as a module is, with the last expression on its own. A program with
`return` at the top becomes the body of a function in which every name that it binds is declared global: names stay
where a module has them (a later run in the same session finds them), and no `except` can catch the `return`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

__all__ = ["NOTHING", "Program", "compile_program"]

NOTHING: Any = type("Nothing", (), {"__repr__": lambda self: "NOTHING", "__doc__": "No value: the end was reached."})()
LAST = "__toolexec_last__"
_MAIN = "__toolexec_main__"
_STAR = "__toolexec_star__"
_NOTHING = "__toolexec_nothing__"
_COROUTINE = 0x80  # CO_COROUTINE; `inspect` has it, and takes long to import
_GENERATORS = 0x20 | 0x200  # CO_GENERATOR, CO_ASYNC_GENERATOR
_NESTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


class Program:
    """A compiled program: `run(namespace)` gives its value, or a coroutine of it when `is_async`."""

    def __init__(self, body: Any, last: Any = None, *, calls_main: bool = False) -> None:
        """*body* is the code of the statements, *last* that of a final expression; or *body* defines a function."""
        self._body = body
        self._last = last
        self._calls_main = calls_main
        flags = (body.co_flags if body is not None else 0) | (last.co_flags if last is not None else 0)
        self.is_async = bool(flags & _COROUTINE)

    def run(self, namespace: dict[str, Any]) -> Any:
        """Run it in *namespace*; NOTHING when it ended without `return`. The value of a final expression is in the
        namespace, as LAST."""
        namespace[LAST] = NOTHING
        if self._calls_main:
            namespace[_NOTHING] = NOTHING
            namespace[_STAR] = _import_star
            exec(self._body, namespace)  # noqa: S102 - to run code is what a sandbox is for
            value = namespace.pop(_MAIN)()
            self.is_async = hasattr(value, "__await__")
            return value
        if self.is_async:
            return self._run_async(namespace)
        if self._body is not None:
            exec(self._body, namespace)  # noqa: S102
        if self._last is not None:
            namespace[LAST] = eval(self._last, namespace)  # noqa: S307
        return NOTHING

    async def _run_async(self, namespace: dict[str, Any]) -> Any:
        for code in (self._body, self._last):
            if code is not None:
                value = eval(code, namespace)  # noqa: S307
                if code.co_flags & _COROUTINE:
                    value = await value
                if code is self._last:
                    namespace[LAST] = value
        return NOTHING


def compile_program(source: str, filename: str) -> Program:
    """Compile *source*; raises SyntaxError with the author's own line and column."""
    return _from_text(source, filename) or _from_tree(source, filename)


def _from_text(source: str, filename: str) -> Program | None:
    """A program whose last statement can be told from its lines; None for one that has to be parsed."""
    lines = source.splitlines(True)
    start = len(lines) - 1
    while start >= 0 and (not lines[start].strip() or lines[start][0] in " \t#)]}"):
        start -= 1
    if start < 0:
        return None
    tail = "\n" * start + "".join(lines[start:])
    try:
        last = _compiled(tail.rstrip(), filename, "eval")
    except SyntaxError:
        last = None
    try:
        if last is not None:
            return Program(_compiled("".join(lines[:start]), filename, "exec") if start else None, last)
        if ";" in tail:
            return None
        _compiled(tail, filename, "exec")  # a whole statement by itself, and not an expression
        return Program(_compiled(source, filename, "exec"))
    except SyntaxError:
        return None  # the tail is the end of something longer, `return` is at the top, or it is wrong


def _compiled(text: str, filename: str, mode: str) -> Any:
    return compile(text, filename, mode, flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)


def _from_tree(source: str, filename: str) -> Program:
    """The program as the body of a function."""
    tree = ast.parse(source, filename)
    futures = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    body = [_as_in_function(node) for node in tree.body if node not in futures]
    if body and isinstance(body[-1], ast.Expr):
        last = body[-1]
        body[-1] = ast.copy_location(ast.Assign([_at(ast.Name(LAST, ast.Store()), last)], last.value), last)
    names = {LAST}
    for node in body:
        names.update(_bound(node))
    if ":=" in source:
        names.update(node.target.id for node in ast.walk(tree) if isinstance(node, ast.NamedExpr))
    declared = {name for node in body if isinstance(node, ast.Global) for name in node.names}
    main = _function(is_async=False)
    end = ast.Return(ast.Name(_NOTHING, ast.Load()))
    main.body = [ast.Global(sorted(names - declared)), *body, end]
    ast.copy_location(end, body[-1] if body else main)
    _at(end.value, end)
    _at(main.body[0], main)
    try:
        code = _compiled_tree([*futures, main], filename)
    except SyntaxError as error:
        if "async" not in str(error.msg):
            raise
        other = _function(is_async=True)
        other.body = main.body
        code = _compiled_tree([*futures, other], filename)
    _refuse_yield(code, body, filename, source)
    return Program(code, calls_main=True)


def _compiled_tree(body: list[Any], filename: str) -> Any:
    return compile(ast.Module(body, []), filename, "exec", dont_inherit=True)


def _function(*, is_async: bool) -> Any:
    """The one function; parsed from text, as the fields of its node differ between versions of Python."""
    return ast.parse(f"{'async ' if is_async else ''}def {_MAIN}(): pass").body[0]


def _at(node: Any, place: Any) -> Any:
    return ast.copy_location(node, place)


def _bound(node: Any) -> Iterator[str]:
    """The names that a statement binds in its own scope, but for those that `:=` binds."""
    if isinstance(node, _NESTED):
        yield node.name  # type: ignore[union-attr]
        return
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        for alias in node.names:
            yield alias.asname or alias.name.partition(".")[0]
        return
    for field in ("targets", "target", "optional_vars"):
        found = getattr(node, field, None)
        for target in found if isinstance(found, list) else [found]:
            yield from _names_of(target)
    for item in getattr(node, "items", ()):
        yield from _names_of(item.optional_vars)
    name = getattr(node, "name", None)  # of an `except` clause, or a `type` statement
    if name is not None:
        yield from (_names_of(name) if isinstance(name, ast.AST) else [name])
    for case in getattr(node, "cases", ()):
        for part in ast.walk(case.pattern):
            for field in ("name", "rest"):
                captured = getattr(part, field, None)
                if isinstance(captured, str):
                    yield captured
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        for inner in getattr(node, field, None) or ():
            yield from _bound(inner)


def _names_of(target: Any) -> Iterator[str]:
    if isinstance(target, ast.Name):
        yield target.id
    elif isinstance(target, ast.Starred):
        yield from _names_of(target.value)
    elif isinstance(target, (ast.Tuple, ast.List)):
        for inner in target.elts:
            yield from _names_of(inner)


def _as_in_function(node: Any) -> Any:
    """A statement that a module may have and a function may not, said in another way."""
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return _at(ast.Assign([node.target], node.value) if node.value is not None else ast.Pass(), node)
    if isinstance(node, ast.ImportFrom) and [alias.name for alias in node.names] == ["*"]:
        name = "." * node.level + (node.module or "")
        space = _at(ast.Call(_at(ast.Name("globals", ast.Load()), node), [], []), node)
        star = _at(ast.Name(_STAR, ast.Load()), node)
        call = _at(ast.Call(star, [_at(ast.Constant(name), node), space], []), node)
        return _at(ast.Expr(call), node)
    if not isinstance(node, _NESTED):
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(node, field, None)
            if isinstance(inner, list):
                setattr(node, field, [_as_in_function(statement) for statement in inner])
    return node


def _import_star(name: str, namespace: dict[str, Any]) -> None:
    """`from name import *`."""
    import importlib

    module = importlib.import_module(name)
    exported = getattr(module, "__all__", None)
    names = exported if exported is not None else [key for key in vars(module) if not key.startswith("_")]
    namespace.update({key: getattr(module, key) for key in names})


def _refuse_yield(code: Any, body: list[Any], filename: str, source: str) -> None:
    """Raises SyntaxError for a `yield` at the top, which would make a generator of the function."""
    function = next(const for const in code.co_consts if getattr(const, "co_name", "") == _MAIN)
    if not function.co_flags & _GENERATORS:
        return
    for node in body:
        for inner in _own_nodes(node):
            if isinstance(inner, (ast.Yield, ast.YieldFrom)):
                lines = source.splitlines()
                text = lines[inner.lineno - 1] if inner.lineno <= len(lines) else ""
                raise SyntaxError("'yield' outside function", (filename, inner.lineno, inner.col_offset + 1, text))


def _own_nodes(node: Any) -> Iterator[Any]:
    """The nodes of a statement that run in its own scope: not those inside of functions and classes in it."""
    yield node
    if not isinstance(node, _NESTED):
        for child in ast.iter_child_nodes(node):
            yield from _own_nodes(child)
