"""What a program that failed should have written, found by the shape of a result or by reading the program again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from benchmarks.repair import fixed, said

from toolexec import Exec, tool


@tool("lab:read_sample", read_only=True)
def _read_sample() -> dict[str, Any]:
    """Reads a sample."""
    return {
        "sample": {"taken": {"place": {"label": "pond"}}, "mass_grams": 12},
        "series": [[1, "a", True], [2, "b", False]],
    }


@tool("lab:list_runs", read_only=True)
def _list_runs() -> dict[str, Any]:
    """Lists runs as a table."""
    return {"columns": ["run_id", "grade"], "rows": [[7, "good"], [8, "poor"]]}


@tool("lab:read_log", read_only=True)
def _read_log() -> str:
    """Reads the log."""
    return "a,1\nb,2\n"


@tool("lab:count_all", read_only=True)
def _count_all() -> dict[str, int]:
    """Counts by kind."""
    return {"a": 3, "b": 4}


@tool("lab:read_day", read_only=True)
def _read_day() -> str:
    """Reads a day."""
    return "2026-01-01"


@tool("lab:order", read_only=True)
def _order(sku: str, day: str) -> str:
    """Orders a thing."""
    return f"{sku} {day}"


@pytest.fixture
async def ex() -> AsyncIterator[Exec]:
    """An instance with the tools of a laboratory."""
    async with Exec() as ex:
        for each in (_read_sample, _list_runs, _read_log, _count_all, _read_day, _order):
            ex.add(each)
        yield ex


FIXED = [
    ("python", 's = tools.lab.read_sample()\nreturn s["place"]["label"]', "pond"),
    ("python", 's = tools.lab.read_sample()\nreturn s["sample"]["mass"]', 12),
    ("python", 's = tools.lab.read_sample()\nreturn s["sample"]["taken"]["location"]["label"]', "pond"),
    ("javascript", "const s = await tools.lab.read_sample();\nreturn s.place.label;", "pond"),
    ("python", 't = tools.lab.list_runs()\nreturn [row["grade"] for row in t["rows"]]', ["good", "poor"]),
    (
        "javascript",
        "const t = await tools.lab.list_runs();\nreturn t.rows.map((row) => row.runId.toFixed(0));",
        ["7", "8"],
    ),
    ("python", 'text = tools.lab.read_log()\nreturn sum(int(line.split(",")[1]) for line in text.split("\\n"))', 3),
    ("python", 't = tools.lab.list_runs()\nreturn [row[0] for row in t["records"]]', [7, 8]),
    ("python", 'return [a for a, b in tools.lab.read_sample()["series"]]', [1, 2]),
    ("python", "return sum(tools.lab.count_all())", 7),
    ("python", "from datetime import date\nd = tools.lab.read_day()\nreturn (date(2026, 1, 3) - d).days", 2),
    ("python", 'return tools.lab.order(item="x", date="2026-01-01")', "x 2026-01-01"),
    ("javascript", "const { label } = await tools.lab.read_sample();\nreturn label.trim();", "pond"),
    ("javascript", "const words = ['a', 'b'];\nreturn words.last();", "b"),
    ("python", 's = tools.lab.read_sample()\nreturn s["sample"]["mass_grams]', 12),
    ("python", 't = tools.lab.list_runs()\nreturn len(t["rows"]', 2),
    ("python", 't = tools.lab.list_runs()\nreturn len(t["rows"]))', 2),
    ("python", "n = 2\n  m = 3\nreturn n + m", 5),
    ("python", "n = 2\nif n = 2:\n    n = 3\nreturn n", 3),
    ("python", 'words = ["a"]\nwords.apend("b")\nreturn words', ["a", "b"]),
    ("javascript", "const n = 1;\nn = n + 1;\nreturn n;", 2),
    ("javascript", "const none = [];\nreturn none.reduce((a, b) => a + b);", 0),
    ("javascript", "const numbers = [1, 2];\nreturn numbers.sum();", 3),
    ("javascript", 'const word = "Ab";\nreturn word.tolowercase();', "ab"),
]
"""Programs that are wrong, and the value that each has when it is changed as its messages say."""


@pytest.mark.parametrize(("language", "code", "value"), FIXED)
async def test_what_a_message_fixes(ex: Exec, language: str, code: str, value: object) -> None:
    """A program that failed has the value that was meant when it is changed as its messages say, and in no other way."""
    result = await ex.execute_code(code, language=language)
    assert result.error is not None
    for _ in range(3):
        code, language = fixed(code, language, said(result))
        result = await ex.execute_code(code, language=language)
        if result.error is None:
            break
    assert result.error is None, (code, said(result))
    assert result.value == value, code


@pytest.mark.parametrize(
    ("code", "not_said"),
    [
        ('tools.lab.list_runs()["rows"][0]["weight"]', "instead of"),
        ('tools.lab.read_sample()["sample"]["colour"]', "instead of"),
        ("value = (1 2]]", "instead of"),
        ("[1].frobnicate()", "instead of"),
    ],
)
async def test_what_nothing_is_near_to(ex: Exec, code: str, not_said: str) -> None:
    """Nothing is put in the place of a name, or of a line, that nothing known is near to."""
    result = await ex.execute_code(code)
    assert result.error is not None
    assert not_said not in said(result)
