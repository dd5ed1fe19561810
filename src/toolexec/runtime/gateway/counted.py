"""Caps of one run around a gateway that does not hold them itself."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from toolexec.code.gateway import Gateway
from toolexec.code.limits import Limits
from toolexec.code.tools import Tools
from toolexec.code.types import ToolCallRecord
from toolexec.discovery.docs import DetailLevel, ToolDoc
from toolexec.discovery.examples import ToolExample
from toolexec.discovery.summary import Summary
from toolexec.errors import ChainStepLimitError, ToolCallLimitError
from toolexec.run.chain import ChainStep
from toolexec.run.types import Result, StepResult

__all__ = ["CountedGateway", "counted"]


def counted(gateway: Gateway, limits: Limits) -> Gateway:
    """*gateway* itself if it holds the caps of *limits* already (or there are none), else one that does."""
    if not limits.max_tool_calls and not limits.max_chain_steps:
        return gateway
    if isinstance(gateway, Tools):
        own = gateway.limits
        narrowed = own.narrow(limits)
        if (narrowed.max_tool_calls, narrowed.max_chain_steps) == (own.max_tool_calls, own.max_chain_steps):
            return gateway
    return CountedGateway(gateway, limits)


class CountedGateway:
    """Passes everything on to *inner*, and no more tool calls and chain steps than *limits* allows. Safe for many calls
    at once; what a chain does not run is given back."""

    def __init__(self, inner: Gateway, limits: Limits) -> None:
        self.inner = inner
        self.limits = limits
        self._calls = 0
        self._lock = threading.Lock()

    async def search_tools(self, query: str, limit: int = 10) -> list[Summary]:
        """See `Gateway.search_tools`."""
        return await self.inner.search_tools(query, limit)

    async def list_namespaces(self) -> list[str]:
        """See `Gateway.list_namespaces`."""
        return await self.inner.list_namespaces()

    async def describe_tool(self, tool_id: str, level: DetailLevel = "full") -> ToolDoc:
        """See `Gateway.describe_tool`."""
        return await self.inner.describe_tool(tool_id, level)

    async def list_tool_examples(self, tool_id: str, limit: int | None = None) -> list[ToolExample]:
        """See `Gateway.list_tool_examples`."""
        return await self.inner.list_tool_examples(tool_id, limit)

    async def run_tool(self, tool_id: str, args: Mapping[str, Any] | None = None) -> Result:
        """Run one tool; raises ToolCallLimitError with nothing run, and as `Gateway.run_tool` does."""
        self._reserve(1, "run")
        return await self.inner.run_tool(tool_id, args)

    async def run_chain(self, steps: Sequence[ChainStep]) -> tuple[Result | None, list[StepResult]]:
        """Run a chain; raises ChainStepLimitError and ToolCallLimitError with nothing run."""
        most = self.limits.max_chain_steps
        if most and len(steps) > most:
            raise ChainStepLimitError(
                f"limit exceeded: max chain steps ({most}) exceeded (got {len(steps)}); split the chain",
                op="chain",
                details={"limit": most, "steps": len(steps)},
            )
        self._reserve(len(steps), "chain")
        done: list[StepResult] = []
        try:
            result, done = await self.inner.run_chain(steps)
        finally:
            with self._lock:
                self._calls -= len(steps) - min(len(done), len(steps))
        return result, done

    def tool_calls(self) -> list[ToolCallRecord]:
        """The trace that *inner* keeps, if it keeps one."""
        trace: Any = getattr(self.inner, "tool_calls", None)
        return [*trace()] if trace is not None else []

    def _reserve(self, count: int, op: str) -> None:
        cap = self.limits.max_tool_calls
        with self._lock:
            if cap and self._calls + count > cap:
                raise ToolCallLimitError(
                    f"limit exceeded: max tool calls ({cap}) exceeded",
                    op=op,
                    details={"limit": cap, "made": self._calls},
                )
            self._calls += count
