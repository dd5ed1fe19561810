"""What the tests of the sandbox's languages share: tools that code can call, and a request for a program."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from tests.waiting import until

from toolexec.backend.local import LocalBackend
from toolexec.backend.registry import BackendRegistry
from toolexec.code.limits import Limits
from toolexec.code.tools import Tools
from toolexec.code.types import ExecuteRequest
from toolexec.discovery.docs import InMemoryDocStore
from toolexec.discovery.memory import InMemoryIndex
from toolexec.model.binding import LocalBinding
from toolexec.model.declare import declare
from toolexec.run.runner import DefaultRunner


class Kit:
    """Some tools, and what became of them."""

    def __init__(self) -> None:
        self.at_once = 0
        self.most_at_once = 0
        self.stopped: list[str] = []
        self.begun = asyncio.Event()
        self._index = InMemoryIndex()
        self._backends = BackendRegistry()
        local = LocalBackend()
        self._backends.register(local)
        for function in (self.add, self.fail, self.meet, self.wait, self.big):
            declared = declare(function, f"kit:{function.__name__}")
            self._index.register(declared.tool, LocalBinding(declared.tool.id))
            local.add(declared)

    def tools(self, *, max_tool_calls: int = 0, allowed: tuple[str, ...] | None = None) -> Tools:
        """The gateway of one run."""
        runner = DefaultRunner(self._index, self._backends)
        limits = Limits(max_tool_calls=max_tool_calls)
        return Tools(self._index, InMemoryDocStore(self._index), runner, limits=limits, allowed=allowed)

    def request(self, code: str = "", *, tools: Tools | None = None, **fields: Any) -> ExecuteRequest:
        """A request with a time limit of 20 s, unless *fields* has another."""
        return ExecuteRequest(code=code, gateway=tools or self.tools(), **{"timeout": 20.0, **fields})

    def add(self, a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    async def fail(self) -> None:
        """Always fail."""
        raise ValueError("no luck today")

    async def meet(self, guests: int) -> int:
        """Wait until so many calls are under way."""
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            async with asyncio.timeout(5):
                await until(lambda: self.most_at_once >= guests)
        finally:
            self.at_once -= 1
        return guests

    async def wait(self) -> None:
        """Wait for ever."""
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.stopped.append("wait")

    def big(self, size: int) -> str:
        """A long text."""
        return "x" * size


def error_of(result: Any) -> Mapping[str, Any]:
    """Return the result's error as data."""
    assert result.error is not None
    return result.error.to_dict()
