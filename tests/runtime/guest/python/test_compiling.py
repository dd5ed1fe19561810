"""A program as its author wrote it, made runnable."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest

from toolexec.runtime.guest.python.compiling import _from_text, compile_program
from toolexec.runtime.guest.python.program import LAST, NOTHING, Program
from toolexec.runtime.guest.python.tree import from_tree


def run(program: Program, names: dict[str, Any] | None = None) -> Any:
    """The value of a program by the conventions, with its names in *names*."""
    names = {} if names is None else names
    value = program.run(names)
    if inspect.isawaitable(value):
        value = asyncio.run(_awaited(value))
    for candidate in (value, names.get("__out", NOTHING), names.get(LAST, NOTHING)):
        if candidate is not NOTHING:
            return candidate
    return None


async def _awaited(value: Any) -> Any:
    return await value


PROGRAMS = {
    "": None,
    "# only a comment": None,
    "5": 5,
    "x = 5": None,
    "x = 5\nx": 5,
    "x = 5; x": 5,
    "x = 1;": None,
    "x = 5\n\n# the end\n": None,
    "x = 5\nx  # the value\n\n": 5,
    "(\n1 +\n2\n)": 3,
    "x = (1,\n2)\nx": (1, 2),
    "[\n1,\n]": [1],
    "x = \\\n5": None,
    "y = 1 + \\\n5\ny": 6,
    'x = """\n5\n"""': None,
    'x = """\n5\n"""\nx': "\n5\n",
    '"""\n5\n"""': "\n5\n",
    "'a' \\\n'b'": "ab",
    "if True:\n    5": None,
    "if False:\n    1\nelse:\n    5": None,
    "def f():\n    return 3\nf()": 3,
    "def f():\n    return 3": None,
    "@staticmethod\ndef f(): return 3\nf()": 3,
    "class A:\n    x = 3\nA.x": 3,
    "try:\n    1 / 0\nexcept ZeroDivisionError:\n    x = 7\nx": 7,
    "with open('/dev/null') as f: pass\nf.closed": True,
    "import math as m, os.path\nm.floor(2.5), os.path.sep": (2, "/"),
    "from math import *\nfloor(2.5)": 2,
    "from math import floor as down\ndown(2.5)": 2,
    "from __future__ import annotations\ndef f(x: nowhere): return 1\nf(0)": 1,
    "x: int = 3\nx": 3,
    "x: int\n4": 4,
    "lambda: 3": "function",
    "x = [i for i in range(3)]\nx": [0, 1, 2],
    "(y := 4)\ny": 4,
    "[z := i for i in range(3)]\nz": 2,
    "for i in range(3): pass\ni": 2,
    "while True: break\n1": 1,
    "a, (b, *c) = 1, (2, 3, 4)\n[a, b, c]": [1, 2, [3, 4]],
    "x = {}\nx['a'] = 1\nx": {"a": 1},
    "x = 1\ndel x\n'x' in globals()": False,
    "global g\ng = 3\ng": 3,
    "__out = 3": 3,
    "__out = 3\n5": 3,
    "match [1, 2]:\n    case [a, *rest]:\n        b = a\n[b, rest]": [1, [2]],
    "match {'k': 1, 'm': 2}:\n    case {'k': n, **others}: pass\n[n, others]": [1, {"m": 2}],
    "match 5:\n    case int() as whole: pass\nwhole": 5,
    "x = 3\ndef f():\n    global x\n    x = 4\nf()\nx": 4,
    "f'{1}'": "1",
    "None": None,
    "pass": None,
    "é = 'ü'\né": "ü",
    "import asyncio\nawait asyncio.sleep(0, 5)": 5,
    "import asyncio\nx = await asyncio.sleep(0, 5)\nx + 1": 6,
    "async def f(): return 3\nawait f()": 3,
    "async def f(): return 3\nx = await f()": None,
    "async def g():\n    yield 1\nx = [i async for i in g()]\nx": [1],
    "async def g():\n    yield 1\nasync for i in g(): pass\ni": 1,
}


@pytest.mark.parametrize("source", PROGRAMS)
def test_values(source: str) -> None:
    """Of a final expression, `__out`, or none."""
    value = run(compile_program(source, "<code>"))
    assert (type(value).__name__ if callable(value) else value) == PROGRAMS[source]


@pytest.mark.parametrize("source", [source for source in PROGRAMS if _from_text(source, "<code>") is not None])
def test_both_ways_are_one(source: str) -> None:
    """A program that is compiled from its text does what it does as the body of a function, and leaves the same
    names."""
    quick = _from_text(source, "<code>")
    assert quick is not None
    seen: list[Any] = []
    for program in (quick, from_tree(source, "<code>")):
        names: dict[str, Any] = {}
        value = run(program, names)
        left = {key for key in names if not key.startswith("__") or key == "__out"}
        seen.append((type(value).__name__ if callable(value) else value, left))
    assert seen[0] == seen[1]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("return 5", 5),
        ("return", None),
        ("if True:\n    return 1\nreturn 2", 1),
        ("for i in range(5):\n    if i == 3:\n        return i", 3),
        ("try:\n    return 1\nexcept BaseException:\n    return 2\nfinally:\n    x = 3", 1),
        ("x = 1\nreturn x\n99", 1),
        ("def f():\n    return 1\nreturn f() + 1", 2),
        ("import asyncio\nreturn await asyncio.sleep(0, 5)", 5),
        ("with open('/dev/null') as f:\n    return f.name", "/dev/null"),
        ("from math import *\nreturn floor(pi)", 3),
        ("x: int = 3\nreturn x", 3),
        ("[w := i for i in range(3)]\nreturn w", 2),
        ("class A:\n    def f(self): return 4\nreturn A().f()", 4),
        ("import os.path\nreturn os.sep", "/"),
        ("try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    return str(e)", "division by zero"),
        ("__out = 1\nreturn None", None),
        ("match 3:\n    case x if x > 2: return x", 3),
        ("a = [0]\na[0] = 5\nfor a[0] in [7]: pass\nreturn a", [7]),
    ],
)
def test_return_at_the_top(source: str, expected: Any) -> None:
    """Ends the program with a value, and no `except` catches it."""
    assert run(compile_program(source, "<code>")) == expected


def test_names_stay() -> None:
    """The next program finds them, however they were bound, also where there was a `return`."""
    names: dict[str, Any] = {}
    source = """
