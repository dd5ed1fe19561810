"""A program as its author wrote it, made runnable: `await` and `return` at the top, and a value at the end.

The statements become the body of one function. Every name that they bind is declared global in it, so that names stay
where a module has them (a later run in the same session finds them), while `return` and `await` are those of Python
itself and no `except` of the program can catch them.
"""

from __future__ import annotations

import ast
from typing import Any

__all__ = ["NOTHING", "Program", "compile_program"]

NOTHING: Any = type("Nothing", (), {"__repr__": lambda self: "NOTHING", "__doc__": "No value: the end was reached."})()
LAST = "__toolexec_last__"
_MAIN = "__toolexec_main__"
_STAR = "__toolexec_star__"
_NOTHING = "__toolexec_nothing__"
_NESTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


class Program:
    """A compiled program: `run(namespace)` gives its value, or a coroutine of it when `is_async`."""

    def __init__(self, code: Any, is_async: bool) -> None:
        self._code = code
        self.is_async = is_async

    def run(self, namespace: dict[str, Any]) -> Any:
        """Run it in *namespace*; NOTHING when it ended without `return`."""
        namespace[_NOTHING] = NOTHING
        namespace[_STAR] = _import_star
        namespace[LAST] = NOTHING
        exec(self._code, namespace)  # noqa: S102 - to run code is what a sandbox is for; this only defines a function
        return namespace.pop(_MAIN)()


def compile_program(source: str, filename: str) -> Program:
    """Compile *source*; raises SyntaxError with the author's own line and column."""
    tree = ast.parse(source, filename)
    futures = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    body = [node for node in tree.body if node not in futures]
    _refuse_yield(body, filename, source)
    body = [_Rewrite().visit(node) for node in body]
    if body and isinstance(body[-1], ast.Expr):
        last = body[-1]
        target = ast.copy_location(ast.Name(LAST, ast.Store()), last)
        body[-1] = ast.copy_location(ast.Assign([target], last.value), last)
    is_async = any(_awaits(node) for node in body)
    kind = ast.AsyncFunctionDef if is_async else ast.FunctionDef
    ending = ast.Return(ast.Name(_NOTHING, ast.Load()))
    main = _function(kind, [*body, ending])
    names = _bound_names(ast.Module([*futures, main], []), filename)
    if names:
        main.body.insert(0, ast.Global(names))
    module = ast.fix_missing_locations(ast.Module([*futures, main], []))
    return Program(compile(module, filename, "exec", dont_inherit=True), is_async)


def _function(kind: Any, body: list[Any]) -> Any:
    """The one function; parsed from text, as the fields of its node differ between versions of Python."""
    text = "async def f(): pass" if kind is ast.AsyncFunctionDef else "def f(): pass"
    node: Any = ast.parse(text).body[0]
    node.name = _MAIN
    node.body = body
    return node


def _bound_names(module: ast.Module, filename: str) -> list[str]:
    """The names that the function binds and does not declare global itself.

    The compiler knows all the ways to bind a name; the variables of the function that it makes are the answer.
    """
    code = compile(ast.fix_missing_locations(module), filename, "exec", dont_inherit=True)
    function = next(const for const in code.co_consts if getattr(const, "co_name", "") == _MAIN)
    return sorted({*function.co_varnames, *function.co_cellvars} - {".0"})


class _Rewrite(ast.NodeTransformer):
    """What a module may do and a function may not, said in another way; only at the top, not in nested scopes."""

    def visit(self, node: Any) -> Any:
        return node if isinstance(node, _NESTED) else super().visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        if not isinstance(node.target, ast.Name):
            return self.generic_visit(node)
        if node.value is None:
            return ast.copy_location(ast.Pass(), node)
        return ast.copy_location(ast.Assign([node.target], node.value), node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> Any:
        if [alias.name for alias in node.names] != ["*"]:
            return node
        name = "." * node.level + (node.module or "")
        call = ast.Call(ast.Name(_STAR, ast.Load()), [ast.Constant(name), _globals_call()], [])
        return ast.copy_location(ast.Expr(call), node)


def _globals_call() -> ast.Call:
    return ast.Call(ast.Name("globals", ast.Load()), [], [])


def _import_star(name: str, namespace: dict[str, Any]) -> None:
    """`from name import *`."""
    import importlib

    module = importlib.import_module(name)
    exported = getattr(module, "__all__", None)
    names = exported if exported is not None else [key for key in vars(module) if not key.startswith("_")]
    namespace.update({key: getattr(module, key) for key in names})


def _own_nodes(node: Any) -> Any:
    """The nodes of a statement that run in its own scope: not those inside of functions and classes in it."""
    yield node
    if isinstance(node, _NESTED):
        outside = [*getattr(node, "decorator_list", []), *getattr(node, "bases", [])]
        outside += [*getattr(getattr(node, "args", None), "defaults", [])]
    else:
        outside = ast.iter_child_nodes(node)
    for child in outside:
        yield from _own_nodes(child)


def _awaits(node: Any) -> bool:
    for inner in _own_nodes(node):
        if isinstance(inner, (ast.Await, ast.AsyncFor, ast.AsyncWith)):
            return True
        if isinstance(inner, ast.comprehension) and inner.is_async:
            return True
    return False


def _refuse_yield(body: list[Any], filename: str, source: str) -> None:
    for node in body:
        for inner in _own_nodes(node):
            if isinstance(inner, (ast.Yield, ast.YieldFrom)):
                lines = source.splitlines()
                text = lines[inner.lineno - 1] if inner.lineno <= len(lines) else ""
                raise SyntaxError("'yield' outside function", (filename, inner.lineno, inner.col_offset + 1, text))
