"""What a program meant by its own names, marks and functions, where no result says it."""

from __future__ import annotations

import pytest

from toolexec import Exec, tool
from toolexec.code.repair.python_tree import tree_of

ROWS: list[dict[str, object]] = [{"id": 1, "name": "ada", "total": 2.5}, {"id": 2, "name": "bob", "total": 4.0}]


@tool("shop:rows", read_only=True)
def _rows(status: str = "open") -> list[dict[str, object]]:
    """Lists rows."""
    return ROWS if status == "open" else []


@tool("shop:scores", read_only=True)
def _scores() -> list[dict[str, float | None]]:
    """Lists scores."""
    return [{"score": 1.5}, {"score": None}]


FAILING = [
    ("python", "rows = tools.shop.rows()\nreturn len(row)", "write `rows` instead of `row`"),
    (
        "python",
        "groups = {}\nfor row in tools.shop.rows():\n    groups[row['name']].append(row['id'])\nreturn groups",
        "write `groups.setdefault(row['name'], [])` instead of `groups[row['name']]`",
    ),
    ("python", "import json\nreturn json.parse('1')", "write `json.loads` instead of `json.parse`"),
    ("python", "import statistics\nreturn statistics.average([1])", "write `statistics.mean` instead of"),
    (
        "python",
        "async for row in tools.shop.rows():\n    print(row)",
        "write `for row in tools.shop.rows()` instead of `async for row in tools.shop.rows()`",
    ),
    (
        "python",
        "async def load():\n    return tools.shop.rows()\n\nrows = load()\nreturn rows[0]",
        "write `rows = await load()` instead of `rows = load()`",
    ),
    ("python", "from math import mean\nreturn mean([1])", "write `from statistics import mean` instead of"),
    ("python", "import pandas as pd\nreturn len(tools.shop.rows())", "leave `import pandas as pd` out"),
    ("python", "rows = tools.shop.rows()\nreturn await len(rows)", "write `len(rows)` instead of `await len(rows)`"),
    ("python", 'for row in tools.shop.rows():\n    print(f"{row["id"]["x"]}")', '`row["id"]` is a number'),
    ("javascript", "const rows = await tools.shop.rows();\nreturn rows.length();", "write `rows.length` instead of"),
    ("javascript", "const all = [1].map((n) => { return n; };\nreturn all;", "a `)` is missing"),
    (
        "javascript",
        "const first = (rows) => rows[0];\nconst row = first(await tools.shop.rows());\nreturn row.title.trim();",
        "write `row.name` instead of `row.title`",
    ),
]


@pytest.fixture
async def ex():
    """An Exec with two tools."""
    async with Exec() as found:
        found.add(_rows)
        found.add(_scores)
        yield found


@pytest.mark.parametrize(("language", "code", "says"), FAILING)
async def test_what_was_meant(ex: Exec, language: str, code: str, says: str) -> None:
    """A message says what is to be written in the place of a name, a mark or a function."""
    result = await ex.execute_code(code, language=language)
    assert says in str(result.error)


async def test_a_refused_call_that_a_program_went_on_after(ex: Exec) -> None:
    """A program whose value has nothing has a note on the call that was refused."""
    code = "try:\n    rows = tools.shop.rows(state='open')\nexcept ToolError:\n    rows = []\nreturn rows"
    result = await ex.execute_code(code)
    assert result.value == []
    assert any("1 of 1 calls were refused" in note and "status" in note for note in result.notes)


async def test_a_function_without_its_return(ex: Exec) -> None:
    """A function in braces that gives nothing is named, where the value has nothing; a right one is not."""
    code = "const rows = await tools.shop.rows();\nreturn rows.map((row) => {});"
    wrong = await ex.execute_code(code.replace("{}", "{ row.id; }"), language="javascript")
    assert any("write `(row) => row.id` instead of" in note for note in wrong.notes)
    right = await ex.execute_code(code.replace("{}", "row.id"), language="javascript")
    assert (right.value, right.notes) == ([1, 2], [])


async def test_a_plain_value_that_is_null_in_some(ex: Exec) -> None:
    """A message writes nothing for a number that is null in some rows: its reader says what stands for it."""
    code = "const rows = await tools.shop.scores();\nreturn rows.map((r) => r.score).map((s) => s.toFixed(1));"
    result = await ex.execute_code(code, language="javascript")
    assert "check it first" in str(result.error)
    assert "instead of" not in str(result.error)


def test_a_program_of_a_newer_python() -> None:
    """A program is read whose f-strings have their own quotes inside; JavaScript is not."""
    tree = tree_of('total = f"{row["id"]}: {f"{row["n"]}"}"\nreturn total')
    assert tree is not None
    assert len(tree.body) == 2
    assert tree_of("const total = 1;") is None
