"""A guest in a worker process, as the thread of its run sees it: like one in this process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Final

from toolexec.errors import ConfigurationError, ToolExecError
from toolexec.model.json_value import JSONDict
from toolexec.process.directory import check_names
from toolexec.runtime.json_text import JSONText
from toolexec.runtime.runs import ALARMS, Alarm
from toolexec.runtime.wasm.guest import HostCalls, InstanceFailed, InstanceSettings, InstanceStopped, OnOutput
from toolexec.runtime.wasm.workers.lost import WorkerLostError
from toolexec.runtime.wasm.workers.process import Lane, WorkerProcess
from toolexec.runtime.wasm.workers.wire import Kind, pack, unpack

OBEY_SECONDS: Final = 1.0
"""How long a worker has to stop a guest before it is killed, with all guests in it."""
STARVED_SECONDS: Final = 10.0
"""The same where the guest leaves the cores to others and cannot get one for that: it may not have had its turn."""
_LOOKS: Final = 4
"""In how many parts that time is: a machine that stands still for longer than all of it takes one of them."""


class WorkerInstance:
    """A fresh guest in a worker, for one run; see `Instance` for what its methods do.

    The guest's calls are answered in the thread of `run`, by the very host that a guest in this process would have.
    """

    def __init__(self, lane: Lane, freed: Callable[[], None]) -> None:
        """*freed* is called once the guest is closed."""
        self.changed_files: dict[str, bytes] = {}
        self.fuel_used: int = 0
        self.value: JSONText | None = None
        """The value of the program, if the answer is without it."""
        self.on_lost: Callable[[str], None] = _nothing
        """Gets how the worker ended, from a thread, when it does so before the guest."""
        self.gives_way: bool = False
        """Whether it leaves the core to others from its start on."""
        self.as_json: bool = False
        """Whether a large value is wanted as JSON text, in `value`."""
        self.worker: WorkerProcess = lane.worker
        self._lane = lane
        self._freed: Callable[[], None] | None = freed
        self._lock = threading.Lock()  # guards the four below
        self._running = False
        self._stopped = False
        self._over = False
        self._obey: Alarm | None = None
        self._answering = False
        self._is_slow = False  # its thread gives way to others from now on
        self._failure: BaseException | None = None
        self._granted: list[bytes] = []

    def prepare(self, settings: InstanceSettings, host: HostCalls, on_output: OnOutput) -> None:
        """Say what the guest is granted."""
        self._settings = settings
        self._host = host
        self._on_output = on_output

    def run(self, frame: str) -> str:
        """Run *frame* and return the guest's answer.

        Raises what `Instance.prepare` and `Instance.run` raise, and WorkerLostError when the worker is gone.
        """
        settings, line = self._settings, self._lane.line
        about: JSONDict = {"granted": _granted(settings), "files": [*settings.files]}
        about |= {"gives_way": self.gives_way, "as_json": self.as_json}
        request = pack(about, [frame.encode(), *settings.files.values()])
        with self._lock:
            if self._stopped:
                raise InstanceStopped("the guest was stopped before it ran")
            self._running = True
        self.worker.add_listener(self.on_lost)
        try:
            line.send(Kind.RUN, *request)
            while True:
                kind, body = line.receive()
                if kind == Kind.END:
                    break
                self._serve(kind, body)
            with self._lock:
                self._over = True
            return self._outcome(*unpack(body))
        except (EOFError, OSError, ValueError, KeyError, TypeError) as error:
            self._failure = error  # no other guest gets this lane
            raise self._lost(error) from error
        finally:
            self.worker.remove_listener(self.on_lost)
            with self._lock:
                self._over, self._running = True, False
                if self._obey is not None:
                    self._obey.off()

    def stop(self) -> None:
        """Have the guest end; a worker that does not do it in time is killed. From any thread."""
        with self._lock:
            if self._stopped or self._over:
                return
            self._stopped = True
            if not self._running:
                return
        self._order_stop()

    def close(self) -> None:
        """Give the lane back, or close it if its guest was stopped or is not over."""
        if self._running:
            self.stop()
        lane, worker = self._lane, self.worker
        freed, self._freed = self._freed, None
        if freed is None:
            return
        is_good = self._over and not self._stopped and not self._is_slow and self._failure is None
        if is_good and worker.is_alive():
            worker.give_back(lane)
        else:
            lane.line.socket.close()
        freed()

    def _order_stop(self) -> None:
        seconds = OBEY_SECONDS if self.worker.stop(self._lane) else STARVED_SECONDS
        self._look_later(seconds / _LOOKS, _LOOKS)

    def _look_later(self, pause: float, looks: int) -> None:
        self._obey = ALARMS.at(monotonic() + pause, partial(self._check_obeyed, pause, looks - 1))

    def _check_obeyed(self, pause: float, looks: int) -> None:
        with self._lock:
            if self._over or self._answering:  # the thread of the run looks after it once its handler returns
                return
            if looks:
                self._look_later(pause, looks)
                return
        self._kill()

    def _kill(self) -> None:
        self.worker.kill("its worker process was killed: it did not stop a program in time")

    def _serve(self, kind: int, body: bytes) -> None:
        """Do what the guest asks for."""
        if kind == Kind.EXCHANGE:
            self._answer(body)
            return
        if self._failure is not None:  # a guest here would have ended
            return
        try:
            if kind == Kind.POST:
                self._host.post(body.decode())
            elif kind in (Kind.STDOUT, Kind.STDERR):
                self._on_output("stderr" if kind == Kind.STDERR else "stdout", body)
            else:
                raise ValueError(f"a worker sent a frame of kind {kind}")
        except BaseException as error:
            self._failure = error
            self._order_stop()

    def _answer(self, body: bytes) -> None:
        reply, kind = b"", Kind.REFUSE
        self._answering = True
        try:
            if self._failure is None:
                reply, kind = self._host.exchange(body.decode()).encode(), Kind.REPLY
        except BaseException as error:
            self._failure = error
        finally:
            with self._lock:
                self._answering = False
                stopped = self._stopped
        line = self._lane.line
        if stopped:
            line.socket.settimeout(OBEY_SECONDS)
        with suppress(OSError):  # a guest that was stopped does not read it; one that is lost is seen next
            line.send(kind, reply)

    def _outcome(self, end: JSONDict, blobs: list[bytes]) -> str:
        """Return the guest's answer; raises what ended it."""
        if end["has_value"]:
            self.value = JSONText(blobs.pop(1))
        files = dict(zip(end["files"], blobs[1:], strict=True))
        self._is_slow = bool(end["gives_way"])
        if files:
            _check_names(files)
        self.changed_files, self.fuel_used = files, int(end.get("fuel_used", 0))
        how, failure, report = end["how"], self._failure, str(end.get("report", ""))
        if how == "answer" and failure is None:
            return blobs[0].decode()
        if self._stopped:
            raise InstanceStopped("the guest was stopped")
        if isinstance(failure, Exception):
            text = f"a host call raised {type(failure).__name__}: {failure}"
            raise InstanceFailed("host", text, report=report) from failure
        if failure is not None:
            raise failure
        message = str(end.get("message", ""))
        match how:
            case "stopped":
                raise InstanceStopped("the guest was stopped")
            case "failed":
                raise InstanceFailed(end["reason"], message, exit_code=end["exit_code"], report=report)
            case "refused":
                raise ConfigurationError(message)
            case _:
                raise RuntimeError(message)

    def _lost(self, error: Exception) -> WorkerLostError:
        """Return what to say of a worker that is gone, or that is killed now as it does not talk as it should."""
        worker = self.worker
        if isinstance(error, TimeoutError):
            self._kill()
        elif not isinstance(error, EOFError | OSError):
            worker.kill(f"its worker process broke the protocol: {error}")
        return WorkerLostError(worker.ending())


def _nothing(how: str) -> None:
    """Do nothing."""


def _check_names(files: dict[str, bytes]) -> None:
    """Check the names of files that a worker sends; raises ValueError."""
    try:
        check_names(files)
    except ToolExecError as error:
        raise ValueError(str(error)) from error


def _granted(settings: InstanceSettings) -> JSONDict:
    """Return what a guest is granted but for its files."""
    names = ("memory_bytes", "fuel", "clock", "seed", "disk_bytes", "output_bytes")
    return {"env": dict(settings.env), **{name: getattr(settings, name) for name in names}}
