"""`asyncio.run(...)` in a program that awaits at its top: its loop runs already, so that awaiting is what is meant."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from toolexec.code.repair.python_tree import tree_of

_NESTING = re.compile(r"^([ \t]*)(import nest_asyncio|nest_asyncio\.apply\([^()\n]*\))[ \t]*$", re.MULTILINE)
_OWN = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda


def without_nested_loops(code: str) -> str:
    """Return *code* with `await` in the place of `asyncio.run` and `loop.run_until_complete` at its top, where it
    awaits there anyway, and without `nest_asyncio`, which is for loops that run already. Every line and column stays
    where it is."""
    if "nest_asyncio" in code:
        code = _NESTING.sub(lambda found: f"{found[1]}{'pass'.ljust(len(found[2]))}", code)
    if "await" not in code or ("asyncio.run(" not in code and ".run_until_complete(" not in code):
        return code
    tree = tree_of(code)
    if tree is None:
        return code
    nodes = [node for statement in tree.body for node in _at_the_top(statement)]
    if not any(isinstance(node, ast.Await | ast.AsyncFor | ast.AsyncWith) for node in nodes):
        return code
    lines = [line.encode() for line in code.splitlines(keepends=True)]
    for node in nodes:
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=of), attr=name) as called, args=[_], keywords=[]) if (
                of,
                name,
            ) == ("asyncio", "run") or name == "run_until_complete":
                end = called.end_col_offset or 0
                if called.lineno == called.end_lineno:
                    line = lines[called.lineno - 1]
                    width = end - called.col_offset
                    lines[called.lineno - 1] = line[: called.col_offset] + b"await".ljust(width) + line[end:]
            case _:
                pass
    return b"".join(lines).decode()


def _at_the_top(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    if not isinstance(node, _OWN):
        for child in ast.iter_child_nodes(node):
            yield from _at_the_top(child)
