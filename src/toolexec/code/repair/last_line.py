"""A last statement that sets `result`, or prints it as JSON: the value that its author means, as in a notebook."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import Final

from toolexec.code.repair.python_tree import tree_of

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
_PYTHON: Final = re.compile(rf"^[ \t]*({_NAMES})[ \t]*(?::[^=\n]+)?=(?!=)", re.MULTILINE)
_JAVASCRIPT: Final = re.compile(rf"^(?:(?:const|let|var)[ \t]+)?({_NAMES})[ \t]*=(?![=>])", re.MULTILINE)
_GOES_ON: Final = re.compile(r"[ \t\r\n)\]};]|//")


def last_result(code: str, language: str) -> str:
    """Return the name that the last statement of *code* sets, on each of its ways, or prints as JSON; "" where it does
    something else, or the program gives its value in another way."""
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
        tree = tree_of(code)
        body = tree.body if tree is not None else []
        name = (_last_set(body) or _printed(body)) if body else ""
        return "" if not name or any(_returns(node) for node in body) else name
    except RecursionError:
        return ""


def _last_set(body: Sequence[ast.stmt]) -> str:
    """The name that the last of these statements sets, on every way through it that sets no other."""
    match body[-1]:
        case ast.Assign(targets=[ast.Name(id=name)]) if name in RESULT_NAMES:
            return name
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr()) if name in RESULT_NAMES:
            return name
        case ast.If(test=ast.Compare(left=ast.Name(id="__name__"), ops=[ast.Eq()]), body=inner, orelse=[]):
            return _last_set(inner)
        case ast.If(body=inner, orelse=[_, *_] as other):
            ways = [inner, other]
        case ast.Try(body=inner, handlers=handlers, orelse=other, finalbody=[]):
            ways = [other or inner, *(handler.body for handler in handlers if not _raises(handler.body))]
        case ast.AsyncWith(body=inner):  # not `with`: it may suppress what fails before
            ways = [inner]
        case _:
            return ""
    names = {_last_set(way) for way in ways}
    return names.pop() if len(names) == 1 else ""


def _raises(body: Sequence[ast.stmt]) -> bool:
    return isinstance(body[-1], ast.Raise)


def _printed(body: Sequence[ast.stmt]) -> str:
    """The name that a last `print(json.dumps(name))` prints: what is JSON can be the value too."""
    match body[-1]:
        case ast.If(test=ast.Compare(left=ast.Name(id="__name__"), ops=[ast.Eq()]), body=inner, orelse=[]):
            return _printed(inner)
        case ast.Expr(
            value=ast.Call(
                func=ast.Name(id="print"),
                args=[
                    ast.Call(
                        func=ast.Attribute(value=ast.Name(id="json"), attr="dumps"),
                        args=[ast.Name(id=name)],
                        keywords=how,
                    )
                ],
                keywords=[],
            )
        ) if not any(each.arg in (None, "cls", "default") for each in how):
            return name if name in {_last_set([each]) for each in body[:-1]} else ""
        case _:
            return ""


def _returns(node: ast.AST) -> bool:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
        return False
    return isinstance(node, ast.Return) or any(_returns(child) for child in ast.iter_child_nodes(node))
