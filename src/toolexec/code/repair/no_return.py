"""Functions of a Python program that return nothing, and JavaScript that prints what it has found."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

from toolexec.code.repair.python_tree import tree_of
from toolexec.code.repair.source import calls_of, instead

_RUNNERS: Final = frozenset({"run", "run_until_complete"})
_FILLING: Final = frozenset({"add", "append", "extend", "insert", "update"})
_PRINTS: Final = re.compile(r"^(?:await[ \t]+)?(\w+\(\))\.then\(console\.log\)(?:\.catch\([\w.]+\))?", re.MULTILINE)


def about_no_return(code: str) -> list[str]:
    """Return what to say of a program that ends in a call of such a function."""
    tree = tree_of(code)
    body = tree.body if tree is not None else []
    while body and isinstance(body[-1], ast.If) and not body[-1].orelse:
        body = body[-1].body  # as under `if __name__ == "__main__":`
    value = body[-1].value if body and isinstance(body[-1], ast.Return | ast.Expr) else None
    said = returns_nothing(value, tree, code) if value is not None and tree is not None else ""
    return [said] if said else []


def about_printed(code: str) -> list[str]:
    """Return what to write in a JavaScript program without a value, whose last statement prints one."""
    if code.count("console.log") != 1 or re.search(r"^return\b", code, re.MULTILINE):
        return []
    about = "the program prints its result, and has no value"
    found = [(each[0], f"return await {each[1]}") for each in _PRINTS.finditer(code)]
    for old, inner in calls_of("console.log", code):
        shown = next((given for whole, given in calls_of("JSON.stringify", inner) if whole == inner), "")
        found.append((old, f"return {shown or inner}"))
    last = found[0][0] if len(found) == 1 else ""
    is_last = bool(last) and not code[code.find(last) + len(last) :].strip("; \n")
    is_at_start = is_last and code[: code.find(last)][-1:] in ("", "\n")
    return [f"{about}: {instead(*found[0])}"] if is_at_start else []


def returns_nothing(call: ast.expr, tree: ast.Module, code: str) -> str:
    """Return what to write in the function that *call* calls, if that is one of the program without a `return`; else
    "". A function that `asyncio.run` is given is called."""
    call = call.value if isinstance(call, ast.Await) else call
    if not isinstance(call, ast.Call):
        return ""
    if isinstance(call.func, ast.Attribute) and call.func.attr in _RUNNERS and len(call.args) == 1:
        return returns_nothing(call.args[0], tree, code)
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    own = [
        each
        for each in ast.walk(tree)
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name == name
    ]
    if not own or any(isinstance(each, ast.Return | ast.Yield) for each in _within(own[-1])):
        return ""
    about = f"`{name}` has no `return`, so its result is None"
    last, lines = own[-1].body[-1], code.splitlines()
    line = lines[(last.end_lineno or 0) - 1].strip()
    made = _made_by(last)
    if not made or lines.count(lines[(last.end_lineno or 0) - 1]) != 1:
        return f"{about}: end it with `return ...`"
    if isinstance(last, ast.Expr) and made == line:
        return f"{about}: {instead(line, f'return {line}')}"
    longer = "\n".join((line, " " * last.col_offset + f"return {made}"))
    return f"{about}: {instead(line, longer)}"


def _made_by(last: ast.stmt) -> str:
    """Return what the last statement of a function makes: the name that it sets or fills, or its value."""
    match last:
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr()):
            return name
        case ast.AugAssign(target=ast.Name(id=name)):
            return name
        case ast.Assign(targets=[ast.Subscript(value=ast.Name(id=name))]):
            return name
        case ast.AugAssign(target=ast.Subscript(value=ast.Name(id=name))):
            return name
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=attr))) if attr in _FILLING:
            return name
        case ast.Expr(value=ast.Call(func=ast.Name(id="print"))):
            return ""
        case ast.Expr(value=value):
            return ast.unparse(value)
        case ast.For(body=body) | ast.AsyncFor(body=body) | ast.With(body=body) | ast.AsyncWith(body=body):
            made = _made_by(body[-1])
            return made if made.isidentifier() else ""
        case ast.If(body=body, orelse=[]) | ast.While(body=body):
            made = _made_by(body[-1])
            return made if made.isidentifier() else ""
        case _:
            return ""


def _within(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.AST]:
    """Yield what a function has, without the functions in it."""
    pending: list[ast.AST] = [*function.body]
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            pending += ast.iter_child_nodes(node)
