"""Reads of results that find nothing, promises that nothing awaits, and arguments of another shape, as what to write."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from benchmarks.repair import fixed, said

from toolexec import Exec, tool
from toolexec.code.repair import python_reads
from toolexec.code.repair.promises import about_promises
from toolexec.errors import CodeError


@dataclass(frozen=True)
class Parcel:
    """What is sent."""

    sku: str
    count: int


@tool("office:list_cards", read_only=True)
def list_cards(limit: int = 2, cursor: str | None = None) -> dict[str, Any]:
    """Lists cards."""
    return {"cards": [{"id": 1, "owner": {"mail": "a@x"}}, {"id": 2, "owner": {"mail": "b@x"}}], "next_cursor": cursor}


@tool("office:get_note", read_only=True)
def get_note(number: int) -> dict[str, Any]:
    """Reads a note."""
    return {"number": number, "text_size": 5, "tags": ["a"], "author": {"name": "Ida"}}


@tool("office:settings", read_only=True)
def settings() -> str:
    """Reads the settings."""
    return '{"most": 5}'


@tool("office:count_cards", read_only=True)
def count_cards() -> int:
    """Counts the cards."""
    return 2


@tool("office:send")
def send(parcel: Parcel, to: str = "", speed: Literal["slow", "fast"] | None = None) -> str:
    """Sends a parcel."""
    return f"{parcel.count} {parcel.sku} {to} {speed}"


@pytest.fixture
async def ex() -> AsyncIterator[Exec]:
    """An Exec with the tools of an office."""
    async with Exec() as ex:
        for each in (list_cards, get_note, settings, count_cards, send):
            ex.add(each)
        yield ex


REPAIRED: list[tuple[str, str, Any]] = [
    ("python", "page = office.list_cards()\nreturn [c['id'] for c in page]", [1, 2]),
    ("python", "page = office.list_cards()\nreturn [c['id'] for c in page['items']]", [1, 2]),
    ("python", "page = office.list_cards()\nreturn page[0]['id']", 1),
    ("python", "page = office.list_cards()\nreturn page['cards'][0]['owner_mail']", "a@x"),
    ("python", "page = office.list_cards()\nreturn page['cards'][0]['mail']", "a@x"),
    ("python", "note = await office.get_note(number=1)\nreturn note['name']", "Ida"),
    ("python", "note = office.get_note(number=1).get('note', {})\nreturn note.get('number')", 1),
    ("python", "s = office.settings()\nreturn s['most']", 5),
    ("python", "n = office.count_cards()\nreturn n['total']", 2),
    ("python", "n = office.count_cards()\nreturn 'cards: ' + n", "cards: 2"),
    ("python", "return sum(x for x in ['1', '2'])", 3),
    ("python", "return 1 if 2 > 1 && 3 > 2 else 0", 1),
    ("python", "return office.list_cards(page_token='7')['next_cursor']", "7"),
    ("python", "return office.send(sku='a', count=2)", "2 a  None"),
    ("python", "return office.send(parcel={'sku': 'a', 'number': 2}, speed='Fast')", "2 a  fast"),
    ("javascript", "const page = await tools.office.list_cards();\nreturn page.map((c) => c.id)", [1, 2]),
    ("javascript", "const { items } = await tools.office.list_cards();\nreturn items.map((c) => c.id)", [1, 2]),
    ("javascript", "const page = await tools.office.list_cards({cursor: '3'});\nreturn page.nextCursor", "3"),
    ("javascript", "const n = await tools.office.count_cards();\nreturn n.total", 2),
    ("javascript", "const s = await tools.office.settings();\nreturn s.most", 5),
    ("javascript", "return tools.office.send({ sku: 'a', count: 2 })", "2 a  None"),
    (
        "javascript",
        "const notes = [1, 2].map(async (n) => tools.office.get_note({ number: n }));\nreturn notes.map((x) => x.number)",
        [1, 2],
    ),
    (
        "javascript",
        "return [1, 2].filter(async (n) => (await tools.office.get_note({ number: n })).number > 1)",
        [2],
    ),
]


@pytest.mark.parametrize(("language", "code", "value"), REPAIRED)
async def test_what_to_write(ex: Exec, language: str, code: str, value: Any) -> None:
    """A program that is changed as its error, or the notes of its result, say has the value that was meant."""
    result = await ex.execute_code(code, language=language)
    assert result.error is not None or result.value != value
    for _ in range(3):
        if result.error is None and result.value == value:
            break
        changed, _ = fixed(code, language, said(result))
        assert changed != code, said(result)
        code = changed
        result = await ex.execute_code(code, language=language)
    assert result.value == value, (code, said(result))


SILENT: list[tuple[str, str]] = [
    ("python", "return office.get_note(number=1).get('subtitle', '')"),
    ("python", "note = office.get_note(number=1)\nreturn note.get('parent', {}).get('number')"),
    ("python", "note = office.get_note(number=1)\nreturn [c for c in note.get('comments', [])]"),
    ("javascript", "const note = await tools.office.get_note({ number: 1 });\nreturn note.subtitle ?? 5"),
    (
        "javascript",
        "const note = await tools.office.get_note({ number: 1 });\nreturn note.tags.length + note.tags[0].length",
    ),
    ("javascript", "let n = await tools.office.count_cards();\nn = n.toFixed(1);\nreturn n"),
]


@pytest.mark.parametrize(("language", "code"), SILENT)
async def test_what_may_be_absent(ex: Exec, language: str, code: str) -> None:
    """Nothing is said of a program that ran and read what a result may leave out."""
    result = await ex.execute_code(code, language=language)
    assert result.error is None
    assert result.notes == []


UNSAID: list[str] = [
    "return office.get_note(number=1)['comments']",
    "note = office.get_note(number=1)\nreturn [c for c in note['comments']]",
    "return office.send(parcel={'sku': 'a', 'count': 1}, speed='unslow')",
    "rows = [{'a': 1}]\nreturn rows[0]['b']",
]


@pytest.mark.parametrize("code", UNSAID)
async def test_what_is_not_certain(ex: Exec, code: str) -> None:
    """Where nothing is meant for certain, the message has no text to write."""
    error = (await ex.execute_code(code)).error
    assert error is not None
    assert "write `" not in str(error)


def test_promises_that_are_awaited() -> None:
    """Nothing is said of promises that are gathered, raced, looped over with `await`, or left for the end."""
    for code in (
        "const a = [1].map(async (n) => n);\nreturn await Promise.all(a)",
        "const a = [1].map(async (n) => n);\nfor (const each of a) { x += await each }",
        "const a = [1].map(async (n) => n);\nreturn (await Promise.allSettled(a)).map((s) => s.value)",
        "[1].forEach(async (n) => { await f(n) })",
        "async function f() { return 1 }\nconst p = f();\nreturn p.then((n) => n)",
        "const kept = rows.filter((row) => row.open)",
    ):
        assert list(about_promises(code)) == [], code


async def test_choices_of_an_argument_that_may_be_null(ex: Exec) -> None:
    """An argument that is one of some values, or null, is refused with all of them."""
    error = (await ex.execute_code("office.send(parcel={'sku': 'a', 'count': 1}, speed='late')")).error
    assert '"late" is not one of "slow", "fast" or null' in str(error)


async def test_a_program_of_thousands_of_reads_is_read_in_part(ex: Exec, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some hundred reads are looked at, in a thread of their own, and no line of the program is split once more."""
    looked_at: list[int] = []
    judge = python_reads.what_to_write

    def count(*args: Any) -> Any:
        looked_at.append(threading.get_ident())
        return judge(*args)

    monkeypatch.setattr(python_reads, "what_to_write", count)
    monkeypatch.setattr("ast.get_source_segment", None)
    program = "note = tools.office.get_note(number=1)\n" + "note.get('nothing')\n" * 1_500
    result = await ex.execute_code(f"{program}return 1")
    assert (result.value, result.notes) == (1, [])
    assert 0 < len(looked_at) <= 300
    assert threading.get_ident() not in looked_at


@pytest.mark.parametrize("depth", [300, 600, 1_200])
async def test_a_program_that_cannot_be_read_keeps_its_value(ex: Exec, depth: int) -> None:
    """Advice on a program never costs what came of it, however deeply the program is nested."""
    deep = f"note = tools.office.get_note(number=1)\nother = note{'.a' * depth}().get('b') if 0 else 1\n"
    assert (await ex.execute_code(f"{deep}return other")).value == 1
    failed = await ex.execute_code(f"{deep}return note{'.a' * depth}().get('b')")
    assert isinstance(failed.error, CodeError)
    assert failed.error.kind == "AttributeError"
