"""The base of every rule around calls: what a rule does not override passes through, on each of the three paths."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import ClassVar, TypeAlias

from toolexec.backend.here import Wait
from toolexec.errors import ExecutionError
from toolexec.model.call import ToolCall
from toolexec.model.events import StreamEvent
from toolexec.run.runner import Runner, ThreadRunner, last_event, thread_runner
from toolexec.run.types import Result

Answer: TypeAlias = ToolCall | Result | None
"""What `Layer.before` makes of a call: another call, a result in place of the call, or None for the call as it is."""
CallEnd: TypeAlias = Callable[[Result | None, BaseException | None], None]
"""Gets the result of a call, or what it raised; neither when the call was not made in this thread after all."""


class Layer:
    """A rule around the calls of *inner*: override `before`, `after`, or both.

    The rule then holds for `run`, for `stream`, and for calls in the caller's own thread. A rule that needs the event
    loop sets `in_thread` to False; one that must wrap around a call overrides these methods themselves.
    """

    in_thread: ClassVar[bool] = True

    def __init__(self, inner: Runner) -> None:
        self.inner = inner
        self.inner_in_thread: ThreadRunner | None = thread_runner(inner) if self.in_thread else None
        self._has_after = type(self).after is not Layer.after

    def before(self, call: ToolCall) -> Answer | Awaitable[Answer]:
        """Look at a call before it is made: raise to refuse it, or return what takes its place; may be a coroutine."""

    def after(self, call: ToolCall, result: Result) -> Result | Awaitable[Result | None] | None:
        """Look at the result of a call: return another one in its place, or None to leave it as it is; may be a
        coroutine.

        Of a stream it is the last event's value or error.
        """

    async def run(self, call: ToolCall) -> Result:
        """Make the call under the rule; see `Runner.run`."""
        answer = self.before(call)
        if answer is not None:
            if not isinstance(answer, ToolCall | Result):
                answer = await answer
            if isinstance(answer, Result):
                return answer
            call = answer or call
        result = await self.inner.run(call)
        if self._has_after:
            other = self.after(call, result)
            if other is not None:
                return other if isinstance(other, Result) else await other or result
        return result

    async def stream(self, call: ToolCall) -> AsyncGenerator[StreamEvent, None]:
        """Make the call piece by piece under the rule; see `Runner.stream`."""
        answer = self.before(call)
        if answer is not None and not isinstance(answer, ToolCall | Result):
            answer = await answer
        if isinstance(answer, Result):
            yield last_event(answer)
            return
        call = answer or call
        events = self.inner.stream(call)
        try:
            async for event in events:
                if self._has_after and event.kind in ("done", "error"):
                    result = self.after(call, last_result(event, call))
                    if result is not None and not isinstance(result, Result):
                        result = await result
                    yield event if result is None else last_event(result)
                else:
                    yield event
        finally:
            await events.aclose()

    def runs_in_thread(self, call: ToolCall, within: float) -> bool:
        """Return whether `run_in_thread` would make the call; see `ThreadRunner.runs_in_thread`."""
        return self.inner_in_thread is not None and self.inner_in_thread.runs_in_thread(call, within)

    def run_in_thread(self, call: ToolCall, wait: Wait, within: float) -> Result | None:
        """Make the call in this thread under the rule; see `ThreadRunner.run_in_thread`."""
        inner = self.inner_in_thread
        if inner is None or not self.runs_in_thread(call, within):
            return None  # before the rule counts or asks anything: the call comes again on the loop
        answer = self.before(call)
        if answer is not None and not isinstance(answer, ToolCall | Result):
            answer = wait(answer)
        if isinstance(answer, Result):
            return answer
        call = answer or call
        result = inner.run_in_thread(call, wait, within)
        if result is not None and self._has_after:
            other = self.after(call, result)
            if other is not None:
                return other if isinstance(other, Result) else wait(other) or result
        return result


class ObserverLayer(Layer):
    """A rule that sees each call of *inner* begin and end, however it ends: override `begin`."""

    def begin(self, call: ToolCall) -> CallEnd:
        """Note that a call begins; what is returned is called once, at its end. Raise to refuse the call."""
        raise NotImplementedError

    async def run(self, call: ToolCall) -> Result:
        """Make the call and observe it; see `Runner.run`."""
        end = self.begin(call)
        try:
            result = await self.inner.run(call)
        except BaseException as error:
            end(None, error)
            raise
        end(result, None)
        return result

    async def stream(self, call: ToolCall) -> AsyncGenerator[StreamEvent, None]:
        """Stream the call and observe it, from the first event that is asked for to the end of the stream."""
        end = self.begin(call)
        result: Result | None = None
        failure: BaseException | None = None
        events = self.inner.stream(call)
        try:
            async for event in events:
                if event.kind in ("done", "error"):
                    result = last_result(event, call)
                yield event
        except GeneratorExit:
            failure = asyncio.CancelledError("the stream was closed early")
            raise
        except BaseException as error:
            failure = error
            raise
        else:
            result = result or Result(call.tool_id)
        finally:
            try:
                await events.aclose()
            finally:
                # Who has the last event may leave without asking for another: that call has ended all the same.
                end(result, None if result is not None else failure)

    def run_in_thread(self, call: ToolCall, wait: Wait, within: float) -> Result | None:
        """Make the call in this thread and observe it; see `ThreadRunner.run_in_thread`."""
        inner = self.inner_in_thread
        if inner is None or not self.runs_in_thread(call, within):
            return None
        end = self.begin(call)
        try:
            result = inner.run_in_thread(call, wait, within)
        except BaseException as error:
            end(None, error)
            raise
        end(result, None)
        return result


def last_result(event: StreamEvent, call: ToolCall) -> Result:
    """Return what the last event of a stream means as a result."""
    tool_id = event.tool_id or call.tool_id
    if event.kind == "done":
        return Result(tool_id, event.data, cached=event.cached)
    return Result(tool_id, None, event.error or ExecutionError("the stream ended with an error", tool_id=tool_id))
