"""A gateway in this process: the tools themselves, counted, limited and traced."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from time import perf_counter
from typing import Any

from toolexec.code.limits import Limits
from toolexec.code.tools import MAX_TRACE_BYTES, Tools
from toolexec.discovery.docs import DetailLevel, DocStore, ToolDoc
from toolexec.discovery.examples import ToolExample
from toolexec.discovery.index import Index
from toolexec.discovery.summary import Summary
from toolexec.run.chain import ChainStep
from toolexec.run.runner import Runner
from toolexec.run.types import Result, StepResult

__all__ = ["DirectGateway"]


class DirectGateway(Tools):
    """The way to the tools of *index*, documented by *docs* and run by *runner*.

    *max_tool_calls* and *max_chain_steps* are the caps on calls and on the steps of one chain (0: none); *allowed* are
    the tool IDs or patterns that may be seen and called (None: all, an empty list: none). A call that is cancelled
    before it begins raises CancelledError and is not counted. Raises InvalidLimitsError for a cap below 0.
    """

    def __init__(
        self,
        index: Index,
        docs: DocStore,
        runner: Runner,
        *,
        max_tool_calls: int = 0,
        max_chain_steps: int = 0,
        allowed: Collection[str] | None = None,
    ) -> None:
        limits = Limits(max_tool_calls=max_tool_calls, max_chain_steps=max_chain_steps)
        super().__init__(index, docs, runner, limits=limits, allowed=allowed)

    def reset(self) -> None:
        """Forget the calls made so far: the count and the trace begin anew. Calls under way belong to the old count."""
        with self._lock:
            self._calls = 0
            self._count += 1
            self._records = []
            self._room[0] = MAX_TRACE_BYTES
            self._began = perf_counter()

    async def search_tools(self, query: str, limit: int = 10) -> list[Summary]:
        """The best tools for *query*, at most *limit*."""
        await checkpoint()
        return await super().search_tools(query, limit)

    async def list_namespaces(self) -> list[str]:
        """All namespaces in alphabetical order."""
        await checkpoint()
        return await super().list_namespaces()

    async def describe_tool(self, tool_id: str, level: DetailLevel = "full") -> ToolDoc:
        """A tool's documentation; see `Tools.describe_tool`."""
        await checkpoint()
        return await super().describe_tool(tool_id, level)

    async def list_tool_examples(self, tool_id: str, limit: int | None = None) -> list[ToolExample]:
        """A tool's examples; see `Tools.list_tool_examples`."""
        await checkpoint()
        return await super().list_tool_examples(tool_id, limit)

    async def run_tool(
        self, tool_id: str, args: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> Result:
        """Run one tool; see `Tools.run_tool`."""
        await checkpoint()
        return await super().run_tool(tool_id, args, timeout=timeout)

    async def run_chain(self, steps: Sequence[ChainStep]) -> tuple[Result | None, list[StepResult]]:
        """Run a chain; see `Tools.run_chain`."""
        await checkpoint()
        return await super().run_chain(steps)


async def checkpoint() -> None:
    """Let a cancellation that is due arrive before the work begins."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        await asyncio.sleep(0)
