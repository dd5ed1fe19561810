"""A program as its author wrote it, made runnable: `await` and `return` at the top, and a value at the end.

Most programs are compiled from their text, as a module is, with the last expression on its own. A program with
`return` at the top becomes the body of a function in which every name that it binds is declared global: names stay
where a module has them (a later run in the same session finds them), and no `except` can catch the `return`.
"""

from __future__ import annotations

from typing import Any

from .program import Program

_TOP_LEVEL_AWAIT = 0x2000  # ast.PyCF_ALLOW_TOP_LEVEL_AWAIT; `ast` takes long to import
_MANY_BRACKETS = 90
_STATEMENTS = ("for ", "while ", "if ", "with ", "try:", "def ", "class ", "import ", "from ", "async ", "@", "raise ")
"""What no expression begins with."""


def compile_program(source: str, filename: str) -> Program:
    """Compile *source*; raises SyntaxError with the author's own line and column."""
    try:
        program = _from_text(source, filename)
        if program is None:
            from .tree import from_tree

            program = from_tree(source, filename)
    except MemoryError:
        _refuse_brackets(source, filename)
        raise
    return program


def _from_text(source: str, filename: str) -> Program | None:
    """A program whose last statement can be found by its lines; None for one that has to be parsed."""
    lines = source.splitlines(True)
    start = len(lines) - 1
    while start >= 0 and (not lines[start].strip() or lines[start][0] in " \t#)]}"):
        start -= 1
    if start < 0 or lines[start].startswith(
        ("return", "if __name__")
    ):  # trying would make CPython look for a file of this name
        return None
    tail = "\n" * start + "".join(lines[start:])
    try:
        last = None if lines[start].startswith(_STATEMENTS) else _compiled(tail.rstrip(), filename, "eval")
    except SyntaxError:
        last = None
    try:
        if last is not None:
            return Program(_compiled("".join(lines[:start]), filename, "exec") if start else None, last)
        if ";" in tail:
            return None
        _compiled(tail, filename, "exec")  # a whole statement by itself, and not an expression
        return Program(_compiled(source, filename, "exec"))
    except SyntaxError:
        return None  # the end of something longer, `return` at the top, or wrong


def _compiled(text: str, filename: str, mode: str) -> Any:
    return compile(text, filename, mode, flags=_TOP_LEVEL_AWAIT, dont_inherit=True)


def _refuse_brackets(source: str, filename: str) -> None:
    """Raise SyntaxError if it was the brackets that a parser had no room for: it says that memory is used up."""
    depth = most = 0
    for sign in source:
        depth += (sign in "([{") - (sign in ")]}")
        most = max(most, depth)
    if most >= _MANY_BRACKETS:
        said = f"brackets are nested {most} deep, more than Python reads here; build the value in steps"
        raise SyntaxError(said, (filename, 1, 1, source.splitlines()[0])) from None
