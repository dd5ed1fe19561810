"""What code may call."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from toolexec.code.limits import CallCount, Limits
from toolexec.discovery.docs import DetailLevel, ToolDoc
from toolexec.discovery.examples import ToolExample
from toolexec.discovery.summary import Summary
from toolexec.run.chain import ChainStep
from toolexec.run.types import Result, StepResult

if TYPE_CHECKING:
    from toolexec.code.types import ToolCallRecord

__all__ = ["CountedGateway", "Gateway", "checkpoint", "counted"]


@runtime_checkable
class Gateway(Protocol):
    """What code in a sandbox may ask of the host. Safe for many calls at once.

    `Tools` answers in this process, `toolexec.runtime.gateway.proxy.ProxyGateway` asks another one. A gateway that has
    a method `tool_calls()` is asked for the trace of a run.
    """

    async def search_tools(self, query: str, limit: int = 10) -> list[Summary]:
        """The best tools for *query*, at most *limit*."""
        ...

    async def list_namespaces(self) -> list[str]:
        """All namespaces in alphabetical order."""
        ...

    async def describe_tool(self, tool_id: str, level: DetailLevel = "full") -> ToolDoc:
        """A tool's documentation; raises as `DocStore.describe` does."""
        ...

    async def list_tool_examples(self, tool_id: str, limit: int | None = None) -> list[ToolExample]:
        """A tool's examples, at most *limit*; raises as `DocStore.describe` does."""
        ...

    async def run_tool(self, tool_id: str, args: Mapping[str, Any] | None = None) -> Result:
        """Run one tool; raises as `Runner.run` does, and LimitExceededError or PolicyError with nothing run."""
        ...

    async def run_chain(self, steps: Sequence[ChainStep]) -> tuple[Result | None, list[StepResult]]:
        """Run a chain as `toolexec.run.run_chain` does; an empty one gives nothing and no error."""
        ...


def counted(gateway: Gateway, limits: Limits) -> Gateway:
    """*gateway* itself if it holds the caps of *limits* already (or there are none), else one that does."""
    if not limits.max_tool_calls and not limits.max_chain_steps:
        return gateway
    own: Any = getattr(gateway, "limits", None)
    if isinstance(own, Limits):  # it counts by itself
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
        self._count = CallCount(limits)

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
        self._count.reserve()
        return await self.inner.run_tool(tool_id, args)

    async def run_chain(self, steps: Sequence[ChainStep]) -> tuple[Result | None, list[StepResult]]:
        """Run a chain; raises ChainStepLimitError and ToolCallLimitError with nothing run."""
        self._count.reserve_chain(len(steps))
        done: list[StepResult] = []
        try:
            result, done = await self.inner.run_chain(steps)
        finally:
            self._count.give_back(len(steps) - min(len(done), len(steps)))
        return result, done

    def tool_calls(self) -> list[ToolCallRecord]:
        """The trace that *inner* keeps, if it keeps one."""
        trace: Any = getattr(self.inner, "tool_calls", None)
        return [*trace()] if trace is not None else []


async def checkpoint() -> None:
    """Let a cancellation that is due arrive before the work begins."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        await asyncio.sleep(0)
