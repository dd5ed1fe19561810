"""Awaits of a Python program that are too many or missing, as what to write in their place."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

from toolexec.code.repair.failure import Failure
from toolexec.code.repair.python_program import PythonProgram, program_of
from toolexec.code.repair.source import instead
from toolexec.code.tools import Tools

_NO_AWAITABLE: Final = re.compile(
    r"TypeError: (?:'(?!_Tool)\w+' object can't be awaited|object (?!_Tool)\w+ can't be used in 'await')"
)
_NO_ASYNC_FOR: Final = re.compile(
    r"TypeError: 'async for' requires an object with __aiter__ method, got (?:list|dict|Deferred)\b"
)
_ASYNC_FOR: Final = re.compile(r"\basync +for\b[^:\n]*")
_MAKING: Final = frozenset({"asyncio.gather", "asyncio.create_task", "asyncio.ensure_future", "asyncio.to_thread"})
_OF_VALUES: Final = frozenset({"TypeError", "AttributeError", "ValueError", "RuntimeError"})


def about_python_awaits(failure: Failure, tools: Tools | None) -> str:
    """Return what to write instead; "" where no await is too many or missing."""
    if failure.language != "python" or failure.kind not in _OF_VALUES or tools is None:
        return ""
    program = program_of(failure.code, tools)
    if program is None:
        return ""
    if _NO_ASYNC_FOR.match(failure.message) and (loop := _ASYNC_FOR.search(failure.source)):
        return f"what is in a list is there already: {instead(loop[0], loop[0].partition(' ')[2].lstrip())}"
    if _NO_AWAITABLE.match(failure.message):
        return next(_idle(program, failure.line), "")
    return next(_missing(program, failure), "") if _MAKING_WORD.search(failure.code) else ""


_MAKING_WORD: Final = re.compile("|".join(map(re.escape, _MAKING)))


def _idle(program: PythonProgram, line: int) -> Iterator[str]:
    """Yield what to write for what is awaited, and is a value already: calls of tools may be."""
    awaits = [node for node in program.nodes(line) if isinstance(node, ast.Await)]
    for node in awaits:
        value = program.source(node.value)
        if len(awaits) == 1 or not value.startswith("tools."):
            yield f"`{value}` is a value, and nothing to wait for: {instead(program.source(node), value)}"


def _missing(program: PythonProgram, failure: Failure) -> Iterator[str]:
    """Yield what to write for calls that are gathered, and whose values are read before they are awaited."""
    for node in program.nodes(failure.line):
        for bound in program.bound(node) if isinstance(node, ast.Name) else [node]:
            if isinstance(bound, ast.Call) and ast.unparse(bound.func) in _MAKING and not program.is_awaited(bound):
                call = program.source(bound)
                yield f"these are calls still, and no values: {instead(call, f'await {call}')}"
