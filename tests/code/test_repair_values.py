"""What the operands of a line were, how a refused tool is called, and names of the other language, as what to write."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from benchmarks.repair import fixed, said

from toolexec import Exec, tool
from toolexec.code.repair.advice import advise
from toolexec.code.repair.failure import Failure


@tool("store:list_boxes", read_only=True)
def list_boxes() -> list[dict[str, Any]]:
    """Lists boxes."""
    return [
        {"id": 1, "weight": "2.5", "packed": "2026-01-02T03:00:00", "size": {"height": 4, "unit": "cm"}, "owner": None},
        {"id": 2, "weight": "1.5", "packed": "2026-01-02T05:00:00", "size": {"unit": "cm"}, "owner": {"name": "Ida"}},
    ]


@tool("store:get_team", read_only=True)
def get_team() -> dict[str, Any]:
    """Reads a team."""
    return {"member_ids": [7], "hours": {"mon": 3, "tue": 5}, "places": [["A", "B"]]}


@tool("store:get_member", read_only=True)
def get_member(member_id: int) -> dict[str, Any]:
    """Reads a member."""
    return {"name": "Ida", "id": member_id}


@tool("store:move_box")
def move_box(box_id: int, target: str, fast: bool = False) -> str:
    """Moves a box."""
    return f"{box_id} to {target}"


@pytest.fixture
async def ex() -> AsyncIterator[Exec]:
    """An Exec with the tools of a store."""
    async with Exec() as ex:
        for each in (list_boxes, get_team, get_member, move_box):
            ex.add(each)
        yield ex


@pytest.mark.parametrize(
    ("language", "code", "value"),
    [
        ("python", 'boxes = tools.store.list_boxes()\nsum(box["weight"] for box in boxes)', 4.0),
        ("python", 'total = 0\nfor box in tools.store.list_boxes():\n    total += box["weight"]\nreturn total', 4.0),
        ("python", 'boxes = tools.store.list_boxes()\nreturn boxes[0]["weight"] < 3', True),
        ("python", 'box = tools.store.list_boxes()[0]\nreturn box["packed"].year', None),
        ("python", 'team = tools.store.get_team()\nreturn team["hours"][1]', 5),
        ("python", 'import datetime\nreturn datetime.fromisoformat("2026-01-02").year', 2026),
        ("python", "n = 1\nn++\nreturn n", 2),
        ("python", 'n = 1\nreturn n > 0 ? "a" : "b"', "a"),
        ("python", "n = 1\nif n > 0\n    n = 2\nreturn n", 2),
        ("javascript", "const { hours } = await tools.store.get_team();\nreturn hours.map((h) => h);", [3, 5]),
        ("javascript", "const [box] = await tools.store.list_boxes();\nreturn len(box.weight);", 3),
        ("javascript", 'const t = "a\\nb";\nreturn t.splitlines().length;', 2),
    ],
)
async def test_what_is_written_in_its_place(ex: Exec, language: str, code: str, value: object) -> None:
    """A program that is changed as its message says has the value that was meant."""
    result = await ex.execute_code(code, language=language)
    assert result.error is not None
    changed = code
    if value is None:
        assert "datetime.fromisoformat(" in said(result)
        return
    for _ in range(3):
        changed, _ = fixed(changed, language, said(result))
        result = await ex.execute_code(changed, language=language)
    assert result.value == value, (changed, result.error)


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ('[box["owner"]["name"] for box in tools.store.list_boxes()]', '`box["owner"]` is None in 1 of 2'),
        ('[box["size"]["height"] for box in tools.store.list_boxes()]', "has `height` in 1 of 2"),
        ("boxes = tools.store.list_boxes()\nboxes[2]", "`boxes` has 2 items"),
        ('[each["name"] for each in tools.store.get_team()["member_ids"]]', "tools.store.get_member(member_id=each)"),
        ('[each["x"] for each in tools.store.get_team()["places"]]', "read it by place, as `each[0]`"),
        ('[each["x"] for each in tools.store.move_box(box_id=1, target="B")]', "gives its characters"),
        ("rows = [3, 1]\nfor each in rows.sort(): pass", "`sort` changes `rows` and gives None"),
        ("[1, 2].filter(lambda n: n)", "a list has no `filter(...)`"),
        (
            'tools.store.move_box(box=1, where="B")',
            "store:move_box takes box_id (integer), target (string), fast (boolean",
        ),
    ],
)
async def test_what_is_said(ex: Exec, code: str, says: str) -> None:
    """A message says what a value was, or how a tool is called."""
    assert says in said(await ex.execute_code(code))


@pytest.mark.parametrize(
    ("language", "message"),
    [
        ("python", "AttributeError: 'list' object has no attribute 'filter'"),
        ("javascript", "TypeError: cannot read property 'x' of undefined"),
        ("python", "SyntaxError: invalid syntax"),
    ],
)
def test_a_very_long_line(language: str, message: str) -> None:
    """Nothing is looked for in a line of a hundred thousand characters, which would keep the host busy."""
    line = "a." * 50_000
    kind = message.partition(":")[0]
    failure = Failure(kind=kind, message=message, code=line, backend="wasm", language=language, source=line, line=1)
    assert advise(failure) == ""
