"""Approval by somebody else than whoever makes the call."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace

from toolexec.backend.here import Wait
from toolexec.model.call import ToolCall
from toolexec.model.events import StreamEvent
from toolexec.run.gate import GatePart
from toolexec.run.resolve import Find
from toolexec.run.runner import Runner, ThreadRunner
from toolexec.run.types import Result

__all__ = ["CallerIsNotAsked"]


class CallerIsNotAsked:
    """Takes `Origin.ask` from every call before *approval* sees it: then only the operator is asked, or nobody."""

    def __init__(self, approval: GatePart) -> None:
        self.approval = approval

    def wrap(self, inner: Runner, find: Find) -> Runner:
        """A runner that keeps the rule around *inner*."""
        return _WithoutAsking(self.approval.wrap(inner, find))


class _WithoutAsking:
    def __init__(self, inner: Runner) -> None:
        self.inner = inner
        self._inner_here = inner if isinstance(inner, ThreadRunner) else None

    async def run(self, call: ToolCall) -> Result:
        return await self.inner.run(_silenced(call))

    async def stream(self, call: ToolCall) -> AsyncGenerator[StreamEvent, None]:
        events = self.inner.stream(_silenced(call))
        try:
            async for event in events:
                yield event
        finally:
            await events.aclose()

    def runs_here(self, call: ToolCall, within: float) -> bool:
        return self._inner_here is not None and self._inner_here.runs_here(_silenced(call), within)

    def run_here(self, call: ToolCall, wait: Wait, within: float) -> Result | None:
        return self._inner_here.run_here(_silenced(call), wait, within) if self._inner_here is not None else None


def _silenced(call: ToolCall) -> ToolCall:
    if call.origin.ask is None:
        return call
    call.identify()  # the copy is the same run
    return replace(call, origin=replace(call.origin, ask=None))
