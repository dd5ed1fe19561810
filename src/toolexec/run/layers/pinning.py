"""Refuse calls of tools whose definition nobody has accepted."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable

from toolexec.backend.here import Wait
from toolexec.discovery.index import Registered
from toolexec.model.call import ToolCall
from toolexec.model.events import StreamEvent
from toolexec.run.resolve import Find
from toolexec.run.runner import Runner, ThreadRunner
from toolexec.run.types import Result

__all__ = ["Pinned"]


class Pinned:
    """Has *check* look at the tool of each call before *inner* makes it; what it raises is raised."""

    def __init__(self, inner: Runner, find: Find, check: Callable[[Registered], None]) -> None:
        self.inner = inner
        self._find = find
        self._check = check
        self._inner_here = inner if isinstance(inner, ThreadRunner) else None

    async def run(self, call: ToolCall) -> Result:
        """Make the call of a tool that is accepted; raises DefinitionChangedError for another, and as *find* does."""
        self._check(self._find(call.tool_id))
        return await self.inner.run(call)

    def runs_here(self, call: ToolCall, within: float) -> bool:
        """Whether `run_here` would make the call."""
        return self._inner_here is not None and self._inner_here.runs_here(call, within)

    def run_here(self, call: ToolCall, wait: Wait, within: float) -> Result | None:
        """Make the call of a tool that is accepted; see `ThreadRunner.run_here`. Raises as `run` does."""
        if self._inner_here is None:
            return None
        self._check(self._find(call.tool_id))
        return self._inner_here.run_here(call, wait, within)

    async def stream(self, call: ToolCall) -> AsyncGenerator[StreamEvent, None]:
        """Stream the call of a tool that is accepted; raises as `run` does."""
        self._check(self._find(call.tool_id))
        events = self.inner.stream(call)
        try:
            async for event in events:
                yield event
        finally:
            await events.aclose()
