"""A function of a Python program whose result is the value of it, and which returns nothing."""

from __future__ import annotations

import ast

from toolexec.code.repair.python_tree import tree_of


def about_no_return(code: str) -> list[str]:
    """Return what to say of a program that ends in a call of such a function."""
    tree = tree_of(code)
    last = tree.body[-1] if tree is not None and tree.body else None
    value = last.value if isinstance(last, ast.Return | ast.Expr) else None
    call = value.value if isinstance(value, ast.Await) else value
    if tree is None or not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        return []
    name = call.func.id
    own = [each for each in tree.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name == name]
    if not own or any(isinstance(each, ast.Return | ast.Yield) for each in ast.walk(own[-1])):
        return []
    return [f"`{name}` has no `return`, so its result is None: end it with `return ...`"]
