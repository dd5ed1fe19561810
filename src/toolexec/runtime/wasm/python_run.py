"""One run of a Python program in its guest: the thread it runs in, its deadline, and how it ended."""

from __future__ import annotations

import asyncio
import base64
import codecs
import contextvars
import json
import secrets
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, TypeAlias

from toolexec.backend.failures import is_cancelled
from toolexec.code.types import ExecuteRequest, Output, Stream
from toolexec.errors import ClosedError
from toolexec.model.json_value import JSONDict
from toolexec.process.threads import NoThreadError, WorkerThreads
from toolexec.run.large import walked
from toolexec.runtime.outcome import Ending, Stopped
from toolexec.runtime.protocol.hostcalls import GuestStoppedError, HostCalls, result_payload
from toolexec.runtime.protocol.recorded_calls import host_calls
from toolexec.runtime.protocol.server import RequestServer
from toolexec.runtime.runs import ALARMS
from toolexec.runtime.wasm.guest import InstanceFailed, InstanceStopped, Starts
from toolexec.runtime.wasm.workers.lost import WorkerLostError

if TYPE_CHECKING:
    from toolexec.runtime.wasm.instance import Instance
    from toolexec.runtime.wasm.workers.instance import WorkerInstance

    AnyInstance: TypeAlias = Instance | WorkerInstance

_LEAST_MORE = 0.1
"""For how long a deadline that has moved is left alone at least."""

_encode = json.JSONEncoder(separators=(",", ":")).encode

_GRACE_SECONDS = 0.02
_LARGE = 256 << 10
"""How long a stopped guest has to end before it is left behind; only a handler in its thread can hold it up."""


class PythonOutput:
    """Makes text of the bytes that a guest writes below Python's own streams, for `output`."""

    def __init__(self, output: Output | None = None) -> None:
        self.output = output
        self._decoders = {name: codecs.getincrementaldecoder("utf-8")("replace") for name in ("stdout", "stderr")}

    def __call__(self, stream: str, data: bytes) -> None:
        """Pass *data* on, if there is an output."""
        name: Stream = "stderr" if stream == "stderr" else "stdout"
        if self.output is not None:
            self.output.write(self._decoders[name].decode(data), name)


