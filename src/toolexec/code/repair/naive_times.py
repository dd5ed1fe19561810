"""Times without a zone that a Python line puts together with times that have one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import Final

from toolexec.code.repair.python_program import PythonProgram
from toolexec.code.repair.source import instead

_WITHOUT: Final = frozenset({"combine", "datetime", "now", "strptime", "today", "utcnow"})
_ZONE: Final = re.compile(r"(?:Z|[+-]\d\d:?\d\d)$")


def of_naive_times(program: PythonProgram, nodes: Sequence[ast.AST], code: str) -> Iterator[str]:
    """Yield what to write for the one side of an operation whose time has no zone."""
    zoned = ".replace(tzinfo=timezone.utc)" if re.search(r"\btimezone\b", code) else ".astimezone()"
    about = "one of them has a time zone, the other has none"
    for node in nodes:
        match node:
            case ast.BinOp(op=ast.Sub(), left=left, right=right):
                sides = left, right
            case ast.Compare(left=left, comparators=[right]):
                sides = left, right
            case _:
                continue
        naive = [each for each in sides if _is_naive(program, each)]
        if len(naive) == 1:
            whole, text = program.text(node), program.text(naive[0])
            new = whole.replace(text, f"{text}{zoned}", 1) if naive[0] is left else f"{whole}{zoned}"
            yield f"{about}: {instead(whole, new)}"
    yield f"{about}: give both one, as `.replace(tzinfo=timezone.utc)` does"


def _is_naive(program: PythonProgram, node: ast.expr) -> bool:
    """Return whether an expression certainly makes a time without a zone."""
    if isinstance(node, ast.Name):
        bound = program.bound(node)
        return bool(bound) and all(isinstance(each, ast.expr) and _is_naive(program, each) for each in bound)
    if not isinstance(node, ast.Call):
        return False
    made = ast.unparse(node.func).rpartition(".")[2]
    if made == "fromisoformat" and node.args:
        values = program.values(node.args[0])
        return bool(values) and all(isinstance(each, str) and not _ZONE.search(each) for each in values)
    text = ast.unparse(node)
    return made in _WITHOUT and "%z" not in text and not re.search(r"tz|timezone|ZoneInfo|UTC\b", text)
