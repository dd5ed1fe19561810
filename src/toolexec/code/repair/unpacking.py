"""Loops that take each item apart into fewer names than it has parts."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from toolexec.code.repair.python_program import PythonProgram
from toolexec.code.repair.shown import shown_value
from toolexec.code.repair.source import instead

__all__ = ["of_unpacking"]


def of_unpacking(program: PythonProgram, nodes: Sequence[ast.AST], count: int) -> Iterator[str]:
    """Yield how many parts the items have that a loop of these nodes takes apart into *count* names."""
    for node in nodes:
        is_made = isinstance(node, ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp)
        for each in node.generators if is_made else (node,):
            if not isinstance(each, ast.comprehension | ast.For) or not isinstance(each.target, ast.Tuple):
                continue
            rows = [row for value in program.values(each.iter) if isinstance(value, list) for row in value]
            widths = {len(row) if isinstance(row, list) else 0 for row in rows}
            if len(each.target.elts) != count or len(widths) != 1 or max(widths) <= count:
                continue
            about = f"each of `{program.text(each.iter)}` has {max(widths)} items, such as {shown_value(rows[0])}"
            names = [program.text(name) for name in each.target.elts]
            found = re.search(
                r"for\s+\(?" + r"\s*,\s*".join(map(re.escape, names)) + r"\)?\s+in\b", program.source(node)
            )
            new = f"for {', '.join(names)}, *_ in"
            yield f"{about}: {instead(found[0], new)}" if found is not None else about
