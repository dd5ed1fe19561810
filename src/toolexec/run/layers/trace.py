"""Tell a hook about every call."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from time import perf_counter
from typing import Literal, Protocol

from toolexec.model.call import ToolCall
from toolexec.model.events import StreamEvent
from toolexec.run.runner import Runner
from toolexec.run.types import Result

__all__ = ["Trace", "TraceEvent", "TraceHook"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceEvent:
    """The start or the end of a call. At the end there is a `result`, or the `error` that was raised (an
    `asyncio.CancelledError` for a call that was cancelled), and the `duration` in seconds. `call_number` joins the two.

    The call's arguments are in `call.args`: treat them as confidential.
    """

    kind: Literal["start", "end"]
    call_number: int
    call: ToolCall
    result: Result | None = None
    error: BaseException | None = None
    duration: float = 0.0


class TraceHook(Protocol):
    """Gets every TraceEvent, in order, on the event loop; what it raises is logged and changes nothing."""

    def __call__(self, event: TraceEvent) -> None:
        """Take note of *event*; must not block."""
        ...


class Trace:
    """Calls *hook* before and after every call of the runner *inner*."""

    def __init__(self, inner: Runner, hook: TraceHook) -> None:
        self.inner = inner
        self.hook = hook
        self._calls = 0

    async def run(self, call: ToolCall) -> Result:
        """Make the call, with its start and end told."""
        number = self._begin(call)
        started = perf_counter()
        try:
            result = await self.inner.run(call)
        except BaseException as error:
            self._end(number, call, started, error=error)
            raise
        self._end(number, call, started, result)
        return result

    async def stream(self, call: ToolCall) -> AsyncGenerator[StreamEvent, None]:
        """Stream the call, with its start and end told."""
        number = self._begin(call)
        started = perf_counter()
        result: Result | None = None
        failure: BaseException | None = None
        events = self.inner.stream(call)
        try:
            async for event in events:
                if event.kind in ("done", "error"):
                    value = event.data if event.kind == "done" else None
                    result = Result(event.tool_id or call.tool_id, value, event.error)
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
                self._end(number, call, started, result, None if result is not None else failure)

    def _begin(self, call: ToolCall) -> int:
        self._calls += 1
        self._tell(TraceEvent(kind="start", call_number=self._calls, call=call))
        return self._calls

    def _end(
        self,
        number: int,
        call: ToolCall,
        started: float,
        result: Result | None = None,
        error: BaseException | None = None,
    ) -> None:
        duration = perf_counter() - started
        self._tell(TraceEvent(kind="end", call_number=number, call=call, result=result, error=error, duration=duration))

    def _tell(self, event: TraceEvent) -> None:
        try:
            self.hook(event)
        except Exception:
            logger.exception("the trace hook failed on %s", event.call.tool_id)