import math as m
from os import path
def f(): return x
class C: pass
x = 1
for i in range(2): pass
with open('/dev/null') as handle: pass
try: pass
finally: y = 2
return 0
"""
    run(compile_program(source, "<one>"), names)
    assert run(
        compile_program("x = 5\n[f(), m.pi > 3, path.sep, C.__name__, i, handle.closed, y]", "<two>"), names
    ) == [
        5,
        True,
        "/",
        "C",
        1,
        True,
        2,
    ]


@pytest.mark.parametrize(
    ("source", "line", "column"),
    [
        ("x = 1\nif x\n  y", 2, 5),
        ("x = (1,", 1, 5),
        ("def f(:\n  pass", 1, 7),
        ("x = 1\nreturn 'a", 2, 8),
        ("x = 1\nyield 2", 2, 1),
        ("if True:\n    x = yield", 2, 9),
        ("break", 1, 1),
        ("return 1\nnonlocal x", 2, 1),
    ],
)
def test_bad_syntax_has_the_authors_place(source: str, line: int, column: int) -> None:
    """Whatever way it was compiled."""
    with pytest.raises(SyntaxError) as caught:
        compile_program(source, "<code>")
    assert (caught.value.filename, caught.value.lineno, caught.value.offset) == ("<code>", line, column)


@pytest.mark.parametrize("source", ["x = 1\n1 / 0", "x = 1\nif True:\n    return 1 / 0", "x = [\n1 / 0\n]"])
def test_errors_have_the_authors_line(source: str) -> None:
    """In the traceback."""
    with pytest.raises(ZeroDivisionError) as caught:
        run(compile_program(source, "<code>"))
    lines = [
        frame.lineno for frame in caught.traceback if str(frame.path) == "<code>" or frame.frame.code.path == "<code>"
    ]
    wanted = next(number for number, text in enumerate(source.splitlines(), 1) if "1 / 0" in text)
    assert lines[-1] + 1 == wanted


def test_a_yield_in_a_function_is_allowed() -> None:
    """Only at the top it makes no sense."""
    source = "def f():\n    yield 1\nx = (i for i in f())\nreturn list(x)"
    assert run(compile_program(source, "<code>")) == [1]


def test_nothing_has_a_name() -> None:
    """The name is for debuggers."""
    assert repr(NOTHING) == "NOTHING"
