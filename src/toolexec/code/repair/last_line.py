"""A last statement that sets `result`: the value that its author means, as in a notebook."""

from __future__ import annotations

import ast
import re
from typing import Final

__all__ = ["RESULT_NAMES", "last_result"]

RESULT_NAMES: Final = (
    "result",
    "results",
    "output",
    "answer",
    "final_answer",
    "final_result",
    "finalAnswer",
    "finalResult",
    "response",
    "summary",
    "report",
)
"""The names that mean the value of a program."""

_NAMES: Final = "|".join(RESULT_NAMES)
_PYTHON: Final = re.compile(rf"^({_NAMES})[ \t]*(?::[^=\n]+)?=(?!=)", re.MULTILINE)
_JAVASCRIPT: Final = re.compile(rf"^(?:(?:const|let|var)[ \t]+)?({_NAMES})[ \t]*=(?![=>])", re.MULTILINE)
_GOES_ON: Final = re.compile(r"[ \t\r\n)\]};]|//")


def last_result(code: str, language: str) -> str:
    """Return the name that the last statement of *code* sets; "" where it does something else, or the program gives
    its value in another way."""
    if "__out" in code:
        return ""
    if language == "python":
        return _of_python(code) if _PYTHON.search(code) else ""
    found = None
    for match in _JAVASCRIPT.finditer(code):
        found = match
    if found is None or re.search(r"^return\b", code, re.MULTILINE):
        return ""
    after = code[found.end() :].split("\n")[1:]
    return found[1] if all(not line or _GOES_ON.match(line) for line in after) else ""


def _of_python(code: str) -> str:
    try:
        body = ast.parse(code).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    match body[-1]:
        case ast.Assign(targets=[ast.Name(id=name)]) if name in RESULT_NAMES:
            pass
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr()) if name in RESULT_NAMES:
            pass
        case _:
            return ""
    return "" if any(_returns(node) for node in body) else name


def _returns(node: ast.AST) -> bool:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
        return False
    return isinstance(node, ast.Return) or any(_returns(child) for child in ast.iter_child_nodes(node))
