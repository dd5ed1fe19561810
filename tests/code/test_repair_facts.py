"""What a program that failed, or has nothing for a value, reports of the values that it had."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest
from benchmarks.repair import said

from toolexec import Exec, tool

CALLS: list[str] = []


@tool("lab:list_samples", read_only=True)
def list_samples() -> dict[str, Any]:
    """List samples, a page at a time."""
    CALLS.append("list_samples")
    rows = [{"sample_id": 1, "grams": 2.5, "state": "kept"}, {"sample_id": 2, "grams": None, "state": "spent"}]
    return {"samples": rows, "next_page": "p2"}


@tool("lab:find_owners", read_only=True)
def find_owners(names: list[str]) -> dict[str, Any]:
    """Find the owners of samples."""
    known = {"ana": {"room": "A1"}}
    return {"owners": {n: known[n] for n in names if n in known}, "unknown": [n for n in names if n not in known]}


@tool("lab:get_report", read_only=True)
def get_report(day: str) -> dict[str, Any]:
    """Get the report of a day.

    Args:
        day: As YYYY-MM-DD.
    """
    if day[4:5] != "-":
        raise ValueError("no such day")
    return {"text": base64.b64encode(b'{"ok": true}').decode(), "cost": "12.50"}


@pytest.fixture
async def ex() -> AsyncIterator[Exec]:
    async with Exec() as made:
        for each in (list_samples, find_owners, get_report):
            made.add(each)
        yield made


@pytest.mark.parametrize(
    ("language", "code", "says"),
    [
        (
            "python",
            's = tools.lab.list_samples()["samples"]\ng = [e["grams"] for e in s]\nreturn sum(g)',
            ("None in 1 of 2", 'e["grams"] for e in s'),
        ),
        (
            "python",
            's = tools.lab.list_samples()["samples"]\nlost = [e for e in s if e["state"] == "lost"]\nreturn lost[0]',
            ("`lost` is empty here", '"kept", "spent"'),
        ),
        (
            "python",
            'r = tools.lab.find_owners(names=["ana", "bo"])\nfor n in ["ana", "bo"]:\n    x = r["owners"][n]["room"]',
            ('without "bo"', "`unknown` of lab:find_owners"),
        ),
        ("python", "b = 'a,b'.encode()\nreturn b.split(',')", ("`b` is bytes", "`b.decode()`")),
        (
            "python",
            'import json\nr = tools.lab.get_report(day="2026-01-02")\nreturn json.loads(r["text"])["ok"]',
            ("Base64", 'base64.b64decode(r["text"]).decode()'),
        ),
        ("python", 'return tools.lab.get_report(day="2.1.2026")', ("day (string)", "As YYYY-MM-DD.")),
        ("python", "def main():\n    print(1)\n\nreturn main()", ("`main` has no `return`",)),
        ("python", 'return len(tools.lab.list_samples()["samples"])', ("there is more of lab:list_samples",)),
        (
            "javascript",
            'const r = await tools.lab.list_samples();\nreturn r.samples.find((s) => s.state === "lost").grams;',
            ("found none of 2 items", '"kept", "spent"'),
        ),
        (
            "javascript",
            "const { samples } = await tools.lab.list_samples();\nreturn samples.map((s) => s.grams.toFixed(1));",
            ("`s.grams` is null",),
        ),
        (
            "javascript",
            'const { owners } = await tools.lab.find_owners({ names: ["ana"] });\nreturn owners.length;',
            ("has no `length`", "Object.values(owners)"),
        ),
        ("javascript", "const seen = new Set([1, 2]);\nreturn seen.length;", ("write `seen.size`",)),
        ("javascript", "return new Date(0).strftime('%Y');", ("a Date", "`toISOString`")),
        ("javascript", "return Math.max([1, 2]);", ("write `Math.max(...`",)),
        (
            "javascript",
            'const load = async () => "x";\nconst name = load();\nreturn `${name}!`;',
            ("a promise", "write `= await load(` instead of `= load(`"),
        ),
        (
            "javascript",
            'const r = [await tools.lab.get_report({ day: "2026-01-02" })];\nreturn r.reduce((s, e) => s + e.cost, 0);',
            ("`cost` is text", "Number"),
        ),
        ("javascript", 'const names = ["ana"];\nreturn "ana" in names ? "yes" : "no";', (".includes(",)),
        ("javascript", "async function main() {\n  return 1;\n}\nmain;", ("await main()",)),
    ],
)
async def test_what_a_program_reports(ex: Exec, language: str, code: str, says: tuple[str, ...]) -> None:
    """A message has the very values that a program had in the place where it went wrong."""
    reported = said(await ex.execute_code(code, language=language))
    assert all(text in reported for text in says), reported


async def test_that_no_tool_is_called_again(ex: Exec) -> None:
    """A program that is run once more to report of its reads calls no tool a second time, and prints nothing twice."""
    CALLS.clear()
    code = 'const r = await tools.lab.list_samples();\nconsole.log("once");\nreturn r.rows.length;'
    result = await ex.execute_code(code, language="javascript")
    assert "has no `rows`" in str(result.error)
    assert CALLS == ["list_samples"]
    assert len(result.tool_calls) == 1
    assert result.stdout == "once\n"


@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("python", 'r = tools.lab.find_owners(names=["ana"])\nreturn r["owners"].get("bo", {}).get("room", "none")'),
        ("javascript", 'const { owners } = await tools.lab.find_owners({ names: ["ana"] });\nreturn owners.ana.room;'),
        ("python", 'r = tools.lab.list_samples()\nreturn r["next_page"]'),
    ],
)
async def test_that_right_programs_are_left_alone(ex: Exec, language: str, code: str) -> None:
    """A program that found what it read has no notes."""
    result = await ex.execute_code(code, language=language)
    assert result.error is None
    assert result.notes == []
