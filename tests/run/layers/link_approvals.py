"""Tools behind a watch, for its tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from toolexec.backend import LocalBackend
from toolexec.backend.registry import BackendRegistry
from toolexec.discovery import InMemoryIndex
from toolexec.model import LocalBinding, Tool, declare
from toolexec.model.origin import Origin
from toolexec.run import DefaultRunner, ToolCall
from toolexec.run.layers.link_watch import LinkWatch

SESSION = Origin(session="one")
ANY = {"type": "object"}
LINK = ("t:begin", "job.ref", "t:go", "handle", 1, 1)


class Approvals:
    """Tools that give what they are told, behind a watch whose clock stands still."""

    def __init__(self, **settings: Any) -> None:
        self.now = 0.0
        self.index, backends, local = InMemoryIndex(), BackendRegistry(), LocalBackend()
        backends.register(local)
        self.gives: dict[str, Any] = {}
        for name in ("begin", "go", "other"):
            tool = Tool(name=name, namespace="t", input_schema=settings.pop(name, ANY))
            self.index.register(tool, LocalBinding(tool.id))
            local.register(tool.id, self.handler(name))
        for function in (self.count,):
            declared = declare(function, f"t:{function.__name__}")
            self.index.register(declared.tool, LocalBinding(declared.tool.id))
            local.add(declared)
        self.watch = LinkWatch(clock=lambda: self.now, find=self.index.find, **settings)
        self.runner: Any = self.watch(DefaultRunner(self.index, backends))

    def handler(self, name: str) -> Any:
        """Gives what is laid out for the tool; a ValueError is raised."""

        def handle(args: dict[str, Any]) -> Any:
            value = self.gives.get(name)
            if isinstance(value, ValueError):
                raise value
            return value

        return handle

    async def count(self, handle: str) -> AsyncIterator[str]:
        """Streams."""
        yield f"{handle}-next"

    async def call(self, name: str, origin: Origin = SESSION, /, **args: Any) -> None:
        """Make a call."""
        await self.runner.run(ToolCall(f"t:{name}", args, origin=origin))

    def seen(self) -> list[tuple[str, str, str, str, int, int]]:
        """Return the learnt links."""
        return [(o.producer_id, o.path, o.tool_id, o.argument, o.seen, o.of) for o in self.watch.observations.all()]