class PythonRun:
    """Runs one frame in a guest, in a thread, until *ends* (of `time.monotonic`) at the latest."""

    def __init__(
        self,
        server: RequestServer,
        output: Output,
        ends: float,
        helpers: WorkerThreads,
        starts: Starts | None,
    ) -> None:
        self._starts = starts
        self.gateway: HostCalls = host_calls(server, output, ends, helpers)
        self.left_behind = False
        """Whether the guest did not end in time and is on its own now."""
        self._ends = ends
        self._loop = asyncio.get_running_loop()
        self._outcome: asyncio.Future[str | BaseException] = self._loop.create_future()
        self._abandon: Callable[[], None] = _nothing
        self._stopped: Stopped = ""
        self._lock = threading.Lock()  # guards the three below
        self._instance: AnyInstance | None = None
        self._asked_to_stop = False
        self._is_over = False
        self._began = False
        self._closed = False

    async def run(
        self,
        threads: WorkerThreads,
        open_instance: Callable[[PythonRun], AnyInstance],
        frame: str,
        after: Callable[[], None] | None,
    ) -> str | BaseException:
        """Return what the guest answers, or the exception that ended it.

        In a thread: *open_instance* gives the guest, prepared; when the outcome is on its way, *after* is called, if
        there is something to do. Cancelling stops the guest.
        """

        def work() -> str | BaseException:
            self._began = True
            outcome: str | BaseException
            leave = self.gateway.on_first = self._starts.enter() if self._starts is not None else _nothing
            try:
                if self._asked_to_stop:
                    raise InstanceStopped("the guest was stopped before it began")
                instance = open_instance(self)
                self._enter(instance)
                outcome = instance.run(frame)
            except BaseException as error:
                outcome = error
            finally:
                leave()
            with self._lock:  # a deadline that passes from now on finds nothing to stop
                self._instance = None
                self._is_over = True
            if after is not None:
                self._hand_over(outcome)
                after()
            return outcome

        self._alarm = ALARMS.at(self._ends, self._stop_late)
        try:
            job = threads.start(
                partial(contextvars.copy_context().run, work),
                self._hand_over,
                self._hand_over if after is None else None,  # at the very end, so that the thread is free by then
            )
            self._abandon = partial(threads.abandon, job)
        except NoThreadError as error:
            self._settle(error)
        try:
            return await self._outcome
        except asyncio.CancelledError:
            if self._closed and not is_cancelled():
                raise ClosedError("the run was stopped: its sandbox was closed", backend="wasm") from None
            raise
        finally:
            self._alarm.off()
            if self._outcome.cancelled():
                self._stop()
                self._loop.call_later(_GRACE_SECONDS, self._abandon)  # a handler may hold the guest up
            self._abandon = _nothing  # the job knows this run, too
            self.gateway.stop()

    def stop(self) -> None:
        """Stop the run, for closing down; `run` then raises ClosedError."""
        self._closed = True
        if not self._outcome.done():
            self._outcome.cancel()

    def lose(self, how: str) -> None:
        """Give up a guest whose worker process has ended, as *how* says; from any thread, also while a handler of the
        guest holds up its own."""
        with self._lock:
            if self._is_over:
                return
        with suppress(RuntimeError):  # the loop is closed, so nothing waits
            self._loop.call_soon_threadsafe(self._give_up, WorkerLostError(how))

    def _give_up(self, error: WorkerLostError) -> None:
        if not self._outcome.done():
            self.left_behind = True
            self._loop.call_later(_GRACE_SECONDS, self._abandon)
            self._outcome.set_result(error)

    def _stop_late(self) -> None:
        """Keep the deadline, in a thread for that: the guest ends in time even while the event loop is blocked. What it
        has waited for by timers that are steps of its run does not count."""
        with self._lock:
            if self._is_over:
                return
            due, now = self.gateway.deadline(), monotonic()
            if due > now and not self._asked_to_stop:
                self._alarm = ALARMS.at(max(due, now + _LEAST_MORE), self._stop_late)
                return
            self._stopped = "deadline"
        self._stop()
        with suppress(RuntimeError):  # the loop is closed, so nothing waits
            self._loop.call_soon_threadsafe(self._loop.call_later, _GRACE_SECONDS, self._leave_behind)

    def _leave_behind(self) -> None:
        if not self._outcome.done():
            self.left_behind: bool = True
            self._abandon()
            self._outcome.set_result(InstanceStopped("the guest is held up by a handler in its thread"))

    def _enter(self, instance: AnyInstance) -> None:
        with self._lock:
            self._instance = instance
            stop = self._asked_to_stop
        if stop:
            instance.stop()

    def _stop(self) -> None:
        with self._lock:
            self._asked_to_stop = True
            if self._instance is not None:
                self._instance.stop()
        self.gateway.stop()

    def _hand_over(self, outcome: str | BaseException) -> None:
        """Give the event loop the outcome, also the failure of a job for which there is no thread. From any thread."""
        with suppress(RuntimeError):  # the loop is closed, so nothing waits
            self._loop.call_soon_threadsafe(self._settle, outcome)

    def _settle(self, outcome: str | BaseException) -> None:
        if not self._outcome.done():
            self._outcome.set_result(outcome)

    async def ending(self, outcome: str | BaseException, seconds: float) -> Ending:
        """Return what `judge` needs to know. Raises what ended the guest when it was not a failure of a guest."""
        result: JSONDict | None = None
        stopped: Stopped = self._stopped
        stderr = lost = ""
        if isinstance(outcome, str):
            result, stopped = await _payload(outcome), ""
        elif isinstance(outcome, InstanceFailed):
            stderr = outcome.message
            if not stopped:
                stopped, result = _why(outcome, self.gateway.exit_code)
        elif isinstance(outcome, WorkerLostError):
            lost = str(outcome)
        elif not isinstance(outcome, InstanceStopped | GuestStoppedError):
            raise outcome
        return Ending(
            result=result,
            stopped=stopped,
            stderr=stderr,
            lost=lost,
            reason="worker_ended" if lost else "",
            retryable=bool(lost),
            memory_limited=True,
            disk_limited=True,
            seconds=seconds,
            began=self._began,
        )


async def _payload(text: str) -> JSONDict:
    """Return the payload of the guest's result, which is read off the event loop where it is large: 2 MB take 4 ms,
    and twenty programs may end at once."""
    if len(text) < _LARGE:
        return result_payload(text)
    return await walked(lambda: result_payload(text))


def _why(failure: InstanceFailed, exit_code: int | None) -> tuple[Stopped, JSONDict | None]:
    match failure.reason:
        case "fuel":
            return "cpu", None
        case "memory":
            return "memory", None
        case "stack":
            return "", _failed("RecursionError", "RecursionError: the calls of the program are nested too deep")
        case "exit":
            code = failure.exit_code if exit_code is None else exit_code
            return "", _failed("SystemExit", f"the program ended itself with exit code {code}")
        case "host":
            return "violation", None
        case _:
            return "", None


def _failed(kind: str, message: str) -> JSONDict:
    return {"error": {"kind": kind, "message": message}}


def execute_frame(request: ExecuteRequest) -> str:
    """Return the `execute` message for *request*."""
    payload: JSONDict = {"code": request.code, "cwd": "/workspace", "output_limit": request.output.limit}
    if request.env:
        payload["env"] = dict(request.env)
    if request.args:
        payload["args"] = list(request.args)
    if request.stdin:
        payload["stdin"] = base64.b64encode(request.stdin).decode()
    if request.names:
        payload["names"] = dict(request.names)
    payload["seed"] = request.seed if request.seed is not None else secrets.randbits(64)
    return _encode({"type": "execute", "id": "1", "payload": payload})


def _nothing() -> None:
    """Do nothing."""
