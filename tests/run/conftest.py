"""A workshop: an index, backends and the plain pipeline over them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from toolexec.backend import LocalBackend, ProviderBackend
from toolexec.backend.registry import BackendRegistry
from toolexec.discovery import InMemoryIndex
from toolexec.model import LocalBinding, MCPBinding, ProviderBinding, Tool, declare
from toolexec.run import DefaultRunner, Result, StreamEvent, ToolCall


class Workshop:
    """Real parts, put together by hand."""

    def __init__(self) -> None:
        self.index = InMemoryIndex()
        self.backends = BackendRegistry()
        self.local = LocalBackend()
        self.backends.register(self.local)

    def runner(self, **settings: Any) -> DefaultRunner:
        """A pipeline over these parts."""
        return DefaultRunner(self.index, self.backends, **settings)

    def add(self, function: Callable[..., Any], name: str, **parts: Any) -> Tool:
        """Register a typed function as a local tool."""
        declared = declare(function, name, **parts)
        self.index.register(declared.tool, LocalBinding(declared.tool.id))
        self.local.register(declared.tool.id, declared.handler)
        return declared.tool

    def add_tool(
        self,
        tool: Tool,
        handler: Callable[..., Any],
        binding: LocalBinding | ProviderBinding | MCPBinding | None = None,
    ) -> Tool:
        """Register a hand-written tool; a local one with a handler that takes a dict, others with `handler(name, args)`."""
        self.index.register(tool, binding or LocalBinding(tool.id))
        if binding is None or isinstance(binding, LocalBinding):
            self.local.register(binding.name if binding else tool.id, handler)
        else:
            self.backends.register(ProviderBackend(binding.backend, handler, kind=binding.kind))
        return tool

    async def run(self, tool_id: str, args: Any = None, **settings: Any) -> Result:
        """Call a tool through a plain pipeline."""
        return await self.runner(**settings).run(ToolCall(tool_id, args))

    async def stream(
        self, tool_id: str, args: Any = None, *, fallback: bool = False, **settings: Any
    ) -> list[StreamEvent]:
        """All events of a streamed call through a plain pipeline."""
        return [event async for event in self.runner(**settings).stream(ToolCall(tool_id, args, fallback=fallback))]


@pytest.fixture
def workshop() -> Iterator[Workshop]:
    """A workshop that is cleared up afterwards."""
    shop = Workshop()
    yield shop
    asyncio.run(shop.backends.stop_all())
