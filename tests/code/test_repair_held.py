"""What a line that failed was given, arguments of another kind, and what there is in the place of a machine's parts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from benchmarks.repair import fixed, said

from toolexec import Exec, tool


@dataclass(frozen=True)
class Place:
    """A place on a map."""

    x: float
    y: float


ROWS: list[dict[str, Any]] = [
    {"row_id": 1, "at": 1_767_225_600_000, "tags": [], "note": None, "place": {"x": 1.0, "y": 2.0}},
    {"row_id": 2, "at": 1_767_312_000_000, "tags": ["q"], "note": "b: 2", "place": {"x": 3.0, "y": 4.0}},
]


@tool("log:list_rows", read_only=True)
def list_rows() -> list[dict[str, Any]]:
    """Lists rows."""
    return ROWS


@tool("log:get_row", read_only=True)
def get_row(row_id: int) -> dict[str, Any]:
    """Reads a row."""
    return ROWS[row_id - 1]


@tool("log:mark", read_only=True)
def mark(place: Place, labels: list[str] | None = None) -> str:
    """Marks a place."""
    return f"{place.x} {labels}"


@tool("store:read_file", read_only=True)
def read_file(path: str) -> str:
    """Reads a file."""
    return "a: 1\nb: 2\n"


@tool("quotes-api:get-quote", read_only=True)
def get_quote(symbol: str) -> float:
    """Reads a price."""
    return 1.5


@pytest.fixture
async def ex() -> AsyncIterator[Exec]:
    """An Exec with the tools of a log."""
    async with Exec() as ex:
        for each in (list_rows, get_row, mark, read_file, get_quote):
            ex.add(each)
        yield ex


PYTHON = "rows = tools.log.list_rows()\n"
SCRIPT = "const rows = await tools.log.list_rows();\n"
REPAIRED: list[tuple[str, str, Any]] = [
    ("python", PYTHON + "return tools.log.get_row(row_id=rows[1])['row_id']", 2),
    ("python", PYTHON + "return tools.log.mark(place=rows[0])", "1.0 None"),
    ("python", "p = (5.0, 6.0)\nreturn tools.log.mark(place=p)", "5.0 None"),
    ("python", "return tools.log.mark(spot={'x': 1.0, 'y': 2.0}, note=['a'])", "1.0 None"),
    (
        "python",
        "from datetime import datetime\n" + PYTHON + "return datetime.fromisoformat(rows[0]['at']).year",
        2026,
    ),
    (
        "python",
        "from datetime import datetime\n" + PYTHON + "return datetime.fromtimestamp(rows[0]['at']).year",
        2026,
    ),
    ("python", "import collections\nreturn Counter('aab')['a']", 2),
    ("python", "return Counter('aab')['a']", 2),
    ("javascript", SCRIPT + "return (await tools.log.get_row({ row_id: rows[1] })).row_id;", 2),
    ("javascript", SCRIPT + "return rows.map((row) => row.at.getFullYear());", [2026, 2026]),
    ("javascript", SCRIPT + "return rows[rows.length].row_id;", 2),
    (
        "javascript",
        SCRIPT + "const found = [];\nfor (const [key, value] of rows[0].place) found.push(key, value);\nreturn found;",
        ["x", 1, "y", 2],
    ),
]


@pytest.mark.parametrize(("language", "code", "value"), REPAIRED)
async def test_what_a_message_repairs(ex: Exec, language: str, code: str, value: Any) -> None:
    """A program fails, or has another value, and what its message says to write fixes it."""
    result = await ex.execute_code(code, language=language)
    assert result.error is not None
    for _ in range(4):
        code, language = fixed(code, language, said(result))
        result = await ex.execute_code(code, language=language)
        if result.error is None:
            break
    assert result.error is None, result.error
    assert result.value == value


EXPLAINED: list[tuple[str, str, tuple[str, ...]]] = [
    ("python", PYTHON + "return [max(row['tags']) for row in rows]", ("`row['tags']`", "empty in 1 of 2")),
    ("python", PYTHON + "return [row['at'][:4] for row in rows]", ("`row['at']`", "/ 1000, timezone.utc)")),
    (
        "python",
        PYTHON + "out = []\nfor row in rows:\n    for key, value in row['place'].items():\n"
        "        out.append(value.upper())\nreturn out",
        ("`value` is a number, such as 1.0",),
    ),
    (
        "python",
        "found = []\nfor row in tools.log.list_rows():\n    found.append(row)\nreturn [len(row['note']) for row in found]",
        ("`row['note']` is text", "None in 1 of 2"),
    ),
    ("python", PYTHON + "return [a for a, b in rows[-1]['place']]", ("`rows[-1]['place'].items()`",)),
    (
        "python",
        "text = tools.store.read_file(path='a')\nreturn [int(part) for part in text.split(': ')]",
        ("`text.split(': ')` is a list",),
    ),
    ("python", "import os\nreturn os.environ['TOKEN']", ("has no `TOKEN`", "`env`")),
    ("python", "return open('a.csv').read()", ("`tools.store.read_file(path)` may do it",)),
    ("python", "import requests\nreturn requests.get('https://quotes.example.com/A')", ("tools.quotes_api.get_quote",)),
    ("javascript", "const fs = require('fs');\nreturn fs.readFileSync('a');", ("`tools.store.read_file(path)`",)),
    (
        "javascript",
        SCRIPT + "return rows.map((row) => row.tags.reduce((a, b) => a + b));",
        ("`row.tags`", "empty in 1 of 2"),
    ),
    (
        "javascript",
        SCRIPT + "return rows.map(({ place, name }) => name.trim());",
        ("`rows` is a list of objects with",),
    ),
]


@pytest.mark.parametrize(("language", "code", "says"), EXPLAINED)
async def test_what_a_message_explains(ex: Exec, language: str, code: str, says: tuple[str, ...]) -> None:
    """A message says what the values on its line are, or which tool there is, where no text is to be put in the place of
    another."""
    result = await ex.execute_code(code, language=language)
    assert result.error is not None
    assert all(each in str(result.error) for each in says), result.error


async def test_a_tool_that_is_not_allowed(ex: Exec) -> None:
    """A tool that a program may not call is not named as one that may do what it wanted."""
    result = await ex.execute_code("return open('a.csv').read()", allowed_tools=["log:*"])
    assert "read_file" not in str(result.error)
