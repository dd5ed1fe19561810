"""Refuse what a policy denies."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable

from toolexec.backend.here import Wait
from toolexec.discovery.index import Registered
from toolexec.discovery.view import without_hidden
from toolexec.errors import PolicyError, ToolExecError, ToolNotFoundError
from toolexec.model.call import ToolCall
from toolexec.model.events import StreamEvent
from toolexec.model.origin import Origin
from toolexec.run.policy_rules import Decide, Verdict
from toolexec.run.resolve import Find
from toolexec.run.runner import Runner, ThreadRunner
from toolexec.run.types import Result

__all__ = ["Authorize", "denied"]


class Authorize:
    """Asks *decide* about the tool that each call leads to, and raises PolicyError for what is denied, before anything
    runs. Tools that *shows* hides are not suggested in place of one that is misspelt."""

    def __init__(self, inner: Runner, find: Find, decide: Decide, shows: Callable[[Registered, Origin], bool]) -> None:
        self.inner = inner
        self._find = find
        self._decide = decide
        self._shows = shows
        self._inner_here = inner if isinstance(inner, ThreadRunner) else None

    async def run(self, call: ToolCall) -> Result:
        """Make the call if it is not denied."""
        self._check(call)
        return await self.inner.run(call)

    async def stream(self, call: ToolCall) -> AsyncGenerator[StreamEvent, None]:
        """Stream the call if it is not denied."""
        self._check(call)
        events = self.inner.stream(call)
        try:
            async for event in events:
                yield event
        finally:
            await events.aclose()

    def runs_here(self, call: ToolCall, within: float) -> bool:
        """Whether `run_here` would make the call; see `ThreadRunner.runs_here`."""
        return self._inner_here is not None and self._inner_here.runs_here(call, within)

    def run_here(self, call: ToolCall, wait: Wait, within: float) -> Result | None:
        """Make the call in this thread if it is not denied; see `ThreadRunner.run_here`."""
        if self._inner_here is None:
            return None
        self._check(call)
        return self._inner_here.run_here(call, wait, within)

    def _check(self, call: ToolCall) -> None:
        try:
            entry = self._find(call.tool_id)
        except ToolNotFoundError as error:
            if not error.details.get("close"):
                raise
            raise without_hidden(error, lambda tool_id: self._visible(tool_id, call.origin)) from None
        verdict = self._decide(entry, call)
        if verdict.effect == "deny":
            raise denied(entry, verdict)

    def _visible(self, tool_id: str, origin: Origin) -> Registered | None:
        try:
            entry = self._find(tool_id)
        except ToolExecError:
            return None
        return entry if self._shows(entry, origin) else None


def denied(entry: Registered, verdict: Verdict) -> PolicyError:
    """The error for a call that a rule forbids."""
    reason = f": {verdict.reason}" if verdict.reason else ""
    return PolicyError(
        f"the policy ({verdict.rule}) forbids this call of {entry.tool.id}{reason}; do not repeat it, but use another "
        "tool, or ask whoever set up the policy",
        tool_id=entry.tool.id,
        op="policy",
        details={"rule": verdict.rule, "reason": verdict.reason},
    )
