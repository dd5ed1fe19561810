"""Comparisons with a text that nothing at hand is, in a program that has nothing for a value: what there is instead."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from toolexec.code.repair.python_program import PythonProgram, program_of
from toolexec.code.repair.shown import shown_keys
from toolexec.code.repair.source import instead
from toolexec.code.tools import Tools
from toolexec.model.json_value import JSONValue

_MOST: Final = 100
_MOST_SHOWN: Final = 8
_LONGEST: Final = 60


def unmet_in_python(code: str, tools: Tools) -> Iterator[str]:
    """Yield what the values are of each read that is asked for a text which none of them is, begins or ends with."""
    program = program_of(code, tools)
    if program is not None:
        yield from unmet_in(program)


def unmet_in(program: PythonProgram) -> Iterator[str]:
    """Yield the same of a program that was read."""
    for of, how, text in islice(program.compared(), _MOST):
        if (values := program.values(of)) and (said := _unmet(program.text(of), how, text, values)):
            yield said
    for item, of, whole in islice(program.memberships(), _MOST):
        yield from _no_member(program, item, of, whole)


def _no_member(program: PythonProgram, item: ast.expr, of: ast.expr, whole: str) -> Iterator[str]:
    """Yield what to write where a text is looked for among objects, or an object among strings."""
    rows = [row for each in (program.literal(of) or program.values(of)) if isinstance(each, list) for row in each]
    items = program.literal(item) or program.values(item)
    strings, objects, new = (rows, items, "") if rows and isinstance(rows[0], str) else (items, rows, "")
    if not strings or not objects or not all(isinstance(each, dict) for each in objects):
        return
    kept = [each for each in objects if isinstance(each, dict)]
    keys = list(
        dict.fromkeys(key for each in kept for key, part in each.items() if isinstance(part, str) and part in strings)
    )
    if len(keys) == 1:
        read = f'[each["{keys[0]}"] for each in {program.text(of)}]'
        new = (
            f"{program.text(item)} in {read}"
            if objects is rows
            else f'{program.text(item)}["{keys[0]}"] in {program.text(of)}'
        )
    about = f"`{whole}` asks for a text among objects with {shown_keys(kept)}"
    yield f"{about}: {instead(whole, new)}" if new else about


def unmet_in_javascript(code: str, tools: Tools) -> Iterator[str]:
    """Yield what the values are of each read that is asked to be a text which none of them is."""
    from toolexec.code.repair.javascript_program import JavaScriptProgram

    for of, values, text in islice(JavaScriptProgram(code, tools).compared(), _MOST):
        if said := _unmet(of, "==", text, values):
            yield said


def _unmet(of: str, how: str, text: str, values: Sequence[JSONValue]) -> str:
    if len(of) > _LONGEST or len(text) > _LONGEST:
        return ""
    objects = [each for each in values if isinstance(each, dict)]
    if len(objects) == len(values) and how == "==":
        return f"`{of}` is never {json.dumps(text)}: it is an object with {shown_keys(objects)}"
    strings = [each for each in values if isinstance(each, str)]
    if (
        not strings
        or len(strings) != sum(each is not None for each in values)
        or any(_meets(each, how, text) for each in strings)
    ):
        return ""
    asked = {"startswith": "begins with ", "endswith": "ends with "}.get(how, "is ")
    return f"no `{of}` {asked}{json.dumps(text)}, there {_shown(strings)}"


def _meets(value: str, how: str, text: str) -> bool:
    return value == text if how == "==" else value.startswith(text) if how == "startswith" else value.endswith(text)


def _shown(strings: Iterable[str]) -> str:
    """Return the strings that there are, each once: some of many, and of long ones their beginnings."""
    known = list(dict.fromkeys(each if len(each) <= _LONGEST else f"{each[:_LONGEST]}..." for each in strings))
    shown = ", ".join(json.dumps(each, ensure_ascii=False) for each in known[:_MOST_SHOWN])
    return f"{'is' if len(known) == 1 else 'are'} {shown}{' and others' if len(known) > _MOST_SHOWN else ''}"
