"""Notify a hook of every call."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from time import perf_counter
from typing import Literal, Protocol

from toolexec.model.call import ToolCall
from toolexec.run.layer import CallEnd, ObserverLayer
from toolexec.run.runner import Runner
from toolexec.run.types import Result

logger: logging.Logger = logging.getLogger(__name__)


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
        """Record *event*; must not block."""
        ...


class Trace(ObserverLayer):
    """Calls *hook* before and after every call of the runner *inner*."""

    in_thread = False  # the hook is called on the event loop

    def __init__(self, inner: Runner, hook: TraceHook) -> None:
        super().__init__(inner)
        self.hook = hook
        self._calls = 0

    def begin(self, call: ToolCall) -> CallEnd:
        """Notify the hook of a call's start; see `ObserverLayer.begin`."""
        self._calls += 1
        number = self._calls
        self._tell(TraceEvent(kind="start", call_number=number, call=call))
        started = perf_counter()

        def end(result: Result | None, failure: BaseException | None) -> None:
            seconds = perf_counter() - started
            self._tell(
                TraceEvent(kind="end", call_number=number, call=call, result=result, error=failure, duration=seconds)
            )

        return end

    def _tell(self, event: TraceEvent) -> None:
        try:
            self.hook(event)
        except Exception:
            logger.exception("the trace hook failed on %s", event.call.tool_id)
