"""What a program that wrote another word for an argument, a value or a key should have written."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Literal

import pytest
from benchmarks.repair import fixed, said

from toolexec import Exec, tool


@tool("log:list_entries", read_only=True)
def _list_entries(query: str, page: int = 1, per_page: int = 2) -> list[str]:
    """Lists entries, a page at a time."""
    return [query, str(page), str(per_page)]


@tool("log:list_days", read_only=True)
def _list_days(on: str | None = None) -> list[dict[str, Any]]:
    """Lists days, or one."""
    return [{"id": 1, "date": on or "all", "by": {"name": {"given": "Ada", "family": "Ito"}}, "seen": {"ts": 1_000}}]


@tool("log:add", read_only=True)
def _add(
    text: str,
    level: Literal["info", "warning", "not_sent"] = "info",
    step: Literal["hour", "day"] = "hour",
) -> str:
    """Adds an entry."""
    return f"{text} {level} {step}"


@tool("log:mark", read_only=True)
def _mark(place: str, colour: str | None = None) -> str:
    """Marks a place."""
    return f"{place} {colour}"


@tool("log:read_writer", read_only=True)
def _read_writer(writer_id: int) -> dict[str, Any]:
    """Reads an author."""
    return {"id": writer_id, "used": [{"at": 1, "value": 7}], "words": ["x"]}


@tool("log-book:read-page", read_only=True)
def _read_page(number: int) -> str:
    """Reads a page."""
    return f"page {number}"


@pytest.fixture
async def ex() -> AsyncIterator[Exec]:
    """An instance with the tools of a log."""
    async with Exec() as ex:
        for each in (_list_entries, _list_days, _add, _mark, _read_page, _read_writer):
            ex.add(each)
        yield ex


async def repaired(ex: Exec, language: str, code: str) -> Any:
    """Return the value of a program once it is changed as its messages say, at most three times."""
    result = await ex.execute_code(code, language=language)
    for _ in range(3):
        if not said(result):
            break
        code, language = fixed(code, language, said(result))
        result = await ex.execute_code(code, language=language)
    assert result.error is None, (code, result.error)
    return result.value


FIXED = [
    ("python", 'return tools.log.list_entries(query="a", page_size=9)', ["a", "1", "9"]),
    ("javascript", 'return (await tools.log.list_days({ date: "2026-01-02" })).map((d) => d.date);', ["2026-01-02"]),
    ("python", 'return tools.log.list_days(date="2026-01-02")[0]["date"]', "2026-01-02"),
    ("javascript", "const days = await tools.log.list_days();\nreturn days[0].by.first_name.trim();", "Ada"),
    ("python", 'd = tools.log.list_days()[0]\nreturn d["by"]["last_name"]', "Ito"),
    ("python", 'd = tools.log.list_days()[0]\nreturn d["seen"]["timestamp"]', 1_000),
    ("javascript", "const d = await tools.log.list_days();\nreturn new Date(d[0].seen.timestamp).getTime();", 1_000),
    ("javascript", "const r = await tools.log.list_days();\nreturn JSON.parse(r.content[0].text)[0].id;", 1),
    ("javascript", "const a = ['x'];\na.extend(['y']);\nreturn a;", ["x", "y"]),
    ("javascript", "const a = ['x', 'y'];\nreturn a.contains('y');", True),
    ("javascript", "const axios = require('axios');\nreturn 1;", 1),
    (
        "typescript",
        'enum Step { Day = "daily" }\nreturn await tools.log.add({ text: "a", step: Step.Day });',
        "a info day",
    ),
    ("python", 'return tools["log-book"].read_page(number=2)', "page 2"),
    ("javascript", "const a = [{ n: 1 }, { n: 2 }];\nreturn sum(each.n for each in a);", 3),
    ("javascript", "const a = [1, 2];\nreturn [n * 2 for n in a if n > 1];", [4]),
    ("javascript", "const a = [1, 2];\nreturn any(n > 1 for n in a);", True),
    ("javascript", "const a = [1, 2];\nreturn max(n for n in a);", 2),
    ("python", 'return tools.log.read_author(4)["id"]', 4),
    ("python", 'return tools.log.list_days().execute()[0]["id"]', 1),
    ("python", 'return tools.log.read_writer(writer_id=4).execute()["id"]', 4),
    ("python", 'w = tools.log.read_writer(writer_id=4)\nreturn [a["word"] for a in w["words"]]', ["x"]),
    (
        "javascript",
        "const w = await tools.log.read_writer({ writer_id: 4 });\nreturn w.words.map((a) => a.word);",
        ["x"],
    ),
    ("python", 'return tools.log.read_author(writer_id=4)["id"]', 4),
    ("javascript", "return (await tools.log.read_author({ writer_id: 4 })).id;", 4),
    ("python", 'return [each["kwh"] for each in tools.log.read_writer(writer_id=4)["used"]]', [7]),
    ("python", 'return tools.log.add(text="a", level="warn", step="daily")', "a warning day"),
    ("javascript", 'return await tools.log.add({ text: "a", level: "WARN", step: "1d" });', "a warning day"),
]


@pytest.mark.parametrize(("language", "code", "value"), FIXED)
async def test_another_word_is_changed(ex: Exec, language: str, code: str, value: Any) -> None:
    """A program with another word for an argument, a value or a key has its value once it is changed."""
    assert await repaired(ex, language, code) == value


UNSURE = [
    ("return tools.log.mark(place='a', shade='red')", "leave `"),
    ("return tools.log.read_owner(writer_id=4)", " instead of "),
    ("return tools.log.find_author(writer_id=4)", " instead of "),
    ("return tools.log.add(text='a', level='not')", " instead of "),
    ("return tools.log.list_days()[0]['by']['user_name']", '["name"]` instead of '),
]


@pytest.mark.parametrize(("code", "unsaid"), UNSURE)
async def test_what_may_be_wrong_is_not_said(ex: Exec, code: str, unsaid: str) -> None:
    """An argument that may be meant for another is not left out, and no value or part is taken for a part of it."""
    result = await ex.execute_code(code)
    assert result.error is not None
    assert unsaid not in str(result.error)


async def test_an_item_is_found_by_what_it_has(ex: Exec) -> None:
    """A list that is read by what one of its items has is not taken for that item."""
    result = await ex.execute_code('days = tools.log.list_days()\nreturn days["all"]["id"]')
    assert '`date` of one of its items is "all"' in str(result.error)
    assert " instead of " not in str(result.error)
