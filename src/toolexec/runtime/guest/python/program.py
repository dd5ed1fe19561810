"""A program as its author wrote it, made runnable: `await` and `return` at the top, and a value at the end.

Most programs are compiled from their text, as a module is, with the last expression on its own. A program with
`return` at the top becomes the body of a function in which every name that it binds is declared global: names stay
where a module has them (a later run in the same session finds them), and no `except` can catch the `return`.
"""

from __future__ import annotations

from typing import Any

__all__ = ["LAST", "MAIN", "NOTHING", "NOTHING_NAME", "STAR", "Program", "compile_program"]

NOTHING: Any = type("Nothing", (), {"__repr__": lambda self: "NOTHING", "__doc__": "No value: the end was reached."})()
LAST = "__toolexec_last__"
MAIN = "__toolexec_main__"
STAR = "__toolexec_star__"
NOTHING_NAME = "__toolexec_nothing__"
_TOP_LEVEL_AWAIT = 0x2000  # ast.PyCF_ALLOW_TOP_LEVEL_AWAIT; `ast` takes long to import
_MANY_BRACKETS = 90
_COROUTINE = 0x80  # CO_COROUTINE; `inspect` has it, and takes long to import


class Program:
    """A compiled program: `run(namespace)` gives its value, or a coroutine of it when `is_async`."""

    def __init__(self, body: Any, last: Any = None, *, calls_main: bool = False) -> None:
        """*body* is the code of the statements, *last* that of a final expression; or *body* defines a function."""
        self._body = body
        self._last = last
        self._calls_main = calls_main
        flags = (body.co_flags if body is not None else 0) | (last.co_flags if last is not None else 0)
        self.is_async = bool(flags & _COROUTINE)

    def run(self, namespace: dict[str, Any]) -> Any:
        """Run it in *namespace*; NOTHING when it ended without `return`. The value of a final expression is in the
        namespace, as LAST."""
        namespace[LAST] = NOTHING
        if self._calls_main:
            namespace[NOTHING_NAME] = NOTHING
            namespace[STAR] = _import_star
            exec(self._body, namespace)  # noqa: S102 - to run code is what a sandbox is for
            value = namespace.pop(MAIN)()
            self.is_async: bool = hasattr(value, "__await__")
            return value
        if self.is_async:
            return self._run_async(namespace)
        if self._body is not None:
            exec(self._body, namespace)  # noqa: S102
        if self._last is not None:
            namespace[LAST] = eval(self._last, namespace)  # noqa: S307
        return NOTHING

    async def _run_async(self, namespace: dict[str, Any]) -> Any:
        for code in (self._body, self._last):
            if code is not None:
                value = eval(code, namespace)  # noqa: S307
                if code.co_flags & _COROUTINE:
                    value = await value
                if code is self._last:
                    namespace[LAST] = value
        return NOTHING


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
        last = _compiled(tail.rstrip(), filename, "eval")
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


def _import_star(name: str, namespace: dict[str, Any]) -> None:
    """`from name import *`."""
    import importlib

    module = importlib.import_module(name)
    exported = getattr(module, "__all__", None)
    names = exported if exported is not None else [key for key in vars(module) if not key.startswith("_")]
    namespace.update({key: getattr(module, key) for key in names})
