"""JavaScript whose brackets or quotes do not close, as where the mark is missing or too many."""

from __future__ import annotations

import re
from typing import Final

from toolexec.code.repair.failure import Failure

_CLOSING: Final = {"(": ")", "[": "]", "{": "}"}
_COMMENT: Final = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_REGULAR: Final = re.compile(r"/(?![/*])(?:\\.|\[(?:\\.|[^\]\n])*\]|[^/\\\n])+/[a-z]*")
_LONGEST_SHOWN: Final = 80


def about_javascript_marks(failure: Failure) -> str:
    """Return which bracket or quote has no other; "" where all have."""
    if failure.language not in ("javascript", "typescript") or failure.kind != "SyntaxError":
        return ""
    code, opened, at = failure.code, list[tuple[str, int]](), 0
    while at < len(code):
        char = code[at]
        if comment := _COMMENT.match(code, at):
            at = comment.end()
        elif char == "/" and re.search(r"[(,=:\[!&|?{};]\s*$|^\s*$", code[:at]) and (found := _REGULAR.match(code, at)):
            at = found.end()
        elif char in "\"'":
            end = _end_of_text(code, at)
            if not end:
                return f"the text in {_where(code, at)} has no end: a `{char}` is missing"
            at = end
        elif char == "`":
            end = _end_of_template(code, at)
            if not end:
                return f"the template in {_where(code, at)} has no end: a ``` ` ``` is missing"
            at = end
        else:
            if char in _CLOSING:
                opened.append((char, at))
            elif char in _CLOSING.values():
                if not opened:
                    return f"nothing is open before the `{char}` in {_where(code, at)}: leave one out"
                if _CLOSING[opened[-1][0]] != char:
                    missing = _CLOSING[opened[-1][0]]
                    return (
                        f"a `{missing}` is missing before the `{char}` in {_where(code, at)}, or that is one too many: "
                        f"`{opened[-1][0]}` in {_where(code, opened[-1][1])} is open"
                    )
                opened.pop()
            at += 1
    if not opened:
        return ""
    bracket, place = opened[-1]
    return f"the `{bracket}` in {_where(code, place)} is never closed: a `{_CLOSING[bracket]}` is missing"


def _end_of_text(code: str, start: int) -> int:
    """Return the place behind a string; 0 where its line ends before it."""
    found = re.compile(rf"{code[start]}(?:\\.|[^\\\n{code[start]}])*{code[start]}", re.DOTALL).match(code, start)
    return found.end() if found is not None else 0


def _end_of_template(code: str, start: int) -> int:
    at, depth = start + 1, 0
    while at < len(code):
        if code[at] == "\\":
            at += 1
        elif code.startswith("${", at):
            depth, at = depth + 1, at + 1
        elif depth and code[at] == "{":
            depth += 1
        elif depth and code[at] == "}":
            depth -= 1
        elif depth and code[at] == "`":
            at = (_end_of_template(code, at) or len(code)) - 1
        elif not depth and code[at] == "`":
            return at + 1
        at += 1
    return 0


def _where(code: str, at: int) -> str:
    start = code.rfind("\n", 0, at) + 1
    line = code[start : code.find("\n", at) if "\n" in code[at:] else len(code)].strip()
    shown = line if len(line) <= _LONGEST_SHOWN else f"{line[:_LONGEST_SHOWN]}..."
    return f"line {code.count(chr(10), 0, at) + 1}, `{shown}`"
