"""A time limit for every call."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from time import perf_counter

from toolexec.backend.here import Wait
from toolexec.errors import ConfigurationError, ToolTimeoutError
from toolexec.model.call import ToolCall
from toolexec.model.events import StreamEvent
from toolexec.run.deadline import DeadlineExceededError, rest_within, with_deadline
from toolexec.run.runner import Runner, ThreadRunner
from toolexec.run.types import Result

__all__ = ["Timeout"]

_MORE = ("progress", "chunk")


class Timeout:
    """Stops a call, or a whole stream, that takes longer than *seconds* (None: no limit), or than `ToolCall.timeout`
    where that is set; the result then has a ToolTimeoutError.

    Async handlers, remote calls and killable handlers are really stopped. A sync handler in a thread is left behind:
    its result is dropped. Raises ConfigurationError for a limit that is not above 0.
    """

    def __init__(self, inner: Runner, seconds: float | None) -> None:
        if seconds is not None and not seconds > 0:
            raise ConfigurationError(f"a timeout must be above 0 seconds, not {seconds}; None means no limit")
        self.inner = inner
        self.seconds = seconds
        self._inner_here = inner if isinstance(inner, ThreadRunner) else None

    async def run(self, call: ToolCall) -> Result:
        """Make the call within its limit."""
        seconds = self.seconds if call.timeout is None else self._limit(call)
        if seconds is None:
            return await self.inner.run(call)
        work = self.inner.run(call)
        try:
            waits_for = work.send(None)  # as `with_deadline` begins, without its frame: every call passes here
        except StopIteration as finished:
            return finished.value
        try:
            return await rest_within(work, waits_for, seconds)
        except DeadlineExceededError:
            return Result(call.tool_id, None, _late(call, seconds), seconds)

    def run_here(self, call: ToolCall, wait: Wait, within: float) -> Result | None:
        """Make the call, if its limit cannot pass before the caller stops waiting; see `ThreadRunner.run_here`."""
        inner = self._inner_here
        return inner.run_here(call, wait, within) if inner is not None and self._lasts(call, within) else None

    def runs_here(self, call: ToolCall, within: float) -> bool:
        """Whether `run_here` would make the call."""
        inner = self._inner_here
        return inner is not None and self._lasts(call, within) and inner.runs_here(call, within)

    def _lasts(self, call: ToolCall, within: float) -> bool:
        """Whether the call's limit cannot pass within so many seconds."""
        seconds = self.seconds if call.timeout is None else self._limit(call)
        return seconds is None or seconds >= within

    async def stream(self, call: ToolCall) -> AsyncGenerator[StreamEvent, None]:
        """Stream the call; when its limit passes, the last event is the error."""
        seconds = self._limit(call)
        events = self.inner.stream(call)
        ends = perf_counter() + seconds if seconds is not None else None
        try:
            while True:
                step = _next(events)
                try:
                    # In this task, not in one of its own: a generator may hold scopes that belong to its task.
                    event = await (step if ends is None else with_deadline(step, max(ends - perf_counter(), 0)))
                    if ends is not None and perf_counter() > ends and event is not None and event.kind in _MORE:
                        raise DeadlineExceededError  # a stream that never waits is not stopped by any timer
                except DeadlineExceededError:
                    error = _late(call, seconds or 0)
                    yield StreamEvent(kind="error", data=error.to_dict(), tool_id=call.tool_id, error=error)
                    return
                if event is None:
                    return
                yield event
        finally:
            await events.aclose()

    def _limit(self, call: ToolCall) -> float | None:
        if call.timeout is None:
            return self.seconds
        if not call.timeout > 0:
            raise ConfigurationError(f"a timeout must be above 0 seconds, not {call.timeout}", tool_id=call.tool_id)
        return call.timeout


async def _next(events: AsyncGenerator[StreamEvent, None]) -> StreamEvent | None:
    return await anext(events, None)


def _late(call: ToolCall, seconds: float) -> ToolTimeoutError:
    return ToolTimeoutError(
        f"{call.tool_id} did not finish within {seconds:g} s and was stopped; pass a longer timeout if it needs more",
        tool_id=call.tool_id,
        op="execute",
        details={"timeout": seconds},
    )
