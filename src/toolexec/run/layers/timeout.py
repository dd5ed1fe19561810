"""A time limit for every call."""

from __future__ import annotations

import asyncio
import types
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import suppress
from time import perf_counter
from typing import Any, cast

from toolexec.errors import ConfigurationError, ToolTimeoutError
from toolexec.errors.outcome import Outcome
from toolexec.model.call import ToolCall
from toolexec.model.events import StreamEvent
from toolexec.run.ceilings import default_timeout, refuse_above
from toolexec.run.deadline import DeadlineExceededError, LeftBehind, rest_within, with_deadline
from toolexec.run.layer import Layer
from toolexec.run.runner import Runner
from toolexec.run.types import Result

_MORE = ("progress", "chunk")


class Timeout(Layer):
    """Stops a call, or a whole stream, that takes longer than *seconds* (None: no limit), or than `ToolCall.timeout`
    where that is set; the result then has a ToolTimeoutError. *most* is the longest limit that a call may ask for
    (None: no ceiling).

    Async handlers, remote calls and killable handlers are really stopped. A sync handler in a thread is left behind:
    its result is dropped. So is an async handler that goes on for more than a moment after its cancellation: the caller
    has the error in any case, and the handler goes on in a task in `left` until it ends or that is closed.

    Raises ConfigurationError for a limit that is not above 0, and InvalidLimitsError for a call that asks for more
    than the ceiling.
    """

    def __init__(self, inner: Runner, seconds: float | None, most: float | None = None) -> None:
        for given in (seconds, most):
            if given is not None and (not isinstance(given, int | float) or given is True or not given > 0):
                raise ConfigurationError(f"a timeout must be above 0 seconds, not {given!r}; None means no limit")
        super().__init__(inner)
        self.seconds: float | None = default_timeout(seconds, most)
        self.most = most
        self.left: LeftBehind = LeftBehind()

    async def run(self, call: ToolCall) -> Result:
        """Make the call within its limit."""
        seconds = self.seconds if call.timeout is None else self._limit(call)
        if seconds is None:
            return await self.inner.run(call)
        results: list[Result] = []
        work = _collected(self.inner.run(call), results)
        for waits_for in work:  # once, at the first wait; most work never gets there
            try:
                await rest_within(work, waits_for, seconds, self.left, call.tool_id)
            except DeadlineExceededError:
                return Result(call.tool_id, None, _late(call, seconds), seconds)
        return results[0]

    def runs_in_thread(self, call: ToolCall, within: float) -> bool:
        """Return whether the limit cannot pass before the caller stops waiting, and *inner* would make the call."""
        seconds = self.seconds if call.timeout is None else self._limit(call)
        return (seconds is None or seconds >= within) and super().runs_in_thread(call, within)

    async def stream(self, call: ToolCall) -> AsyncGenerator[StreamEvent, None]:
        """Stream the call; when its limit passes, the last event is the error."""
        seconds = self._limit(call)
        events = self.inner.stream(call)
        ends = perf_counter() + seconds if seconds is not None else None
        behind: asyncio.Task[None] | None = None
        try:
            while True:
                step = _next(events)
                try:
                    # In this task, not in one of its own: a generator may hold scopes that belong to its task.
                    limit = max(ends - perf_counter(), 0) if ends is not None else None
                    event = await (step if limit is None else with_deadline(step, limit, self.left, call.tool_id))
                    if ends is not None and perf_counter() > ends and event is not None and event.kind in _MORE:
                        raise DeadlineExceededError  # a stream that never waits is not stopped by any timer
                except DeadlineExceededError as late:
                    behind = late.task
                    error = _late(call, seconds or 0)
                    yield StreamEvent(kind="error", data=error.to_dict(), tool_id=call.tool_id, error=error)
                    return
                if event is None:
                    return
                yield event
        finally:
            if behind is None:
                await self._close(events, call, ends)
            else:  # a step of it is still under way
                self.left.add(asyncio.ensure_future(_close_after(behind, events)))

    async def _close(self, events: AsyncGenerator[StreamEvent, None], call: ToolCall, ends: float | None) -> None:
        """Close a stream within what is left of its time; a handler that refuses to end is left behind."""
        if ends is None:
            await events.aclose()
            return
        with suppress(DeadlineExceededError):
            await with_deadline(_closed(events), max(ends - perf_counter(), 0), self.left, call.tool_id)

    def _limit(self, call: ToolCall) -> float | None:
        if call.timeout is None:
            return self.seconds
        if not isinstance(call.timeout, int | float) or call.timeout is True or not call.timeout > 0:
            raise ConfigurationError(f"a timeout must be above 0 seconds, not {call.timeout!r}", tool_id=call.tool_id)
        refuse_above("timeout", call.timeout, self.most, tool_id=call.tool_id)
        return call.timeout


def _collect(work: Coroutine[Any, Any, Result], results: list[Result]) -> Generator[Any, Any, None]:
    """Await *work*, and append its result to *results*.

    Stepped by hand, work that ends with a value raises StopIteration, which takes twice as long as all the rest here;
    a loop over a generator that ends without one does not. Every call passes here.
    """
    results.append((yield from work))


_collected = cast(
    "Callable[[Coroutine[Any, Any, Result], list[Result]], Generator[Any, Any, None]]", types.coroutine(_collect)
)  # typeshed knows its result only as an awaitable


async def _next(events: AsyncGenerator[StreamEvent, None]) -> StreamEvent | None:
    return await anext(events, None)


async def _closed(events: AsyncGenerator[StreamEvent, None]) -> None:
    await events.aclose()


async def _close_after(step: asyncio.Task[None], events: AsyncGenerator[StreamEvent, None]) -> None:
    await asyncio.wait([step])
    await events.aclose()


def _late(call: ToolCall, seconds: float) -> ToolTimeoutError:
    if call.waiting:
        return ToolTimeoutError(
            f"{call.tool_id} was not called: it waited {seconds:g} s for {call.waiting}; nothing was done, "
            "so call it again later, or pass a longer timeout",
            tool_id=call.tool_id,
            op="execute",
            details={"timeout": seconds, "waited_for": call.waiting},
            outcome=Outcome.NOT_SENT,
        )
    return ToolTimeoutError(
        f"{call.tool_id} did not finish within {seconds:g} s and was stopped; pass a longer timeout if it needs more",
        tool_id=call.tool_id,
        op="execute",
        details={"timeout": seconds},
    )
