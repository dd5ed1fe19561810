"""Comprehensions of Python in a program of JavaScript, as calls of the methods of arrays."""

from __future__ import annotations

import re
from typing import Final

from toolexec.code.repair.failure import Failure
from toolexec.code.repair.source import end_of, instead

_OPENED: Final = re.compile(r"(?<![\w$.\])])(?:(sum|any|all|list|min|max)\s*(?=\()|(?=\[))")
_PARTS: Final = re.compile(
    r"\s*([^\n]+?)\s+for\s+([A-Za-z_$][\w$]*)\s+in\s+([A-Za-z_$][\w$]*(?:\.[A-Za-z_$][\w$]*|\[[^\[\]\n]*\])*)"
    r"(?:\s+if\s+([^\n]+?))?\s*"
)
_OF_PYTHON: Final = re.compile(r"\b(?:and|or|not|is|in|if|else|for|lambda|None|True|False)\b")
_MOST: Final = 50


def about_comprehensions(failure: Failure) -> str:
    """Return what to write for the first comprehension of a program that cannot be read; "" without one."""
    if failure.language not in ("javascript", "typescript") or failure.kind != "SyntaxError":
        return ""
    for found in [*_OPENED.finditer(failure.code)][:_MOST]:
        end = end_of(failure.code, found.end())
        inner = _PARTS.fullmatch(failure.code, found.end() + 1, end - 1) if end else None
        if inner is None or any(_OF_PYTHON.search(each) for each in (inner[1], inner[4] or "")):
            continue
        new = _written(found[1] or "list", inner[1], inner[2], inner[3], inner[4])
        old = failure.code[found.start() : end]
        return f"JavaScript has no comprehensions: {instead(old, new)}"
    return ""


def _written(function: str, each: str, name: str, array: str, condition: str | None) -> str:
    of = f"{array}.filter(({name}) => {condition})" if condition else array
    if function in ("any", "all"):
        return f"{of}.{'some' if function == 'any' else 'every'}(({name}) => {each})"
    mapped = of if each == name else f"{of}.map(({name}) => {each})"
    if function == "sum":
        return f"{mapped}.reduce((a, b) => a + b, 0)"
    return f"Math.{function}(...{mapped})" if function in ("min", "max") else mapped
