"""Loops that take each item apart into other names than it has parts."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import Final

from toolexec.code.repair.python_program import PythonProgram
from toolexec.code.repair.shown import shown_value
from toolexec.code.repair.source import instead

_PAIRS: Final = re.compile(r"(?:\.items\(\)|^enumerate\(.*\))$", re.DOTALL)


def of_unpacking(program: PythonProgram, nodes: Sequence[ast.AST], count: int) -> Iterator[str]:
    """Yield how many parts the items have that a loop of these nodes takes apart into *count* names."""
    for node in nodes:
        is_made = isinstance(node, ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp)
        for each in node.generators if is_made else (node,):
            if not isinstance(each, ast.comprehension | ast.For) or not isinstance(each.target, ast.Tuple):
                continue
            of = program.text(each.iter)
            if _is_dict(program, each.iter):
                new = f"{of}.items()"
                about = f"`{of}` is a dict, `{new}` gives its keys with what they have"
                yield f"{about}: {instead(f'in {of}', f'in {new}')}"
                continue
            rows = [row for value in program.values(each.iter) if isinstance(value, list) for row in value]
            widths = {len(row) if isinstance(row, list) else 0 for row in rows} or ({2} if _PAIRS.search(of) else {0})
            if len(each.target.elts) != count or len(widths) != 1 or max(widths) in (0, count):
                continue
            width = max(widths)
            about = f"each of `{of}` has {width} items" + (f", such as {shown_value(rows[0])}" if rows else "")
            names = [program.text(name) for name in each.target.elts]
            found = re.search(
                r"for\s+\(?" + r"\s*,\s*".join(map(re.escape, names)) + r"\)?\s+in\b", program.source(node)
            )
            taken = [*names, "*_"] if width > count else names[:width]
            new = f"for {', '.join(taken)} in"
            yield f"{about}: {instead(found[0], new)}" if found is not None else about


def _is_dict(program: PythonProgram, node: ast.expr) -> bool:
    """Return whether a loop goes over a dict of a result, or one that the program made."""
    if values := program.values(node):
        return all(isinstance(each, dict) for each in values)
    bound = program.bound(node) if isinstance(node, ast.Name) else []
    made = ("dict(", "defaultdict(", "collections.defaultdict(", "Counter(", "collections.Counter(")
    return bool(bound) and all(
        isinstance(each, ast.Dict | ast.DictComp) or (isinstance(each, ast.Call) and ast.unparse(each).startswith(made))
        for each in bound
    )
