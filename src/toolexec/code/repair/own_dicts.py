"""Dicts of a Python program's own that are read before they have a key, as what gives it one."""

from __future__ import annotations

import ast
from typing import Final

from toolexec.code.repair.failure import Failure
from toolexec.code.repair.python_program import PythonProgram, program_of
from toolexec.code.repair.source import instead
from toolexec.code.tools import Tools

_FILLING: Final = {"append": "[]", "extend": "[]", "insert": "[]", "add": "set()", "update": "{}"}
"""Method → what a key has before the first of its calls."""


def about_own_dicts(failure: Failure, tools: Tools | None) -> str:
    """Return what to write for a key that an empty dict of the program has not got yet; "" of any other."""
    program = program_of(failure.code, tools) if failure.kind == "KeyError" and tools is not None else None
    if program is None or failure.language != "python":
        return ""
    for node in program.nodes(failure.line):
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Subscript) and _is_own(node.target, program):
            of, key = program.text(node.target.value), program.source(node.target.slice)
            first = '""' if isinstance(node.value, ast.JoinedStr) else "[]" if isinstance(node.value, ast.List) else "0"
            sign = program.source(node)[len(program.source(node.target)) :].lstrip()[0]
            new = f"{of}[{key}] = {of}.get({key}, {first}) {sign} {program.source(node.value)}"
            return f"`{of}` has no such key at first: {instead(program.source(node), new)}"
        filled = node.func if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
        if filled is None or filled.attr not in _FILLING or not isinstance(filled.value, ast.Subscript):
            continue
        if _is_own(filled.value, program):
            of, key = program.text(filled.value.value), program.source(filled.value.slice)
            new = f"{of}.setdefault({key}, {_FILLING[filled.attr]})"
            about = f"`{of}` has no such key at first, a `defaultdict` would"
            return f"{about}: {instead(program.source(filled.value), new)}"
    return ""


def _is_own(node: ast.Subscript, program: PythonProgram) -> bool:
    """Return whether a dict is read that the program made empty."""
    bound = program.bound(node.value) if isinstance(node.value, ast.Name) else []
    return bool(bound) and all(
        (isinstance(each, ast.Dict) and not each.keys) or (isinstance(each, ast.Call) and ast.unparse(each) == "dict()")
        for each in bound
    )
