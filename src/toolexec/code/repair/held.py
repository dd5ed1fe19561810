"""What the values on the line that failed are, by the results of the calls that the run has made.

Where no other advice has a text to write, this says what each read on the line has had: its kind with its keys or an
example, where it is empty or None, and what makes of it what is usually meant, as `json.loads` of JSON as text.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from toolexec import errors
from toolexec.code.repair.failure import Failure
from toolexec.code.repair.javascript_program import JavaScriptProgram
from toolexec.code.repair.python_program import PythonProgram, program_of
from toolexec.code.repair.shown import kind_of, shown_value, text_of_base64
from toolexec.code.repair.times import time_as_text, time_of_number
from toolexec.code.tools import Tools
from toolexec.model.json_value import JSONValue

_WARNING: Final = re.compile(r"check it first| here$")
_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?")
_OTHER_CAUSES: Final = frozenset({*errors.__all__, "SyntaxError", "MemoryError", "RecursionError", "SystemExit"}) - {
    "InputValidationError"
}
"""What no value on a line is the cause of: a limit, a policy, a backend."""
_MOST_NODES: Final = 300
_MOST_SHOWN: Final = 3
_LONGEST: Final = 60


def about_held(failure: Failure, tools: Tools, said: str = "") -> str:
    """Return what the reads on the line of *failure* have had, but for those that *said* has, and for names of which
    the program itself has reported; "" where that is not known."""
    if failure.kind in _OTHER_CAUSES or not failure.line:
        return ""
    is_python = failure.language == "python"
    reported = (
        {each["name"] for each in failure.held if isinstance(each, dict)} if isinstance(failure.held, list) else ()
    )
    if is_python:
        read = _in_python(failure, tools)
    elif failure.language == "javascript":
        read = JavaScriptProgram(failure.code, tools).read_on(failure.line)
    else:
        return ""
    held: dict[str, str] = {}
    for text, values in read:
        if is_python and _root(text) in reported and not text.endswith(")"):
            continue
        is_said = f"`{text}` is" in said or f"`{text}` has" in said
        about = described(text, values, is_python=is_python)
        if len(text) <= _LONGEST and (not is_said or _adds(about, failure.kind)):
            held.setdefault(text, about)
    ordered = sorted(held, key=lambda text: (_WARNING.search(held[text]) is None, -held[text].count("`"), -len(text)))
    return "; ".join(held[text] for text in ordered[:_MOST_SHOWN])


def _root(text: str) -> str:
    return re.split(r"\W", text, maxsplit=1)[0]


def _adds(about: str, kind: str) -> bool:
    """Return whether *about* helps where these values were described: their keys do where one of them is missing."""
    return _WARNING.search(about) is not None if kind == "KeyError" else about.count("`") > 2


def _in_python(failure: Failure, tools: Tools) -> Iterator[tuple[str, list[JSONValue]]]:
    """Yield the longest reads on the line whose values are known."""
    program = program_of(failure.code, tools)
    if program is None:
        return
    within: set[int] = set()
    known: list[tuple[ast.expr, list[JSONValue]]] = []
    for node in program.nodes(failure.line)[:_MOST_NODES]:
        if not isinstance(node, ast.Name | ast.Attribute | ast.Subscript | ast.Call) or _hides(program, node):
            continue
        if values := program.values(node):
            known.append((node, values))
            within.update(id(part) for part in ast.walk(node) if part is not node)
    for node, values in known:
        if id(node) not in within:
            yield program.text(node), values


def _hides(program: PythonProgram, node: ast.expr) -> bool:
    """Return whether a read gives one of the items of what may have none: then that is what is said."""
    if isinstance(node, ast.Subscript):
        return [] in program.values(node.value)
    called = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
    return called in ("max", "min", "next")


def described(text: str, values: Sequence[JSONValue], *, is_python: bool) -> str:
    """Return what these values of a read are."""
    filled = [each for each in values if each not in (None, "", [], {})]
    count, empty = len(values), len(values) - len(filled) - sum(each is None for each in values)
    if not filled:
        return f"`{text}` is {'empty' if empty else 'None' if is_python else 'null'} here"
    said = [kind_of(filled[0])]
    if meant := _meant(text, filled, is_python=is_python):
        said.append(meant)
    if count - len(filled) - empty:
        said.append(f"{'None' if is_python else 'null'} in {count - len(filled) - empty} of {count}: check it first")
    if empty:
        said.append(f"empty in {empty} of {count}: check it first")
    return f"`{text}` is {', '.join(said)}"


def _meant(text: str, values: Sequence[JSONValue], *, is_python: bool) -> str:
    """Return what makes of such values what is usually meant."""
    first = values[0]
    if type(first) is int:
        made = time_of_number(text, first, is_python=is_python)
        return f"the time `{made}` if it is one" if made else ""
    if isinstance(first, dict):
        kinds = {type(part) for part in first.values()}
        pairs = f"{text}.items()" if is_python else f"Object.entries({text})"
        return f"`{pairs}` gives its keys with what they have" if len(kinds) == 1 and len(first) > 1 else ""
    if isinstance(first, list) and first and isinstance(first[0], list):
        return f"read each by place, as `each[{min(1, max(len(first[0]) - 1, 0))}]`"
    return _of_text(text, values, first, is_python=is_python) if isinstance(first, str) else ""


def _of_text(text: str, values: Iterable[JSONValue], first: str, *, is_python: bool) -> str:
    if decoded := text_of_base64(first):
        made = f"base64.b64decode({text}).decode()" if is_python else f"atob({text})"
        return f"Base64 of {shown_value(decoded)}, which `{made}` gives"
    if first.lstrip()[:1] in ("{", "["):
        return f"JSON that `{'json.loads' if is_python else 'JSON.parse'}({text})` reads"
    if time_as_text(values):
        return f"a time that `{'datetime.fromisoformat' if is_python else 'new Date'}({text})` reads"
    if _NUMBER.fullmatch(first):
        return f"a number that `{'float' if is_python else 'Number'}({text})` reads"
    if "\n" in first:
        lines = f"{text}.splitlines()" if is_python else f'{text}.trim().split("\\n")'
        return f"lines that `{lines}` gives"
    return ""
