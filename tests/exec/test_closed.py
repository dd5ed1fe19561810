"""An Exec that was closed does nothing more, whichever way it is asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from toolexec import Exec, Step, tool
from toolexec.errors import ConfigurationError

Ask: TypeAlias = Callable[[Exec], Awaitable[Any]]


@tool("t:read", read_only=True)
def read() -> int:
    """Reads."""
    return 1


async def _all_of(events: AsyncIterator[Any]) -> list[Any]:
    return [event async for event in events]


WAYS: dict[str, Ask] = {
    "run_tool": lambda ex: ex.run_tool("t:read"),
    "run_tool with progress": lambda ex: ex.run_tool("t:read", on_progress=lambda _: None),
    "run_chain": lambda ex: ex.run_chain([Step(tool_id="t:read")]),
    "durable chain": lambda ex: ex.run_chain([Step(tool_id="t:read")], durable="a"),
    "stream_tool": lambda ex: _all_of(ex.stream_tool("t:read")),
    "execute_code": lambda ex: ex.execute_code("tools.t.read()"),
    "stream_code": lambda ex: _all_of(ex.stream_code("tools.t.read()")),
    "workflow": lambda ex: ex.execute_code("return t:read()", language="workflow"),
    "search_tools": lambda ex: ex.search_tools("reads"),
    "tool_facets": lambda ex: ex.tool_facets(),
    "get_tool_doc": lambda ex: ex.get_tool_doc("t:read"),
    "export_tools": lambda ex: ex.export_tools("openai"),
    "list_resources": lambda ex: ex.list_resources(),
    "runs": lambda ex: ex.runs.list(),
    "refresh": lambda ex: ex.refresh(),
    "start": lambda ex: ex.start(),
    "sync": lambda ex: asyncio.to_thread(ex.sync.run_tool, "t:read"),
}


@pytest.mark.parametrize("way", WAYS)
async def test_a_closed_exec_says_so_in_every_way(way: str, tmp_path: Path) -> None:
    """Every way to run, search or start raises the same error once the Exec is closed."""
    ex = Exec(journal=tmp_path / "runs.db")
    ex.add(read)
    assert (await ex.run_tool("t:read")).value == 1
    await ex.aclose()
    try:
        with pytest.raises(ConfigurationError, match="this Exec is closed; make a new one"):
            await WAYS[way](ex)
    finally:
        await asyncio.to_thread(ex.sync.close)


async def test_a_closed_exec_cannot_be_changed_into_an_open_one() -> None:
    """Other options do not open an Exec again."""
    ex = Exec()
    await ex.aclose()
    with pytest.raises(ConfigurationError, match="this Exec is closed"):
        ex.reconfigure(default_timeout=5)
