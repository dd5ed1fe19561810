"""A program that has to be parsed to be made runnable; see `compiling`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from .program import LAST, MAIN, NOTHING_NAME, STAR, Program

_GENERATORS = 0x20 | 0x200  # CO_GENERATOR, CO_ASYNC_GENERATOR
_NESTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def from_tree(source: str, filename: str) -> Program:
    """Return the program as the body of a function."""
    tree = ast.parse(source, filename)
    futures = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    body = [_as_in_function(node) for node in tree.body if node not in futures]
    _keep_last(body)
    if "exec" in source or "eval" in source:
        _with_globals(body)
    names = {LAST}
    for node in body:
        names.update(_bound(node))
    if ":=" in source:
        names.update(node.target.id for node in ast.walk(tree) if isinstance(node, ast.NamedExpr))
    declared = {name for node in body if isinstance(node, ast.Global) for name in node.names}
    main = _function(is_async=False)
    end = ast.Return(ast.Name(NOTHING_NAME, ast.Load()))
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


def _keep_last(body: list[Any]) -> None:
    """Have the value of a final expression kept, and that of the end of `if __name__ == "__main__":`."""
    last = body[-1] if body else None
    if isinstance(last, ast.Expr):
        body[-1] = _at(ast.Assign([_at(ast.Name(LAST, ast.Store()), last)], last.value), last)
    elif isinstance(last, ast.If) and not last.orelse and _is_main_guard(last.test):
        _keep_last(last.body)


def _is_main_guard(test: Any) -> bool:
    return (
        isinstance(test, ast.Compare)
        and isinstance(test.left, ast.Name)
        and test.left.id == "__name__"
        and isinstance(test.ops[0], ast.Eq)
    )


def _with_globals(body: list[Any]) -> None:
    """Have `exec` and `eval` at the top bind names where a module would have them: those of a function are lost."""
    for node in body:
        for inner in _own_nodes(node):
            if not isinstance(inner, ast.Call) or len(inner.args) != 1 or inner.keywords:
                continue
            if isinstance(inner.func, ast.Name) and inner.func.id in ("exec", "eval"):
                inner.args.append(_at(ast.Call(_at(ast.Name("globals", ast.Load()), inner), [], []), inner))


def _compiled_tree(body: list[Any], filename: str) -> Any:
    return compile(ast.Module(body, []), filename, "exec", dont_inherit=True)


def _function(*, is_async: bool) -> Any:
    """The one function; parsed from text, as the fields of its node differ between versions of Python."""
    return ast.parse(f"{'async ' if is_async else ''}def {MAIN}(): pass").body[0]


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
        star = _at(ast.Name(STAR, ast.Load()), node)
        call = _at(ast.Call(star, [_at(ast.Constant(name), node), space], []), node)
        return _at(ast.Expr(call), node)
    if not isinstance(node, _NESTED):
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(node, field, None)
            if isinstance(inner, list):
                setattr(node, field, [_as_in_function(statement) for statement in inner])
    return node


def _refuse_yield(code: Any, body: list[Any], filename: str, source: str) -> None:
    """Raises SyntaxError for a `yield` at the top, which would make a generator of the function."""
    function = next(const for const in code.co_consts if getattr(const, "co_name", "") == MAIN)
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
