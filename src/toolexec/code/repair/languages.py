"""Programs in another language than they were sent in, and what only TypeScript has."""

from __future__ import annotations

import re
from typing import Final

from toolexec.code.repair.failure import Failure
from toolexec.code.repair.python_tree import tree_of
from toolexec.code.repair.source import instead
from toolexec.code.repair.typescript import enum_as_object, not_erasable

_LIKE_JAVASCRIPT: Final = re.compile(
    r"^\s*(?:const|let|var)\s+[\w{[]|^\s*(?:async\s+)?function\b|=>\s*[{(\w]|\bconsole\.log\(|^\s*import\s.*\sfrom\s+['\"]",
    re.MULTILINE,
)
_FUNCTION: Final = re.compile(r"(async\s+)?(?:\bfunction\s+\w+\s*\([^()]*\)|\([^()]*\)\s*=>|\b\w+\s*=>)")


def about_language(failure: Failure) -> str:
    """Return the language to ask for, or what to write for an enum; "" where neither is the cause."""
    if failure.kind != "SyntaxError":
        return ""
    if failure.language == "python":
        if _LIKE_JAVASCRIPT.search(failure.code):
            return "this is JavaScript: send it with language='javascript'"
        return ""
    if failure.language != "javascript":
        return ""
    if advice := _about_await(failure):
        return advice
    kind, source = not_erasable(failure.code)
    if kind == "enum":
        return f"TypeScript's enum is more than a type: {instead(source, enum_as_object(source))}"
    if kind:
        return f"TypeScript's {kind} is more than a type: write its functions and constants without it"
    if _is_python(failure.code):
        return "this is Python: send it with language='python'"
    return about_python_forms(failure, near=1)


_FORMS: Final = (
    (re.compile(r"(?<![\w.])f(['\"])((?:(?!\1).)*)\1"), "a template is `...${value}...` in backticks"),
    (
        re.compile(r"^\s*(?:if|while)\s+[^(\n][^\n]*:\s*$"),
        "write `if (...) {`",
    ),
    (re.compile(r"^\s*(?:elif|else:|elif\b.*)"), "write `else if (...) {`, or `else {`"),
    (re.compile(r"^\s*for\s+\w+\s+in\s+[^\n]*:\s*$"), "a loop is `for (const each of list) {`"),
    (re.compile(r"^\s*def\s+\w+\("), "a function is `function name(...) {`"),
    (re.compile(r"\bis\s+not\s+(?:None|null)\b"), "write `!== null`"),
    (re.compile(r"\bis\s+(?:None|null)\b"), "write `=== null`"),
    (re.compile(r"\bnot\s+in\b|\bnot\s+\w"), "write `!`"),
    (re.compile(r"[\w)\]]\s+(and|or)\s+[\w(]"), "write `&&` for `and`, `||` for `or`"),
    (re.compile(r"\[[^\[\]]+\bfor\s+\w+\s+in\b"), "a list is made with `list.map((each) => ...)`"),
    (re.compile(r"\blambda\b"), "a function is `(each) => ...`"),
    (re.compile(r"^\s*(?:try|except\b[^\n]*|finally)\s*:\s*$"), "write `try { } catch (error) { }`"),
)
"""What Python has, and what is written in JavaScript."""

_LONGEST_LINE: Final = 500


def about_python_forms(failure: Failure, near: int = 0) -> str:
    """Return what to write for a form of Python on the line that cannot be read, or *near* lines from it; "" else."""
    if (
        failure.language not in ("javascript", "typescript")
        or failure.kind != "SyntaxError"
        or _is_python(failure.code)
    ):
        return ""
    lines = failure.code.splitlines()
    at = failure.line or 1
    for line in (
        each[:_LONGEST_LINE]
        for each in [*lines[at - 1 : at], *lines[max(at - 1 - near, 0) : at - 1], *lines[at : at + near]]
    ):
        for pattern, advice in _FORMS:
            if found := pattern.search(line):
                return f"`{found[0].strip()}` is Python: {advice}"
    return ""


def _about_await(failure: Failure) -> str:
    """`await` in a function without `async`: the one that the line is in."""
    lines = failure.code.splitlines()
    at = min(failure.line, len(lines)) or len(lines)
    if not any("await" in line for line in lines[max(at - 2, 0) : at]):
        return ""
    for line in reversed(lines[:at]):
        if found := _FUNCTION.search(line):
            return "" if found[1] else f"only an async function awaits: {instead(found[0], f'async {found[0]}')}"
    return ""


def _is_python(code: str) -> bool:
    return tree_of(code) is not None
