"""The program in a model's answer: without a Markdown fence, and without the prose around it."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from typing import Final

from toolexec.code.repair.python_tree import tree_of

MARKS: Final = ("```", "~~~")
"""What every fence has."""

_OPENING: Final = re.compile(r"[ \t]*(`{3,}|~{3,})[ \t]*([\w+#.-]*)[ \t]*\r?")
_NAMES: Final = {
    "python": ("", "python", "py", "python3", "tool_code"),
    "javascript": ("", "javascript", "js", "typescript", "ts", "jsx", "mjs"),
    "bash": ("", "bash", "sh", "shell"),
}


def has_fence(code: str) -> bool:
    """Return whether a line of *code* begins with a Markdown fence."""
    return any(_OPENING.fullmatch(line) for line in code.split("\n"))


def without_fence(code: str, language: str = "") -> str:
    """Return *code* without a Markdown fence around the whole of it, and without prose around its only program.

    The lines that go become empty ones, so that lines keep their numbers. A fence inside of a program that is right
    without its removal stays, and so do several programs.
    """
    lines = code.split("\n")
    filled = [number for number, line in enumerate(lines) if line.strip()]
    opening = _OPENING.fullmatch(lines[filled[0]]) if filled else None
    if opening is not None:
        blocks = _blocks(lines, language)
        if len(blocks) == 1:
            return _only(lines, *blocks[0])
        lines[filled[0]] = ""
        if len(filled) > 1 and lines[filled[-1]].strip() == opening[1]:
            del lines[filled[-1] :]
        return "\n".join(lines)
    if language not in _NAMES or (language == "python" and _parses(code)):
        return code
    blocks = _blocks(lines, language)
    return _only(lines, *blocks[0]) if len(blocks) == 1 else code


def without_indent(code: str) -> str:
    """Return *code*, all of whose lines are indented, as the program that it is further left."""
    first = next((line for line in code.split("\n") if line.strip()), "")
    if first[:1] not in (" ", "\t") or _parses(code):
        return code
    further_left = textwrap.dedent(code)
    return further_left if _parses(further_left) else code


def _blocks(lines: Sequence[str], language: str) -> list[tuple[int, int]]:
    """The lines between the fences of each block that may be of *language*; the last one may have no end."""
    found: list[tuple[int, int, bool]] = []
    mark, start, fits = "", 0, False
    names = _NAMES.get(language, ())
    for number, line in enumerate(lines):
        fence = _OPENING.fullmatch(line)
        if fence is None:
            continue
        if not mark:
            mark, start, fits = fence[1], number + 1, not names or fence[2].lower() in names
        elif fence[1] == mark and not fence[2]:
            found.append((start, number, fits))
            mark = ""
    if mark:
        found.append((start, len(lines), fits))
    fitting = [(start, end) for start, end, fits in found if fits]
    return fitting or [(start, end) for start, end, _ in found]


def _only(lines: Sequence[str], start: int, end: int) -> str:
    return "\n".join(["" if number < start else line for number, line in enumerate(lines[:end])])


def _parses(code: str) -> bool:
    """Whether *code* is a program, which may await and return at its top."""
    return tree_of(code) is not None
