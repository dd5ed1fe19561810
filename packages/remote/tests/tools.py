"""The tools that programs on remote runtimes call in these tests."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from toolexec.backend import BackendRegistry, LocalBackend
from toolexec.code import Tools
from toolexec.discovery import InMemoryDocStore, InMemoryIndex
from toolexec.model import LocalBinding, declare
from toolexec.run import DefaultRunner
from toolexec.sandbox import ExecuteRequest


class Workshop:
    """Tools that count how often they were called, and with what."""

    def __init__(self) -> None:
        self.calls: Counter[Any] = Counter()
        self.begun = asyncio.Event()
        self.gate = asyncio.Event()
        self.stopped = 0
        self._index = InMemoryIndex()
        self._backends = BackendRegistry()
        local = LocalBackend()
        self._backends.register(local)
        for function in (self._count, self._wait, self._echo):
            declared = declare(function, f"shop:{function.__name__.strip('_')}")
            self._index.register(declared.tool, LocalBinding(declared.tool.id))
            local.add(declared)

    def request(self, code: str, **fields: Any) -> ExecuteRequest:
        """Return a request as the router passes it."""
        docs = InMemoryDocStore(self._index)
        gateway = Tools(self._index, docs, DefaultRunner(self._index, self._backends))
        defaults: dict[str, Any] = {"language": "python", "profile": "standard", "timeout": 60.0}
        return ExecuteRequest(code=code, gateway=gateway, **{**defaults, **fields})

    async def _count(self, item: int) -> int:
        """Count a call."""
        self.calls[item] += 1
        return item

    async def _wait(self, item: int = 0) -> int:
        """Wait until the gate is open."""
        self.calls[item] += 1
        self.begun.set()
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.stopped += 1
            raise
        return item

    async def _echo(self, text: str) -> str:
        """Return the same."""
        return text
