"""What is understood in a program beside its code: values without names, keys as attributes, what is printed."""

from __future__ import annotations

from typing import Any

import pytest

from toolexec import Exec, tool
from toolexec.code.repair.meant import ATTRIBUTES, PRINTED, rules_of, without_idle_awaits
from toolexec.code.tools import Tools
from toolexec.code.types import CodeResult


@tool("hr:get_person")
def get_person(person_id: int, full: bool = False) -> dict[str, Any]:
    """Reads a person."""
    return {"id": person_id, "name": "Ida", "team": {"lead": "Jon"}, "items": [1, 2]}


@tool("hr:rename")
def rename(person_id: int, name: str) -> str:
    """Renames a person."""
    return f"{person_id}: {name}"


@tool("hr:count", read_only=True)
def count(team: str, since: int, minimum: int = 0) -> int:
    """Counts."""
    return len(team) + since + minimum


async def run(code: str, language: str = "python") -> CodeResult:
    """What comes of a program with these tools."""
    async with Exec() as ex:
        for each in (get_person, rename, count):
            ex.add(each)
        return await ex.execute_code(code, language=language)


RUN: list[tuple[str, Any, str]] = [
    ("tools.hr.get_person(7)['name']", "Ida", "values without one were passed as `person_id`"),
    ("hr.get_person(7, full=True)['id']", 7, "`person_id`"),
    ("get_person(7)['id']", 7, "`person_id`"),
    ("p = tools.hr.get_person\nargs = {'person_id': 7}\ntools.hr.get_person(args)['id']", 7, ""),
    ("tools.hr.count('ab', 3)", 5, "`team`, `since`"),
    ("tools.hr.get_person(person_id=7).team.lead", "Jon", '`.lead` was read as `["lead"]`'),
    ("p = await tools.hr.get_person(person_id=7)\nreturn p.name", "Ida", '`["name"]`'),
    ("import asyncio\ncalls = [tools.hr.count('a', n) for n in (1, 2)]\nawait asyncio.gather(calls)", [2, 3], "gather"),
    ("import json\njson.loads(tools.hr.get_person(person_id=7))['name']", "Ida", "json.loads"),
    (
        "from json import loads\nloads('[1]') + loads(tools.hr.get_person(person_id=7))['items']",
        [1, 1, 2],
        "json.loads",
    ),
    ("def f():\n    return await tools.hr.count(team='a', since=1)\nf()", 2, ""),
    ("sorted([2, 1], key=lambda n: await hr.count(team='a', since=n))", [1, 2], ""),
    ("names = [tools.hr.get_person(n)['name'] for n in (1, 2)]\nprint(names)", ["Ida", "Ida"], "printed"),
    ("import json\ndef main():\n    print(json.dumps({'a': 1}, indent=2))\nmain()", {"a": 1}, "printed"),
    ("full = true\ntools.hr.get_person(person_id=7, full=full)['id'] if null is None else 0", 7, ""),
]


@pytest.mark.parametrize(("code", "value", "note"), RUN)
async def test_programs(code: str, value: Any, note: str) -> None:
    """Programs run, and the notes say what was understood."""
    result = await run(code)
    assert result.value == value, result.error
    assert note in " ".join(result.notes)
    assert bool(note) is bool(result.notes)


async def test_javascript() -> None:
    """Values without names are understood in JavaScript, too."""
    result = await run("return (await tools.hr.count('ab', 3)) + (await tools.hr.get_person(7)).id", "javascript")
    assert result.value == 12, result.error
    assert len(result.notes) == 2


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("tools.hr.rename(7, 'Kay')", "write `tools.hr.rename(person_id=7, name='Kay')`"),
        ("tools.hr.count('a', 1, 2, 3)", "keyword arguments"),
        ("tools.hr.count('a', team='b')", "keyword arguments"),
        ("tools.hr.get_person(person_id=7).nome", "no attribute 'nome'"),
        ("import json\njson.loads('{')", "JSONDecodeError"),
        ("class P:\n    pass\nP().name", "no attribute 'name'"),
    ],
)
async def test_what_is_not_certain(code: str, said: str) -> None:
    """The order of arguments of a tool that changes something, and whatever no result has, stay errors."""
    assert said in str((await run(code)).error)


@pytest.mark.parametrize(
    "code",
    [
        "print('a')",
        "print(1)",
        "print(f'{1}')",
        "print(1)\nprint(2)",
        "for n in (1, 2):\n    print(n)",
        "print()",
        "print(object())",
        "import sys\nprint([1], file=sys.stderr)",
    ],
)
async def test_what_is_printed_and_no_value(code: str) -> None:
    """Words, several things, and what can be no value are printed only."""
    result = await run(code)
    assert (result.value, result.notes, result.error) == (None, [], None)


async def test_a_pool_of_threads_works_in_turn() -> None:
    """A pool does what a program gives it, and failures are those of their futures."""
    code = """
from concurrent.futures import ThreadPoolExecutor, as_completed
with ThreadPoolExecutor(max_workers=4) as pool:
    counts = list(pool.map(lambda n: tools.hr.count("a", n), [1, 2]))
    failed = pool.submit(lambda: 1 / 0)
    done = [each.result() for each in as_completed([pool.submit(tools.hr.count, team="a", since=5)])]
try:
    pool.submit(print)
except RuntimeError as error:
    closed = str(error)
return counts, done, type(failed.exception()).__name__, closed
"""
    result = await run(code)
    expected = [[2, 3], [6], "ZeroDivisionError", "cannot schedule new futures after shutdown"]
    assert result.value == expected, result.error
    assert "in turn" in " ".join(result.notes)


class TestRules:
    """What travels with a program."""

    @pytest.mark.parametrize(
        ("code", "rules"),
        [
            ("x = tools.hr.get_person(person_id=1)\nx['a']", {"hr:get_person(": "person_id"}),
            ("tools.hr.rename(1, 'a')", {}),
            ("tools.hr.get_person()", {}),
            ("print([1])\nreturn 2", {}),
            ("import os\nos.sep", {}),
            ("class P:\n    n: int\np = P()\np.n", {}),
            ("x.total", {ATTRIBUTES: "keys"}),
            ("print(x)", {PRINTED: "value"}),
        ],
    )
    async def test_only_what_is_of_use(self, code: str, rules: dict[str, str]) -> None:
        """Nothing is said to a sandbox that makes no difference to the program."""
        async with Exec() as ex:
            ex.add(get_person)
            ex.add(rename)
            assert rules_of(code, "python", Tools(ex.index, ex.docs, ex.runner), {}) == rules

    def test_awaits_of_others_stay(self) -> None:
        """Only calls of tools give their result without `await`."""
        code = "async def g():\n    await tools.a.b()\ndef f(ä):\n    await g()\n    return await tools.a.b(await x)"
        assert without_idle_awaits(code, {}) == code.replace("return await", "return      ")
