"""One run of Python: the thread of its guest, its deadline, and what is left of it in the end."""

from __future__ import annotations

import asyncio
import codecs
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from toolexec.backend.failures import is_cancelled
from toolexec.code.output import Output, Stream
from toolexec.errors import ClosedError
from toolexec.process.threads import WorkerThreads
from toolexec.runtime.alarms import ALARMS
from toolexec.runtime.backend.wasm.instance import Instance, InstanceFailed, InstanceStopped
from toolexec.runtime.gateway.hostcalls import GuestStoppedError, HostCalls, result_payload
from toolexec.runtime.gateway.server import RequestServer
from toolexec.runtime.outcome import Ending, Stopped

__all__ = ["HostSwitch", "PythonOutput", "PythonRun"]

_GRACE_SECONDS = 0.02
"""How long a stopped guest has to end before it is left behind; only a handler in its thread can hold it up."""


class HostSwitch:
    """The host of a guest that outlives its runs: passes every call on to the gateway of the current one."""

    def __init__(self) -> None:
        self.gateway: HostCalls | None = None

    def exchange(self, frame: str) -> str:
        """Answer *frame*; raises GuestStoppedError between runs."""
        return self._current().exchange(frame)

    def post(self, frame: str) -> None:
        """Take *frame*; raises GuestStoppedError between runs."""
        self._current().post(frame)

    def _current(self) -> HostCalls:
        if self.gateway is None:
            raise GuestStoppedError
        return self.gateway


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
        self, server: RequestServer, output: Output, ends: float, helpers: WorkerThreads | None = None
    ) -> None:
        self.gateway: HostCalls = HostCalls(server, output, ends, helpers)
        self.left_behind = False
        """Whether the guest did not end in time and is on its own now."""
        self._ends = ends
        self._loop = asyncio.get_running_loop()
        self._outcome: asyncio.Future[str | BaseException] = self._loop.create_future()
        self._job: asyncio.Task[Any] | None = None
        self._stopped: Stopped = ""
        self._lock = threading.Lock()  # guards the three below
        self._instance: Instance | None = None
        self._asked_to_stop = False
        self._is_over = False
        self._began = False
        self._closed = False

    async def run(
        self,
        threads: WorkerThreads,
        open_instance: Callable[[PythonRun], Instance],
        frame: str,
        after: Callable[[], None],
    ) -> str | BaseException:
        """What the guest answers, or the exception that ended it.

        In a thread: *open_instance* gives the guest, prepared; when the outcome is on its way, *after* is called.
        Cancelling stops the guest.
        """

        def work() -> None:
            self._began = True
            outcome: str | BaseException
            try:
                instance = open_instance(self)
                self._enter(instance)
                outcome = instance.run(frame)
            except BaseException as error:
                outcome = error
            with self._lock:  # a deadline that passes from now on finds nothing to stop
                self._instance = None
                self._is_over = True
            with suppress(RuntimeError):  # the loop is closed, so nobody waits
                self._loop.call_soon_threadsafe(self._settle, outcome)
            after()

        job = self._job = self._loop.create_task(threads.run(work))
        job.add_done_callback(self._hear)
        alarm = ALARMS.at(self._ends, self._stop_late)
        try:
            return await self._outcome
        except asyncio.CancelledError:
            if self._closed and not is_cancelled():
                raise ClosedError("the run was stopped: its sandbox was closed", backend="wasm") from None
            raise
        finally:
            alarm.off()
            if self._outcome.cancelled():
                self._stop()
                self._loop.call_later(_GRACE_SECONDS, job.cancel)  # a guest that a handler holds up keeps its thread
            self.gateway.stop()

    def stop(self) -> None:
        """Stop the run, for closing down; `run` then raises ClosedError."""
        self._closed = True
        if not self._outcome.done():
            self._outcome.cancel()

    def _stop_late(self) -> None:
        """Keep the deadline, in a thread for that: the guest ends in time even while the event loop is blocked."""
        with self._lock:
            if self._is_over:
                return
            self._stopped = "deadline"
        self._stop()
        with suppress(RuntimeError):  # the loop is closed, so nobody waits
            self._loop.call_soon_threadsafe(self._loop.call_later, _GRACE_SECONDS, self._leave_behind)

    def _leave_behind(self) -> None:
        if not self._outcome.done():
            self.left_behind: bool = True
            if self._job is not None:
                self._job.cancel()
            self._outcome.set_result(InstanceStopped("the guest is held up by a handler in its thread"))

    def _enter(self, instance: Instance) -> None:
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

    def _hear(self, job: asyncio.Task[Any]) -> None:
        """Take the failure of a job that never began: there is no thread for it."""
        error = None if job.cancelled() else job.exception()
        if error is not None:
            self._settle(error)

    def _settle(self, outcome: str | BaseException) -> None:
        if not self._outcome.done():
            self._outcome.set_result(outcome)

    def ending(self, outcome: str | BaseException, seconds: float) -> Ending:
        """What `judge` needs to know. Raises what ended the guest when it was no failure of a guest."""
        result: dict[str, Any] | None = None
        stopped: Stopped = self._stopped
        stderr = ""
        if isinstance(outcome, str):
            result, stopped = result_payload(outcome), ""
        elif isinstance(outcome, InstanceFailed):
            stderr = outcome.message
            if not stopped:
                stopped, result = _why(outcome)
        elif not isinstance(outcome, InstanceStopped | GuestStoppedError):
            raise outcome
        return Ending(
            result=result,
            stopped=stopped,
            stderr=stderr,
            memory_limited=True,
            disk_limited=True,
            seconds=seconds,
            began=self._began,
        )


def _why(failure: InstanceFailed) -> tuple[Stopped, dict[str, Any] | None]:
    match failure.reason:
        case "fuel":
            return "cpu", None
        case "memory":
            return "memory", None
        case "stack":
            return "", _failed("RecursionError", "RecursionError: the calls of the program are nested too deep")
        case "exit":
            return "", _failed("SystemExit", f"the program ended itself with exit code {failure.exit_code}")
        case "host":
            return "violation", None
        case _:
            return "", None


def _failed(kind: str, message: str) -> dict[str, Any]:
    return {"error": {"kind": kind, "message": message}}
