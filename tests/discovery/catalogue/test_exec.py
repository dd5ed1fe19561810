"""Backends of other kinds than MCP over a stored catalogue."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.discovery.catalogue.tools import saved

from toolexec import Exec
from toolexec.backend.base import BackendStatus
from toolexec.discovery import InMemoryIndex
from toolexec.discovery.catalogue import SQLiteCatalogue
from toolexec.errors import BackendUnavailableError, ToolNotFoundError
from toolexec.model import LocalBinding, ProviderBinding, Tool, ToolCall


def tool(name: str) -> Tool:
    return Tool(name=name, namespace="shop", description=f"Handles {name}", input_schema={})


class Shop:
    """A backend that can do nothing before it is started."""

    name = "shop"
    kind = "provider"
    enabled = True

    def __init__(self, *names: str) -> None:
        self.names = names
        self.starts = 0

    def status(self) -> BackendStatus:
        ready = self.starts > 0
        return BackendStatus(name=self.name, kind="provider", available=ready, reason=None if ready else "not started")

    async def start(self) -> None:
        self.starts += 1

    async def aclose(self) -> None:
        self.starts = 0

    async def list_tools(self) -> Sequence[Tool]:
        return [tool(name) for name in self.names]

    def bind(self, tool: Tool) -> ProviderBinding:
        return ProviderBinding(self.name, tool.name)

    async def call(self, name: str, call: ToolCall) -> Any:
        if not self.starts:
            raise BackendUnavailableError("the shop is closed", backend=self.name)
        return name


@pytest.fixture
def index(path: Path) -> InMemoryIndex:
    """Two tools of the shop, as they were stored."""
    before = InMemoryIndex()
    for name in ("buy", "sell"):
        before.register(tool(name), ProviderBinding("shop", name))
    saved(path, before)
    with SQLiteCatalogue(path) as catalogue:
        return catalogue.open()


async def test_it_is_started_by_the_first_call(index: InMemoryIndex) -> None:
    """Not by a search, and not by a description, which say that it is not there yet."""
    ex, shop = Exec(index=index), Shop("buy", "rent")
    ex.add_backends(shop)
    found = await ex.search_tools("handles")
    assert [(summary.id, summary.unavailable) for summary in found] == [
        ("shop:buy", "not started"),
        ("shop:sell", "not started"),
    ]
    assert (await ex.get_tool_doc("shop:sell")).unavailable == "not started"
    assert shop.starts == 0
    assert (await ex.run_tool("shop:buy")).value == "buy"
    assert shop.starts == 1
    assert (await ex.search_tools("handles")).ids() == ["shop:buy", "shop:rent"]
    with pytest.raises(ToolNotFoundError):
        await ex.run_tool("shop:sell")
    await ex.aclose()


async def test_streams_start_it_too(index: InMemoryIndex) -> None:
    """Asked for piece by piece, it answers all the same."""
    ex, shop = Exec(index=index), Shop("buy")
    ex.add_backends(shop)
    assert [event.kind async for event in ex.stream_tool("shop:buy")] == ["done"]
    assert shop.starts == 1
    await ex.aclose()


async def test_one_without_stored_tools_is_waited_for(index: InMemoryIndex) -> None:
    """A search starts what it has to know the tools of, and nothing else."""
    ex, shop, other = Exec(index=index), Shop("buy"), Shop("lend")
    other.name = "bank"
    ex.add_backends(shop, other)
    assert (await ex.search_tools("lend")).ids() == ["shop:lend"]
    assert (shop.starts, other.starts) == (0, 1)
    await ex.start()
    assert (shop.starts, other.starts) == (1, 1)
    await ex.aclose()


async def test_removing_it_removes_its_stored_tools(index: InMemoryIndex) -> None:
    """Removes them even if the backend never was started; tools of this process stay."""
    ex = Exec(index=index)
    ex.add(lambda: 1, "here:one")
    ex.add_backends(Shop("buy"))
    await ex.remove("shop")
    assert [entry.tool.id for entry in ex.index.tools()] == ["here:one"]
    assert ex.index.get("here:one").binding == LocalBinding("here:one")
    await ex.aclose()
