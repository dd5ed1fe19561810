"""Programs that have nothing for a value: what was asked for that is nowhere, and what a `try` hid."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from toolexec import Exec, tool


@tool("shop:orders", read_only=True)
def _orders() -> list[dict[str, Any]]:
    """Lists orders."""
    return [
        {"id": 1, "state": "sent", "at": "2026-01-02T00:00:00+01:00", "to": {"name": "ada"}},
        {"id": 2, "state": "open", "at": "2026-01-03T00:00:00+01:00", "to": {"name": "bob"}},
    ]


@pytest.fixture
async def ex() -> AsyncIterator[Exec]:
    """An Exec with one tool."""
    async with Exec() as found:
        found.add(_orders)
        yield found


_ROWS = "rows = tools.shop.orders()\n"
_ROWS_OF_JAVASCRIPT = "const rows = await tools.shop.orders();\n"
UNMET = [
    (
        "python",
        _ROWS + "return [r['id'] for r in rows if r['state'] == 'shipped']",
        'no `r[\'state\']` is "shipped", there are "sent", "open"',
    ),
    ("python", _ROWS + "return [r['id'] for r in rows if 'Open' == r['state']]", 'there are "sent", "open"'),
    ("python", _ROWS + "return [r['id'] for r in rows if r['at'].endswith('Z')]", "no `r['at']` ends with \"Z\""),
    (
        "python",
        _ROWS + "return sum(r['id'] for r in rows if r['to'] == 'ada')",
        "`r['to']` is never \"ada\": it is an object with name",
    ),
    ("javascript", _ROWS_OF_JAVASCRIPT + "return rows.filter((r) => r.state === 'SENT');", 'there are "sent", "open"'),
    (
        "javascript",
        _ROWS_OF_JAVASCRIPT + "return rows.filter(({ state }) => state === 'done').length;",
        'no `state` is "done"',
    ),
    (
        "python",
        _ROWS + "found = []\nfor r in rows:\n    try:\n        found.append(r['to']['id'])\n"
        "    except KeyError:\n        pass\nreturn found",
        "write `r[\"id\"]` instead of `r['to']['id']`",
    ),
]


@pytest.mark.parametrize(("language", "code", "says"), UNMET)
async def test_what_there_is_instead(ex: Exec, language: str, code: str, says: str) -> None:
    """A note says what the values are of which none is as the program asks, or which read a `try` hid."""
    result = await ex.execute_code(code, language=language)
    assert result.error is None
    assert not result.value
    assert says in "; ".join(result.notes)


RIGHT = [
    ("python", _ROWS + "return [r['id'] for r in rows if r['state'] == 'sent' and r['id'] > 5]", []),
    ("python", _ROWS + "return len([r for r in rows if r['state'] != 'void'])", 2),
    ("python", _ROWS + "return [r['id'] for r in rows if r['state'] == 'void' or r['id'] == 1]", [1]),
    ("javascript", _ROWS_OF_JAVASCRIPT + "return rows.filter((r) => r.state !== 'void').length;", 2),
    ("python", _ROWS + "try:\n    return rows[0]['to']['name']\nexcept KeyError:\n    return None", "ada"),
]


@pytest.mark.parametrize(("language", "code", "value"), RIGHT)
async def test_a_program_that_found_what_it_asked_for(ex: Exec, language: str, code: str, value: object) -> None:
    """A program whose strings are there, or that has a value, has no such note."""
    result = await ex.execute_code(code, language=language)
    assert (result.value, result.notes) == (value, [])
