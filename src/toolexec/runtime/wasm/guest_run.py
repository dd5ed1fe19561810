"""Guests in threads of their own: their deadline, their end, and their result."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Final, TypeVar

from toolexec.code.tools import Tools
from toolexec.code.types import BackendInfo, CodeResult, ExecuteRequest
from toolexec.errors import ClosedError, ConfigurationError, InvalidRequestError, ProtocolError, ToolExecError
from toolexec.model.json_value import JSONDict, JSONObject
from toolexec.process.settling import retrieve, settle
from toolexec.process.threads import WorkerThreads
from toolexec.runtime.outcome import Ending, judge
from toolexec.runtime.protocol.hostcalls import HostCalls
from toolexec.runtime.runs import ALARMS
from toolexec.runtime.wasm.enforced import enforced_by_wasm
from toolexec.runtime.wasm.engine import fuel_for_cpu_ms
from toolexec.runtime.wasm.guest import (
    Clock,
    InstanceFailed,
    InstanceStopped,
    Random,
    make_clock,
    make_random,
)
from toolexec.runtime.wasm.instance import check_stack
from toolexec.runtime.wasm.recorded import recorded_clock

T = TypeVar("T")
_KIND: Final = "wasm"
_LEAST_MORE: Final = 0.1
"""For how long a deadline that has moved is left alone at least."""
_GRACE_SECONDS: Final = 0.05
"""How long a stopped guest has to end before it is left behind; only a handler in its thread can hold it up."""


@dataclass(slots=True, kw_only=True)
class GuestEnd:
    """How a guest ended: the payload of its `result` message if it gave one, else what stopped it; what it used."""

    payload: JSONObject | None = None
    failure: InstanceFailed | InstanceStopped | None = None
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    details: JSONDict = field(default_factory=JSONDict)


class GuestRuns:
    """The guests that run now, each in a thread, at most *most* at once; more wait."""

    def __init__(self, most: int) -> None:
        self._threads = WorkerThreads(most)
        self._stops: set[Callable[[], None]] = set()

    async def run(
        self, work: Callable[[], T], *, stop: Callable[[], None], ends: Callable[[], float]
    ) -> tuple[T | None, bool]:
        """Return what *work* gives in a thread, and whether it had to be stopped at *ends* (of `time.monotonic`), which
        is asked again when that is reached.

        *stop* is called from any thread: on the deadline, on cancellation, and by `aclose`. What does not end soon
        after it, such as compiling, is left behind and gives None. Raises what *work* raises, ClosedError when `aclose`
        has stopped it, and ConfigurationError when threads have too little stack for a guest.
        """
        loop = asyncio.get_running_loop()
        rang: asyncio.Future[None] = loop.create_future()
        lock = threading.Lock()  # guards the two below
        over = late = closed = False

        def _checked() -> T:
            nonlocal over
            check_stack()
            try:
                return work()
            finally:
                with lock:
                    over = True

        def _ring() -> None:
            nonlocal late, alarm
            with lock:
                if not over and (due := ends()) > monotonic():
                    alarm = ALARMS.at(max(due, monotonic() + _LEAST_MORE), _ring)
                    return
                late = not over
                if late:
                    stop()
            with suppress(RuntimeError):  # the loop is closed: nothing waits any more
                loop.call_soon_threadsafe(settle, rang, None)

        def _close() -> None:
            nonlocal closed
            with lock:
                closed = not over
            stop()

        task: asyncio.Task[T] = asyncio.create_task(self._threads.run(_checked))
        self._stops.add(_close)
        alarm = ALARMS.at(ends(), _ring)
        try:
            await asyncio.wait({task, rang}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                await asyncio.wait({task}, timeout=_GRACE_SECONDS)
        except asyncio.CancelledError:
            stop()
            raise
        finally:
            alarm.off()
            self._stops.discard(_close)
            if not task.done():  # its thread is lost, and another one takes its place
                asyncio.get_running_loop().call_later(_GRACE_SECONDS, task.cancel)
            task.add_done_callback(retrieve)
        if closed and not late:
            raise ClosedError("the run was stopped: its sandbox was closed", backend=_KIND)
        return (task.result(), late) if task.done() else (None, late)

    async def aclose(self) -> None:
        """Stop all guests; their runs raise ClosedError. A later run starts new ones."""
        for stop in [*self._stops]:
            stop()
        self._threads.close()


def describe_end(request: ExecuteRequest, end: GuestEnd | None, *, late: bool, started: float) -> CodeResult:
    """Return the result of a guest that ran since *started* (`time.monotonic`); *late* if its deadline stopped it."""
    end = end or GuestEnd()
    error = judge(_ending(request, end, late))
    result = CodeResult(
        backend=BackendInfo(kind=_KIND, isolation="wasm", details=end.details),
        stdout=request.output.text("stdout"),
        stderr=request.output.text("stderr"),
        duration=monotonic() - started,
        files=end.files,
        limits_enforced=enforced_by_wasm(request),
    )
    if error is None:
        value, gateway = (end.payload or {}).get("value"), request.gateway
        result.value = gateway.resolve(value) if isinstance(gateway, Tools) else value
    else:
        result.error = _located(error, end)
    return result


def _ending(request: ExecuteRequest, end: GuestEnd, late: bool) -> Ending:
    """Return what `judge` needs to know. A guest that ended by itself is a program that failed; a host that failed is
    not."""
    failure = end.failure
    seconds = request.seconds
    if late:
        return Ending(stopped="deadline", seconds=seconds)
    if isinstance(failure, InstanceFailed):
        if failure.reason in ("fuel", "memory"):
            return Ending(stopped="cpu" if failure.reason == "fuel" else "memory", seconds=seconds)
        if failure.reason == "host":
            return Ending(
                stopped="violation" if isinstance(failure.__cause__, ProtocolError) else "", stderr=failure.message
            )
        kinds = {"stack": "RecursionError", "exit": "SystemExit"}
        said = {"kind": kinds.get(failure.reason, "Trap"), "message": failure.message}
        return Ending(result={"error": said}, exit_code=failure.exit_code)
    if failure is not None:
        return Ending(stderr="it was closed while the code ran")
    return Ending(result=end.payload, memory_limited=True)


def _located(error: ToolExecError, end: GuestEnd) -> ToolExecError:
    code = end.failure.exit_code if isinstance(end.failure, InstanceFailed) else None
    if code is not None:
        error.details["exit_code"] = code
    return error.locate(op="execute", backend=_KIND)


def fuel_of(request: ExecuteRequest) -> int | None:
    """Return the fuel for the CPU budget of a request; None without one."""
    return fuel_for_cpu_ms(request.limits.cpu_ms) if request.limits.cpu_ms else None


def time_and_chance(
    request: ExecuteRequest, *, clock: bool = True, calls: HostCalls | None = None
) -> tuple[Clock, Random]:
    """Return the clock and the random stream of a request; a virtual clock from 1970 on without *clock*. *calls* are
    those of a program whose timers may be recorded.

    Raises InvalidRequestError for a start that is not a time.
    """
    start = request.now if request.now is not None or clock else 0.0
    try:
        made = make_clock(start)
        return recorded_clock(request, calls) or made, make_random(request.seed)
    except ConfigurationError as error:
        raise InvalidRequestError(str(error), details=error.details) from error
